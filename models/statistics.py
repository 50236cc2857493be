"""The sums that EM needs: expected sufficient statistics of a cohort under given parameters."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from . import gappy, shared
from .breakdown import explain_breakdown
from .cohort import Cohort
from .gappy import Gappy
from .likelihood import arrange, check_shapes, in_blocks
from .linalg import sym
from .params import LDSParams
from .shared import Complete


class ExpectedStatistics(NamedTuple):
    """Sums over sequences n and steps t of posterior moments, M_t = E[z_t z_t' | y], weighted by w_n.

    The paper's Σ_{t>=2} M_t is S11, Σ M_{t,t-1} is S10, Σ_{t>=2} M_{t-1} is S00. Sums with y run over the
    steps with at least one observed cell; missing cells of such a step enter by their conditional
    moments given the observed ones.
    """

    n_sequences: Array  # Σ w_n
    n_transitions: Array  # Σ w_n (T_n - 1)
    n_emissions: Array  # Σ w_n (steps with an observed cell)
    z1: Array  # (l,)   Σ E[z_1]
    M1: Array  # (l, l) Σ M_1
    S00: Array  # (l, l)
    S10: Array  # (l, l)
    S11: Array  # (l, l)
    Szz: Array  # (l, l) Σ M_t, steps with an observed cell
    Syz: Array  # (d, l) Σ E[y_t z_t']
    Syy: Array  # (d, d) Σ E[y_t y_t']
    log_likelihood: Array  # Σ w_n log p(y_n)


def complete_statistics(
    params: LDSParams, data: Complete, weights: Array, n_t: Array
) -> ExpectedStatistics:
    """The sums of a cohort without gaps; n_t (T,) is how many sequences reach step t."""
    fwd = shared.forward(params, data)
    z1, M1, S00, S10, Szz, Syz = shared.moments(params, data, fwd, weights, n_t)
    constant = fwd.logdet + data.y.shape[1] * jnp.log(2 * jnp.pi)
    return ExpectedStatistics(
        n_sequences=n_t[0],
        n_transitions=n_t[1:].sum(),
        n_emissions=n_t.sum(),
        z1=z1,
        M1=sym(M1),
        S00=sym(S00),
        S10=S10,
        S11=sym(Szz - M1),
        Szz=sym(Szz),
        Syz=Syz,
        Syy=sym((data.y * weights @ data.y.mT).sum(0)),
        log_likelihood=-0.5 * ((fwd.e**2).sum((0, 1)) @ weights + constant @ n_t),
    )


def gappy_statistics(params: LDSParams, data: Gappy, weights: Array) -> ExpectedStatistics:
    """The sums of a block with gaps, by Fisher's identity read backwards: the score holds them.

    Σ E[e_t z_{t-1}'] = Q g_A, so S10 follows from S00; likewise, with Σ E[v_t v_t'] = n R + 2 R g_R R, the moments
    of y_t = C z_t + v_t from Szz. Missing cells need no care here: the score has taken their conditional
    moments into account. M1 and S11 are not had in this way: 2 V1 g_V1 V1 multiplies rounding by V1².
    """
    A, C, Q, R, _, _ = params
    fwd = gappy.forward(params, data)
    grads, _, (z1, M1, S00, S11, Szz) = gappy.score(params, data, fwd, weights)
    n_transitions = data.inside[1:].sum(0) @ weights
    n_emissions = (data.inside * data.observed.max(1)).sum(0) @ weights
    ez, vz = Q @ grads.A, R @ grads.C  # Σ E[e_t z_{t-1}'], Σ E[v_t z_t']
    vv = n_emissions * R + 2 * R @ grads.R @ R
    return ExpectedStatistics(
        n_sequences=weights.sum(),
        n_transitions=n_transitions,
        n_emissions=n_emissions,
        z1=z1,
        M1=sym(M1),
        S00=sym(S00),
        S10=A @ S00 + ez,
        S11=sym(S11),
        Szz=sym(Szz),
        Syz=C @ Szz + vz,
        Syy=sym(C @ Szz @ C.T + vz @ C.T + C @ vz.T + vv),
        log_likelihood=gappy.loglik(data, fwd) @ weights,
    )


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
    """Arrange a cohort once, for any number of E-steps."""
    if cohort.complete and weights is None and isinstance(cohort.y, np.ndarray):
        data, n_t = _compressed(_Same(cohort))
        data = Complete(*(jnp.asarray(x, dtype) for x in data))
        return Prepared(data, jnp.ones_like(data.unit), jnp.asarray(n_t, dtype))
    w = jnp.ones(cohort.n_sequences, dtype) if weights is None else jnp.asarray(weights, dtype)
    data = arrange(cohort, dtype)
    if isinstance(data, Complete):
        return Prepared(data, w, data.inside @ w)
    return Prepared(*in_blocks(data, w), n_t=None)


def statistics(params: LDSParams, prepared: Prepared) -> ExpectedStatistics:
    """The E-step on a prepared cohort."""
    data, weights, n_t = prepared
    if isinstance(data, Complete):
        assert n_t is not None
        return complete_statistics(params, data, weights, n_t)
    parts = lax.map(lambda x: gappy_statistics(params, *x), (data, weights))
    return jax.tree.map(lambda x: x.sum(0), parts)


def expected_statistics(
    params: LDSParams, cohort: Cohort, weights: Array | None = None
) -> ExpectedStatistics:
    """E-step: the sums EM needs, over all sequences, each with its weight (1 by default).

    Weights are how a fold or a bootstrap asks for its own sums without a new cohort.
    """
    check_shapes(params, cohort)
    stats = _statistics(params, prepare(cohort, jnp.result_type(*params), weights))
    return explain_breakdown(stats, params, cohort)


_statistics = jax.jit(statistics)


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
