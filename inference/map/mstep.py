"""The exact M-step: each parameter at its maximum given the others, so that the log posterior never falls."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Real

from ...models import ExpectedStatistics, LDSParams, Penalty
from ...models.linalg import least_correlation
from ..constraints import Constraints
from ..proximal import kkt_residual, quadratic, solve


class Floors(NamedTuple):
    """Matrices F that covariances S stay above (S - F is positive semi-definite), so that none becomes singular.

    F is a millionth of the variances at the start of a fit. It is not updated, and only moves with the basis, so that
    the objective still never falls.
    """

    Q: Real[Any, "l l"]
    R: Real[Any, "d d"]
    V1: Real[Any, "l l"]

    def moved(self, W: Array) -> "Floors":
        """Return the floors after z → Wz."""
        return Floors(W @ self.Q @ W.T, self.R, W @ self.V1 @ W.T)


def floors_below(params: LDSParams) -> Floors:
    """Return floors for a fit that starts at `params`; lower ones where a covariance there is nearly singular."""

    def floor(S):
        share = np.clip(0.1 * least_correlation(S), 1e-12, 1e-6)
        return jnp.asarray(np.diag(share * np.diagonal(S)), S.dtype)

    return Floors(*(floor(getattr(params, name)) for name in Floors._fields))


def m_step(
    s: ExpectedStatistics,
    params: LDSParams,
    prior: Penalty,
    floors: Floors,
    constraints: Constraints,
) -> LDSParams:
    """Return each parameter at its maximum given the others: a conditional M-step.

    A under the current Q by the proximal solver; then Q from the full quadratic form, which is right for every A:
    Q = (S11 - A S10' - S10 A' + A S00 A') / Σ(T_n - 1).
    """
    A, C, Q, R, pi1, V1 = params
    free = constraints.free

    def covariance(name, now, total, n):
        return constraints.covariance(name).m_step(now, total, n, getattr(floors, name))

    if free("A"):
        A = solve(quadratic(Q, s.S00, s.S10), prior, A).A
    if free("Q"):
        Q = covariance("Q", Q, s.S11 - _cross(A, s.S10) + A @ s.S00 @ A.T, s.n_transitions)
    if free("C"):
        C = right_divide(s.Syz, s.Szz)
    if free("R"):
        R = covariance("R", R, s.Syy - _cross(C, s.Syz) + C @ s.Szz @ C.T, s.n_emissions)
    if free("pi1"):
        pi1 = s.z1 / s.n_sequences
    if free("V1"):
        spread = s.M1 - _cross(pi1[:, None], s.z1[:, None])
        V1 = covariance("V1", V1, spread + s.n_sequences * jnp.outer(pi1, pi1), s.n_sequences)
    return LDSParams(A, C, Q, R, pi1, V1)


def stationarity(
    s: ExpectedStatistics,
    params: LDSParams,
    prior: Penalty,
    new: LDSParams,
    constraints: Constraints,
) -> Array:
    """Return the relative violation of the optimality conditions of the penalised likelihood, over all parameters.

    By Fisher's identity the gradient of the likelihood is that of the expected complete one. For A: the KKT residual of
    its M-step; for the others: how far their M-step would move them, in their own units.
    """
    parts = [jnp.zeros((), params.A.dtype)]
    if constraints.free("A"):
        parts.append(kkt_residual(quadratic(params.Q, s.S00, s.S10), prior, params.A))
    if constraints.free("C"):
        noise, signal = jnp.diagonal(params.R), jnp.diagonal(s.Szz) / s.n_emissions
        parts.append((jnp.abs(new.C - params.C) * jnp.sqrt(signal / noise[:, None])).max())
    for name in Floors._fields:
        if constraints.free(name):
            S = getattr(params, name)
            parts.append(jnp.abs(_whitened(_whitened(getattr(new, name) - S, S).T, S)).max())
    if constraints.free("pi1"):
        move = _whitened((new.pi1 - params.pi1)[:, None], params.V1)
        parts.append(jnp.linalg.norm(move))
    return jnp.stack(parts).max()


def right_divide(S: Array, M: Array) -> Array:
    """Return S M^-1 for a symmetric M."""
    return jnp.linalg.solve(M, S.T).T


def _whitened(x: Array, S: Array) -> Array:
    """Return L^-1 x with LL' = S plus a thousandth of its diagonal, so that nearly singular directions are bounded."""
    L = jnp.linalg.cholesky(S + 1e-3 * jnp.diag(jnp.diagonal(S)))
    return jax.scipy.linalg.solve_triangular(L, x, lower=True)


def _cross(C: Array, S: Array) -> Array:
    """Return C S' + S C'."""
    return C @ S.T + S @ C.T
