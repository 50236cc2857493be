"""The sums that EM needs: expected sufficient statistics of a cohort, and the score that follows from them."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real

from ..linalg import definite
from ..params import LDSParams


class ExpectedStatistics(NamedTuple):
    """Sums over sequences n and steps t of posterior moments, M_t = E[z_t z_t' | y], weighted by w_n.

    The paper's Σ_{t>=2} M_t is S11, Σ M_{t,t-1} is S10, Σ_{t>=2} M_{t-1} is S00. Missing cells enter by their
    conditional moments given the observed ones. At a step without any observed cell y_t is C z_t, without noise, and the
    step is not counted in n_emissions. For R this is as if the step were not there. C meets points that
    lie on C itself: its M-step is shorter, and the objective still never falls, since they add -½ |C_old z - C z|² in
    units of R to what EM maximises, which is 0 at C_old and nowhere above.
    """

    n_sequences: Real[Any, ""]  # Σ w_n
    n_transitions: Real[Any, ""]  # Σ w_n (T_n - 1)
    n_emissions: Real[Any, ""]  # Σ w_n (steps with an observed cell)
    z1: Real[Any, " l"]  # Σ E[z_1]
    M1: Real[Any, "l l"]  # Σ M_1
    S00: Real[Any, "l l"]
    S10: Real[Any, "l l"]
    S11: Real[Any, "l l"]
    Szz: Real[Any, "l l"]  # Σ M_t
    Syz: Real[Any, "d l"]  # Σ E[y_t z_t']
    Syy: Real[Any, "d d"]  # Σ E[y_t y_t']
    log_likelihood: Real[Any, ""]  # Σ w_n log p(y_n)


def fisher_score(params: LDSParams, stats: ExpectedStatistics) -> LDSParams:
    """Return the gradient of the log-likelihood at `params`, where `stats` were taken (Fisher's identity), in numpy."""
    A, C, Q, R, pi1, V1 = (np.asarray(x, float) for x in params)
    Q = definite(Q)  # states without noise have no score of their own
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
