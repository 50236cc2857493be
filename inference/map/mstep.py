"""The M-step: parameters from expected statistics, exact or to the letter of the paper's Algorithm 1."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...models import ExpectedStatistics, LDSParams, Prior
from ...models.kalman.linalg import least_correlation, sym
from ..proximal import (
    ProximalResult,
    kkt_residual,
    proximal_gradient,
    quadratic,
    solve,
    theorem1_step,
)


class Spec(NamedTuple):
    """What may move, and how: hashable, so that it is static under jit."""

    variant: str = "exact"  # or "paper"
    hold: tuple[str, ...] = ()  # parameters kept as they are
    diagonal: tuple[str, ...] = ()  # of Q, R, V1: kept diagonal
    unit_Q: bool = False  # Q is kept with a unit diagonal

    def free(self, name: str) -> bool:
        return name not in self.hold

    def sizes(self, l: int, d: int) -> dict[str, int]:
        """How many numbers each parameter is made of; A in full."""
        size = {"A": l * l, "C": d * l, "pi1": l}
        for name, k in (("Q", l), ("R", d), ("V1", l)):
            size[name] = k if name in self.diagonal else k * (k + 1) // 2
        return size

    @property
    def options(self) -> dict[str, Any]:
        """The options of `fit_map` that ask for the same again, from where Q is already as it should be."""
        Q = "unit diagonal" if self.unit_Q else "free"
        return {"hold": self.hold, "diagonal": self.diagonal, "Q": Q}


class Floors(NamedTuple):
    """Covariances stay above these matrices (S - F is positive semi-definite), so that none becomes singular.

    F is a millionth of the variances at the start of a fit. It stays as it is, and moves with the basis, so that the
    objective still never falls.
    """

    Q: Array  # (l, l)
    R: Array  # (d, d)
    V1: Array  # (l, l)


def floors_below(params: LDSParams) -> Floors:
    """Floors for a fit that starts here; less where the start is itself nearly singular."""

    def floor(S):
        share = np.clip(0.1 * least_correlation(S), 1e-12, 1e-6)
        return jnp.asarray(np.diag(share * np.diagonal(S)), S.dtype)

    return Floors(*(floor(getattr(params, name)) for name in Floors._fields))


def m_step(
    stats: ExpectedStatistics, params: LDSParams, prior: Prior, floors: Floors, spec: Spec
) -> tuple[LDSParams, ProximalResult]:
    return (_paper if spec.variant == "paper" else _exact)(stats, params, prior, floors, spec)


def _exact(s: ExpectedStatistics, params: LDSParams, prior: Prior, floors: Floors, spec: Spec):
    """Each parameter at its maximum given the others: a conditional M-step, so the posterior never falls.

    A under the current Q by the proximal solver; then Q from the full quadratic form, which holds for every A:
    Q = (S11 - A S10' - S10 A' + A S00 A') / Σ(T_n - 1).
    """
    A, C, Q, R, pi1, V1 = params
    g = quadratic(Q, s.S00, s.S10)
    if spec.free("A"):
        result = solve(g, prior, A)
        A = result.A
    else:
        result = ProximalResult(A, jnp.asarray(0), jnp.zeros((), A.dtype))
    if spec.free("Q"):
        total = s.S11 - _cross(A, s.S10) + A @ s.S00 @ A.T
        if spec.unit_Q:
            Q = _correlation(Q, sym(total) / s.n_transitions)
        else:
            Q = _covariance(total, s.n_transitions, "Q", floors, spec)
    if spec.free("C"):
        C = _right_divide(s.Syz, s.Szz)
    if spec.free("R"):
        R = _covariance(
            s.Syy - _cross(C, s.Syz) + C @ s.Szz @ C.T, s.n_emissions, "R", floors, spec
        )
    if spec.free("pi1"):
        pi1 = s.z1 / s.n_sequences
    if spec.free("V1"):
        spread = s.M1 - _cross(pi1[:, None], s.z1[:, None])
        spread = spread + s.n_sequences * jnp.outer(pi1, pi1)
        V1 = _covariance(spread, s.n_sequences, "V1", floors, spec)
    return LDSParams(A, C, Q, R, pi1, V1), result


def _paper(s: ExpectedStatistics, params: LDSParams, prior: Prior, floors: Floors, spec: Spec):
    """Algorithm 1, line by line, with its sums over all sequences (T - 1 is Σ(T_n - 1), and so on).

    Q and R are symmetrised, and floored where they lose definiteness, or nothing could go on: with a penalised A the
    formula of Q does not give a covariance.
    """
    A, C, Q, R, pi1, V1 = params
    # line 1: Ω without A, with Q from the previous A
    if spec.free("C"):
        C = _right_divide(s.Syz, s.Szz)
    if spec.free("Q"):
        Q = _covariance(s.S11 - A @ s.S10.T, s.n_transitions, "Q", floors, spec)
    if spec.free("R"):
        R = _covariance(s.Syy - C @ s.Syz.T, s.n_emissions, "R", floors, spec)
    if spec.free("pi1"):
        pi1 = s.z1 / s.n_sequences
    if spec.free("V1"):
        mean = s.z1 / s.n_sequences
        V1 = _covariance(
            s.M1 - s.n_sequences * jnp.outer(mean, mean), s.n_sequences, "V1", floors, spec
        )
    if not spec.free("A"):
        zero = jnp.zeros((), A.dtype)
        return LDSParams(A, C, Q, R, pi1, V1), ProximalResult(A, jnp.asarray(0), zero)
    # line 2: start at the least-squares A
    start = _right_divide(s.S10, s.S00)
    # lines 3 to 7: steps of Theorem 1's size (line 4), gradient (5), soft threshold (6), until convergence
    g = quadratic(Q, s.S00, s.S10)
    result = proximal_gradient(g, prior, start, theorem1_step(g))
    return LDSParams(result.A, C, Q, R, pi1, V1), result


def stationarity(
    s: ExpectedStatistics, params: LDSParams, prior: Prior, new: LDSParams, spec: Spec
) -> Array:
    """Relative violation of the optimality conditions of the penalised likelihood, over all parameters.

    By Fisher's identity the gradient of the likelihood is that of the expected complete one. A: the KKT residual of its
    M-step; the others: by how much their M-step would move them, in units of their own.
    """
    parts = [jnp.zeros((), params.A.dtype)]
    if spec.free("A"):
        parts.append(kkt_residual(quadratic(params.Q, s.S00, s.S10), prior, params.A))
    if spec.free("C"):
        noise, signal = jnp.diagonal(params.R), jnp.diagonal(s.Szz) / s.n_emissions
        parts.append((jnp.abs(new.C - params.C) * jnp.sqrt(signal / noise[:, None])).max())
    for name in ("Q", "R", "V1"):
        if spec.free(name):
            S = getattr(params, name)
            parts.append(jnp.abs(_whitened(_whitened(getattr(new, name) - S, S).T, S)).max())
    if spec.free("pi1"):
        move = _whitened((new.pi1 - params.pi1)[:, None], params.V1)
        parts.append(jnp.linalg.norm(move))
    return jnp.stack(parts).max()


def _whitened(x: Array, S: Array) -> Array:
    """L^-1 x with LL' = S; a direction with nearly no variance counts as one with a little."""
    L = jnp.linalg.cholesky(S + 1e-3 * jnp.diag(jnp.diagonal(S)))
    return jax.scipy.linalg.solve_triangular(L, x, lower=True)


def _cross(C: Array, S: Array) -> Array:
    return C @ S.T + S @ C.T


def _right_divide(S: Array, M: Array) -> Array:
    return jnp.linalg.solve(M, S.T).T


def _covariance(total: Array, n: Array, name: str, floors: Floors, spec: Spec) -> Array:
    """total / n, kept above its floor F: the exact maximiser among covariances that are."""
    F = getattr(floors, name)
    S = sym(total) / n
    if name in spec.diagonal:
        return jnp.diag(jnp.maximum(jnp.diagonal(S), jnp.diagonal(F)))

    def clip(S):
        L = jnp.linalg.cholesky(F)
        half = jax.scipy.linalg.solve_triangular(L, S, lower=True)
        values, vectors = jnp.linalg.eigh(jax.scipy.linalg.solve_triangular(L, half.T, lower=True))
        vectors = L @ vectors
        return sym(vectors * jnp.maximum(values, 1.0) @ vectors.T)

    above = jnp.isfinite(jnp.linalg.cholesky(S - F)).all()
    return lax.cond(above, lambda S: S, clip, S)


def _correlation(Q: Array, S: Array) -> Array:
    """A correlation matrix with no smaller likelihood than Q, for a residual covariance S.

    The natural gradient S - Q, less its part Q D Q (D diagonal) that would change the diagonal, with the best of a
    few lengths. Nothing moves only where log |Q| + tr Q^-1 S is stationary among correlation matrices, or at the floor
    of a millionth, below which no eigenvalue goes.
    """
    E = S - Q
    E = E - Q * jnp.linalg.solve(Q * Q, jnp.diagonal(E)) @ Q
    lengths = jnp.append(2.0 ** -jnp.arange(12), 0.0).astype(Q.dtype)
    E = E - jnp.diag(jnp.diagonal(E))  # 0 but for rounding

    def loss(length):
        chol = jnp.linalg.cholesky(Q + length * E)
        value = 2 * jnp.log(jnp.diagonal(chol)).sum()
        value = value + jnp.trace(jax.scipy.linalg.cho_solve((chol, True), S))
        floor = 1e-6 * jnp.eye(len(Q), dtype=Q.dtype)
        above = jnp.isfinite(jnp.linalg.cholesky(Q + length * E - floor)).all() | (length == 0)
        return jnp.where(jnp.isfinite(value) & above, value, jnp.inf)

    return sym(Q + lengths[jnp.argmin(jax.vmap(loss)(lengths))] * E)
