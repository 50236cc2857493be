"""The marginal log-likelihood of a cohort and its derivative, by the route that the data asks for."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..cohort import Cohort
from ..params import LDSParams
from . import complete as shared
from . import gappy
from .breakdown import explain_breakdown
from .complete import Complete
from .gappy import Gappy

_BLOCK = 256  # sequences with gaps run in blocks: bounded memory, and a block stays in cache


def check_shapes(params: LDSParams, cohort: Cohort) -> None:
    """Parameters and cohort must be of one size; shapes are known under jit too."""
    l, d = jnp.shape(params.A)[-1], cohort.n_channels
    wanted = LDSParams((l, l), (d, l), (l, l), (d, d), (l,), (l, l))
    for name, x, shape in zip(LDSParams._fields, params, wanted, strict=True):
        if jnp.shape(x) != shape:
            raise ValueError(
                f"params.{name} has shape {jnp.shape(x)}; with {l} states (from A) and a cohort of {d} channels "
                f"it must be {shape}"
            )


def arrange(cohort: Cohort, dtype) -> Complete | Gappy:
    """The cohort in the layout of its route: time first, sequences last."""
    y = jnp.moveaxis(jnp.asarray(cohort.y, dtype), 0, -1)  # (T, d, N)
    inside = jnp.arange(y.shape[0])[:, None] < jnp.asarray(cohort.lengths)  # (T, N)
    if cohort.complete:
        return Complete(y, inside.astype(dtype), jnp.ones(y.shape[-1], dtype))
    seen = jnp.moveaxis(jnp.asarray(cohort.mask), 0, -1)
    return Gappy(y, inside.astype(dtype), (seen | ~inside[:, None]).astype(dtype))


def in_blocks(data: Gappy, weights: Array) -> tuple[Gappy, Array]:
    """Data and weights cut into blocks of sequences along a new first axis.

    A block filled up to the common size holds sequences of length 0 and weight 0.
    """
    N = weights.size
    size = min(N, _BLOCK)
    blocks = -(-N // size)

    def split(x, fill=0.0):
        pad = [(0, 0)] * (x.ndim - 1) + [(0, blocks * size - N)]
        x = jnp.pad(x, pad, constant_values=fill)
        return jnp.moveaxis(x.reshape(*x.shape[:-1], blocks, size), -2, 0)

    return Gappy(split(data.y), split(data.inside), split(data.observed, 1.0)), split(weights)


@jax.custom_vjp
def loglik(params: LDSParams, data: Complete | Gappy) -> Array:
    """log p(y_n | Ω) of each sequence of a block, (N,)."""
    return _loglik_fwd(params, data)[0]


def route(data: Complete | Gappy) -> Any:
    """The module with `forward`, `loglik` and `score` for this kind of data."""
    return shared if isinstance(data, Complete) else gappy


def _loglik_fwd(params, data):
    fwd = route(data).forward(params, data)
    return route(data).loglik(data, fwd), (params, data, fwd)


def _loglik_bwd(residuals, weights):
    params, data, fwd = residuals
    grads, dy, *_ = route(data).score(params, data, fwd, weights)
    return grads, jax.tree.map(jnp.zeros_like, data)._replace(y=dy)


loglik.defvjp(_loglik_fwd, _loglik_bwd)


def log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """log p(y_n | Ω) of each sequence, shape (N,).

    Its derivative is Fisher's identity, by one adjoint pass and no differentiation through the scan; gradients
    of covariances are those of a symmetric argument. Hessians (jax.hessian) work. Forward mode
    alone (jax.jvp, jax.jacfwd) needs `plain_log_likelihood`.
    """
    check_shapes(params, cohort)
    return explain_breakdown(_with_rule(params, cohort), params, cohort)


def plain_log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """`log_likelihood` without its derivative rule: JAX differentiates through the scan, in any mode."""
    check_shapes(params, cohort)
    return _without_rule(params, cohort)


@jax.jit
def _with_rule(params: LDSParams, cohort: Cohort) -> Array:
    return _each_sequence(lambda data: loglik(params, data), params, cohort)


@jax.jit
def _without_rule(params: LDSParams, cohort: Cohort) -> Array:
    return _each_sequence(lambda data: _loglik_fwd(params, data)[0], params, cohort)


def _each_sequence(f, params: LDSParams, cohort: Cohort) -> Array:
    data = arrange(cohort, jnp.result_type(*params))
    if isinstance(data, Complete):
        return f(data)
    blocks, _ = in_blocks(data, jnp.ones(cohort.n_sequences))
    return lax.map(f, blocks).reshape(-1)[: cohort.n_sequences]
