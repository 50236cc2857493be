"""The marginal log-likelihood of a cohort and its derivative, by the route that the data asks for."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from . import gappy, shared
from .breakdown import explain_breakdown
from .cohort import Cohort
from .gappy import Gappy
from .params import LDSParams
from .shared import Complete

_BLOCK = 256  # sequences with gaps run in blocks: bounded memory, and a block stays in cache

Out = TypeVar("Out")


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


def map_blocks(
    f: Callable[[Complete | Gappy, Array], Out], params: LDSParams, cohort: Cohort, weights: Array
) -> Out:
    """f(data, weights) on the blocks of a cohort, results stacked along a new first axis.

    A block filled up to the common size holds sequences of length 0 and weight 0.
    """
    dtype = jnp.result_type(*params)
    data, weights = arrange(cohort, dtype), jnp.asarray(weights, dtype)
    N = cohort.n_sequences
    if cohort.complete or N <= _BLOCK:
        return jax.tree.map(lambda x: x[None], f(data, weights))
    blocks = -(-N // _BLOCK)

    def split(x, fill=0.0):
        pad = [(0, 0)] * (x.ndim - 1) + [(0, blocks * _BLOCK - N)]
        x = jnp.pad(x, pad, constant_values=fill)
        return jnp.moveaxis(x.reshape(*x.shape[:-1], blocks, _BLOCK), -2, 0)

    assert isinstance(data, Gappy)
    data = Gappy(split(data.y), split(data.inside), split(data.observed, 1.0))
    return lax.map(lambda x: f(*x), (data, split(weights)))


@jax.custom_vjp
def loglik(params: LDSParams, data: Complete | Gappy) -> Array:
    """log p(y_n | Ω) of each sequence of a block, (N,)."""
    return _loglik_fwd(params, data)[0]


def _loglik_fwd(params, data):
    route = shared if isinstance(data, Complete) else gappy
    fwd = route.forward(params, data)
    return route.loglik(data, fwd), (params, data, fwd)


def _loglik_bwd(residuals, weights):
    params, data, fwd = residuals
    route = shared if isinstance(data, Complete) else gappy
    grads, dy, *_ = route.score(params, data, fwd, weights)
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
    parts = map_blocks(lambda data, _: loglik(params, data), params, cohort, _ones(cohort))
    return parts.reshape(-1)[: cohort.n_sequences]


@jax.jit
def _without_rule(params: LDSParams, cohort: Cohort) -> Array:
    parts = map_blocks(lambda x, _: _loglik_fwd(params, x)[0], params, cohort, _ones(cohort))
    return parts.reshape(-1)[: cohort.n_sequences]


def _ones(cohort: Cohort) -> Array:
    return jnp.ones(cohort.n_sequences)
