"""The exact M-step: each parameter at its maximum given the others, so that the log posterior never falls."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Real

from ...models import ExpectedStatistics, LDSParams, Penalty
from ...models.conjugate import Conjugate
from ...models.linalg import definite, least_correlation
from ..constraints import Constraints
from ..proximal import kkt_residual, quadratic, solve
from .input_mstep import drives, loadings, mean_of_first, regressed, without_input


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


def floors_below(params: LDSParams, constraints: Constraints) -> Floors:
    """Return floors for a fit that starts at `params`; lower ones where a covariance there is nearly singular."""

    def floor(name):
        S = getattr(params, name)
        least = min(map(least_correlation, constraints.covariance(name, params).learned(S)))
        share = np.clip(0.1 * least, 1e-12, 1e-6)
        return jnp.asarray(np.diag(share * np.diagonal(S)), S.dtype)

    return Floors(*map(floor, Floors._fields))


def m_step(
    s: ExpectedStatistics,
    params: LDSParams,
    prior: Penalty,
    priors: Conjugate,
    floors: Floors,
    constraints: Constraints,
) -> LDSParams:
    """Return each parameter at its maximum given the others: a conditional M-step.

    A under the current Q by the proximal solver; then Q from the full quadratic form, which is right for every A:
    Q = (S11 - A S10' - S10 A' + A S00 A') / Σ(T_n - 1). The other parameters' priors add pseudo-observations. States
    that never change (own levels) have nothing to be learned but their mean and V1. With inputs, B and π1 come after A,
    and C and D are one regression.
    """
    A, C, Q, R, pi1, V1, B, D = params.eight
    free, k, u = constraints.free, constraints.n_moving(params), s.inputs

    def covariance(name, now, total, n):
        total, n = priors.pooled(name, total, n)
        shape = constraints.covariance(name, params)
        return shape.m_step(now, total, n, getattr(floors, name))

    if free("A"):
        g = quadratic(Q[:k, :k], s.S00[:k, :k], without_input(s.S10, B, s)[:k, :k])
        A = A.at[:k, :k].set(solve(g, prior, A[:k, :k]).A)
    if u is not None:
        B, pi1 = drives(s, LDSParams(A, C, Q, R, pi1, V1, B, D), priors, constraints)
    if free("Q"):
        total = s.S11 - _cross(A, s.S10) + A @ s.S00 @ A.T
        if u is not None:
            total = total + _input_part(B, u.Szu - u.z1u - A @ u.S0u, u.Suu - u.U11)
        Q = covariance("Q", Q, total, s.n_transitions)
    if u is not None:
        C, D = loadings(s, LDSParams(A, C, Q, R, pi1, V1, B, D), priors, constraints)
    elif free("C"):
        rest = s.Syz[:, :k] - C[:, k:] @ s.Szz[k:, :k]  # of y, less the sequences' own levels
        C = C.at[:, :k].set(_regressed(rest, s.Szz[:k, :k], R, priors.terms.get("C"), k))
    if free("R"):
        total = s.Syy - _cross(C, s.Syz) + C @ s.Szz @ C.T
        if u is not None:
            total = total + _input_part(D, u.Syu - C @ u.Szu, u.Suu)
        R = covariance("R", R, total, s.n_emissions)
    if free("pi1") and u is None:
        pi1 = mean_of_first(s.z1, s.n_sequences, V1, priors.terms.get("pi1"))
    if free("V1"):
        spread = s.M1 - _cross(pi1[:, None], s.z1[:, None])
        total = spread + s.n_sequences * jnp.outer(pi1, pi1)
        if u is not None:
            total = total + _input_part(B, u.z1u - jnp.outer(pi1, u.u1), u.U11)
        V1 = covariance("V1", V1, total, s.n_sequences)
    return LDSParams(A, C, Q, R, pi1, V1, B, D)


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
    parts, k = [jnp.zeros((), params.A.dtype)], constraints.n_moving(params)
    if constraints.free("A"):
        S10 = without_input(s.S10, params.B, s)
        g = quadratic(params.Q[:k, :k], s.S00[:k, :k], S10[:k, :k])
        parts.append(kkt_residual(g, prior, params.A[:k, :k]))
    steps = s.n_sequences + s.n_transitions
    if s.inputs is not None:
        size = jnp.sqrt(jnp.diagonal(s.inputs.Suu) / steps)
        for name, noise, n in (("B", params.Q[:k, :k], steps), ("D", params.R, s.n_emissions)):
            if constraints.free(name):
                move = getattr(new, name) - getattr(params, name)
                move = move[: len(noise)] * size / jnp.sqrt(jnp.diagonal(noise))[:, None]
                parts.append(jnp.abs(move * (steps / n)).max())
    if constraints.free("C"):
        noise, signal = jnp.diagonal(params.R), jnp.diagonal(s.Szz) / steps
        move = (new.C - params.C) * (steps / s.n_emissions)  # steps without a cell shorten it
        parts.append((jnp.abs(move) * jnp.sqrt(signal / noise[:, None])).max())
    for name in Floors._fields:
        if constraints.free(name):
            S = getattr(params, name)
            parts.append(jnp.abs(_whitened(_whitened(getattr(new, name) - S, S).T, S)).max())
    if constraints.free("pi1"):
        move = _whitened((new.pi1 - params.pi1)[:, None], params.V1)
        parts.append(jnp.linalg.norm(move))
    return jnp.stack(parts).max()


def _regressed(S: Array, M: Array, R: Array, ridge: Any, k: int) -> Array:
    """Return the C (d, k) that maximises -½ tr R⁻¹ (C M C' - 2 C S') + log p(C), for a normal prior or none."""
    return regressed(
        S, M, R, None if ridge is None else (ridge.mean[:, :k], ridge.precision[:, :k])
    )


def _whitened(x: Array, S: Array) -> Array:
    """Return L^-1 x with LL' = S plus a thousandth of its diagonal, so that nearly singular directions are bounded."""
    S = definite(S)
    L = jnp.linalg.cholesky(S + 1e-3 * jnp.diag(jnp.diagonal(S)))
    return jax.scipy.linalg.solve_triangular(L, x, lower=True)


def _cross(C: Array, S: Array) -> Array:
    """Return C S' + S C'."""
    return C @ S.T + S @ C.T


def _input_part(B: Array, S: Array, U: Array) -> Array:
    """Return what inputs change in a sum of squares Σ (x - B u)(x - B u)', from S = Σ x u' and U = Σ u u'."""
    return B @ U @ B.T - _cross(B, S)
