"""A cohort made ready for many evaluations, and its total log-likelihood.

What only needs sums over sequences (EM, the total log-likelihood and its gradient) need not visit every sequence
of a cohort without gaps.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..cohort import Cohort
from ..params import LDSParams
from . import complete as shared
from .breakdown import explain_breakdown
from .complete import Complete
from .gappy import Gappy
from .likelihood import arrange, check_shapes, in_blocks, loglik

_MULTIPLE = 8


def compress(cohort: Cohort) -> tuple[Complete, np.ndarray]:
    """Pseudo-sequences with the same sums, and how many real sequences reach each step.

    States are linear in (1, y), so a cohort without gaps enters its sums only through Σ (1, y)(1, y)', for each length
    T_n apart. Where a length has more than T_n d + 1 sequences, the triangular factor of a QR of its rows
    has that many rows and the same sums: the E-step's cost no longer grows with N.
    """
    T, d = cohort.n_steps, cohort.n_channels
    parts, lengths = [], []
    for length in np.unique(cohort.lengths):
        y = np.asarray(cohort.y)[np.asarray(cohort.lengths) == length, :length]
        rows = np.hstack([np.ones((len(y), 1)), y.reshape(len(y), -1)])
        if len(rows) > rows.shape[1]:
            rows = np.linalg.qr(rows, mode="r")
        parts.append(np.pad(rows, [(0, 0), (0, (T - length) * d)]))
        lengths.append(np.full(len(rows), length))
    rows, length = np.concatenate(parts), np.concatenate(lengths)
    inside = np.arange(T)[:, None] < length
    n_t = (np.arange(T)[:, None] < np.asarray(cohort.lengths)).sum(1)
    y = np.moveaxis(rows[:, 1:].reshape(-1, T, d), 0, -1)
    host: Any = np.ascontiguousarray(y), inside.astype(float), rows[:, 0]  # not jax: it is cached
    return Complete(*host), n_t


class Prepared(NamedTuple):
    """A cohort ready for E-steps: a pytree of arrays, so that one compiled program serves all of its size."""

    data: Complete | Gappy  # with gaps: in blocks, along a first axis
    weights: Array
    n_t: Array | None  # (T,), how many sequences reach step t, for data without gaps


def prepare(cohort: Cohort, dtype, weights: Array | None = None) -> Prepared:
    """Arrange a cohort once, for any number of E-steps.

    The number of (pseudo-)sequences is filled up to a multiple of 8 by sequences of length 0, so that parts of a
    cohort, such as folds, share their compiled programs.
    """
    if cohort.complete and weights is None and isinstance(cohort.y, np.ndarray):
        data, n_t = _compressed(_Same(cohort))
        data = Complete(*(jnp.asarray(_fill(x, xp=np), dtype) for x in data))
        return Prepared(data, jnp.asarray(np.ones(data.unit.shape), dtype), jnp.asarray(n_t, dtype))
    w = jnp.ones(cohort.n_sequences, dtype) if weights is None else jnp.asarray(weights, dtype)
    data, w = arrange(cohort, dtype), _fill(w)
    if isinstance(data, Complete):
        data = Complete(*map(_fill, data))
        return Prepared(data, w, data.inside @ w)
    data = Gappy(_fill(data.y), _fill(data.inside), _fill(data.observed, 1.0))
    return Prepared(*in_blocks(data, w), n_t=None)


def _fill(x: Array, value: float = 0.0, xp: Any = jnp) -> Array:
    """The last axis, that of the sequences, up to a multiple."""
    more = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % _MULTIPLE)]
    return xp.pad(x, more, constant_values=value)


def total(params: LDSParams, prepared: Prepared) -> Array:
    """Σ_n w_n log p(y_n | Ω) of a prepared cohort."""
    data, weights, n_t = prepared
    if isinstance(data, Complete):
        return _total(params, data, weights, n_t)
    return lax.map(lambda x: loglik(params, x[0]) @ x[1], (data, weights)).sum()


@jax.custom_vjp
def _total(params: LDSParams, data: Complete, weights: Array, n_t: Array) -> Array:
    return _total_fwd(params, data, weights, n_t)[0]


def _total_fwd(params, data, weights, n_t):
    fwd = shared.forward(params, data)
    return shared.total(data, fwd, weights, n_t), (params, data, weights, n_t, fwd)


def _total_bwd(residuals, g):
    params, data, weights, n_t, fwd = residuals
    grads, _ = shared.score(params, data, fwd, g * weights, g * n_t)
    return grads, *(jax.tree.map(jnp.zeros_like, x) for x in (data, weights, n_t))


_total.defvjp(_total_fwd, _total_bwd)


def total_log_likelihood(params: LDSParams, cohort: Cohort) -> Array:
    """Σ_n log p(y_n | Ω), the sum of `log_likelihood` and faster where sequences of one length are many.

    It is to be differentiated in the parameters only.
    """
    check_shapes(params, cohort)
    value = _total_jit(params, prepare(cohort, jnp.result_type(*params)))
    return explain_breakdown(value, params, cohort)


_total_jit = jax.jit(total)


class _Same:
    """A cohort as a cache key: by identity, since cohorts never change."""

    def __init__(self, cohort: Cohort):
        self.cohort = cohort

    def __hash__(self):
        return id(self.cohort)

    def __eq__(self, other):
        return self.cohort is other.cohort


@functools.lru_cache(maxsize=8)
def _compressed(same: _Same) -> tuple[Complete, np.ndarray]:
    return compress(same.cohort)
