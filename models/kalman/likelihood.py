"""Log-likelihood and expected statistics of a cohort, with gaps or without."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cohort import Cohort
from ..params import LDSParams, given, shapes_of
from .breakdown import explain_breakdown
from .input_means import deviations
from .parts import Guarded
from .prepare import Prepared, arrange, prepare, sequence_routes
from .statistics import ExpectedStatistics


def check_shapes(params: LDSParams, cohort: Cohort) -> None:
    """Raise unless the parameters' shapes fit each other and the cohort; shapes are known under jit too."""
    l, d, p = jnp.shape(params.A)[-1], cohort.n_channels, cohort.n_inputs
    shapes, found = shapes_of(l, d, p), given(params)
    for name, x in found.items():
        if name not in shapes:
            raise ValueError(
                f"params.{name} has shape {jnp.shape(x)}, and the cohort has no inputs"
            )
        if jnp.shape(x) != shapes[name]:
            inputs = f" and {p} inputs" if p else ""
            raise ValueError(
                f"params.{name} has shape {jnp.shape(x)}; with {l} states (from A) and a cohort of {d} channels"
                f"{inputs} it must be {shapes[name]}"
            )
    for name in shapes.keys() - found.keys():
        raise ValueError(
            f"the cohort has inputs ({', '.join(cohort.inputs)}), and params.{name} is None; give {shapes[name]}, "
            "zeros where an input has no effect"
        )


def log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """Return log p(y_n | Ω) of each sequence, shape (N,).

    The derivative is Fisher's identity, by one adjoint pass and no differentiation through the scan; gradients
    of covariances are those of a symmetric argument. Hessians (jax.hessian) work. Forward mode
    alone (jax.jvp, jax.jacfwd) needs `plain_log_likelihood`.
    """
    check_shapes(params, cohort)
    if isinstance(cohort.y, np.ndarray) and isinstance(cohort.mask, np.ndarray):
        routes = sequence_routes(cohort, params.dtype, jnp.shape(params.A)[0])
        if len(routes) > 1 or isinstance(routes[0][1], Guarded):
            values = [_sequences(params, data)[: len(n)] for n, data in routes]
            order = np.argsort(np.concatenate([n for n, _ in routes]))
            return explain_breakdown(jnp.concatenate(values)[order], params, cohort)
    return explain_breakdown(_with_rule(params, cohort), params, cohort)


def plain_log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """Return `log_likelihood` without its derivative rule: JAX differentiates through the scan, in any mode."""
    check_shapes(params, cohort)
    return _without_rule(params, cohort)


def total_log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """Return Σ_n log p(y_n | Ω), the sum of `log_likelihood`, faster where many sequences have one length.

    Derivatives are right in the parameters only.
    """
    check_shapes(params, cohort)
    value = _total(params, _prepared(params, cohort))
    return explain_breakdown(value, params, cohort)


def expected_statistics(
    params: LDSParams, cohort: Cohort, weights: Array | None = None
) -> ExpectedStatistics:
    """Run the E-step: return the sums that EM needs, over all sequences, each with its weight (1 by default).

    With weights a fold or a bootstrap has its own sums without a new cohort.
    """
    check_shapes(params, cohort)
    stats = _statistics(params, _prepared(params, cohort, weights))
    return explain_breakdown(stats, params, cohort)


def _prepared(params: LDSParams, cohort: Cohort, weights: Array | None = None) -> Prepared:
    return prepare(cohort, params.dtype, weights, jnp.shape(params.A)[0])


def _native(params: LDSParams, cohort: Cohort) -> tuple[LDSParams, Cohort]:
    """Return a model and a cohort that `arrange` takes: sequences with gaps have none for inputs."""
    return (params, cohort) if cohort.complete else deviations(params, cohort)


@jax.jit
def _with_rule(params: LDSParams, cohort: Cohort) -> Array:
    params, cohort = _native(params, cohort)
    data = arrange(cohort, params.dtype)
    return data.sequences(params)[: cohort.n_sequences]


@jax.jit
def _without_rule(params: LDSParams, cohort: Cohort) -> Array:
    params, cohort = _native(params, cohort)
    data = arrange(cohort, params.dtype)
    return data.sequences(params, rule=False)[: cohort.n_sequences]


_sequences = jax.jit(lambda params, data: data.sequences(params))
_total = jax.jit(lambda params, data: data.log_likelihood(params))
_statistics = jax.jit(lambda params, data: data.expected_statistics(params))
