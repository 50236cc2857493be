"""The sums that EM needs: expected sufficient statistics of a cohort under given parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..cohort import Cohort
from ..params import LDSParams
from . import complete as shared
from . import gappy
from .breakdown import explain_breakdown
from .complete import Complete
from .gappy import Gappy
from .likelihood import check_shapes
from .linalg import sym
from .prepare import Prepared, prepare


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
        log_likelihood=shared.total(data, fwd, weights, n_t),
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


def fisher_score(params: LDSParams, stats: ExpectedStatistics) -> LDSParams:
    """Gradient of the log-likelihood at `params` from the sums there: that of the expected complete one (Fisher).

    In numpy, on the host.
    """
    A, C, Q, R, pi1, V1 = (np.asarray(x, float) for x in params)
    s = ExpectedStatistics(*(np.asarray(x, float) for x in stats))  # type: ignore[arg-type]

    def by(S, total, n):  # ½ S⁻¹ (total - n S) S⁻¹
        return 0.5 * np.linalg.solve(S, np.linalg.solve(S, (total + total.T) / 2 - n * S).T)

    first = s.M1 + s.n_sequences * np.outer(pi1, pi1) - 2 * np.outer(s.z1, pi1)
    moved = s.S11 - 2 * s.S10 @ A.T + A @ s.S00 @ A.T
    seen = s.Syy - 2 * s.Syz @ C.T + C @ s.Szz @ C.T
    return LDSParams(
        A=np.linalg.solve(Q, s.S10 - A @ s.S00),
        C=np.linalg.solve(R, s.Syz - C @ s.Szz),
        Q=by(Q, moved, s.n_transitions),
        R=by(R, seen, s.n_emissions),
        pi1=np.linalg.solve(V1, s.z1 - s.n_sequences * pi1),
        V1=by(V1, first, s.n_sequences),
    )


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
