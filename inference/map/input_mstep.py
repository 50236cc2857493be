"""The part of the M-step that inputs add: B with π1, and C with D.

B u_t moves the first state, whose noise is V1, and all later ones, whose noise is Q: a regression with two noises. π1
is the column of B of one more input, which is 1 at the first step and 0 after. D belongs to the regression of y on z.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ...models import ExpectedStatistics, LDSParams
from ...models.conjugate import Conjugate, GroupLasso, Lasso
from ..constraints import Constraints

Normal = tuple[Array, Array]  # mean and precision of independent entries


def without_input(S10: Array, B: Any, s: ExpectedStatistics) -> Array:
    """Return Σ E[(z_t - B u_t) z_{t-1}'], which takes the place of S10 in the M-step of A."""
    return S10 if s.inputs is None else S10 - B @ s.inputs.S0u.T


def drives(
    s: ExpectedStatistics, params: LDSParams, priors: Conjugate, constraints: Constraints
) -> tuple[Array, Array]:
    """Return B and π1 at their joint maximum given the other parameters; one of them if the other is held.

    With X = (B, π1), of the states that move, Q⁻¹ X U₂ + V1⁻¹ X U₁ = Q⁻¹ S₂ + V1⁻¹ S₁, where U₁ and S₁ are sums over
    the first steps and U₂ and S₂ over the later ones.
    """
    A, pi1, B, u = params.A, params.pi1, params.B, s.inputs
    assert u is not None
    k, ridge = constraints.n_moving(params), priors.terms.get("pi1")
    at = jnp.array(constraints.columns("B", params.n_inputs) if constraints.free("B") else [], int)
    if constraints.free("pi1"):  # of the static states it follows from this alone
        pi1 = mean_of_first(s.z1 - B @ u.u1, s.n_sequences, params.V1, ridge)
    if at.size == 0:
        return B, pi1
    later = u.Szu - u.z1u - A @ u.S0u
    U2, S2 = (u.Suu - u.U11)[at][:, at], later[:k, at]
    U1, S1 = u.U11[at][:, at], u.z1u[:k, at]
    lasso = priors.terms.get("B")
    lasso = lasso if isinstance(lasso, Lasso | GroupLasso) else None
    normal = None if lasso else priors.terms.get("B")
    prior = _entries(normal, (k, len(at)), lambda x: x[:k, at])
    joint = constraints.free("pi1") and lasso is None
    if joint:
        U2, S2 = jnp.pad(U2, (0, 1)), jnp.pad(S2, [(0, 0), (0, 1)])
        U1 = jnp.block([[U1, u.u1[at, None]], [u.u1[None, at], s.n_sequences]])
        S1 = jnp.hstack([S1, s.z1[:k, None]])
        of_mean = _entries(ridge, (k, 1), lambda x: x[:k, None])
        prior = tuple(jnp.hstack(x) for x in zip(prior, of_mean, strict=True))
    else:
        S1 = S1 - jnp.outer(pi1[:k], u.u1[at])
    Qi, Vi = (jnp.linalg.inv(S[:k, :k]) for S in (params.Q, params.V1))
    mean, weight = prior
    H = jnp.einsum("ij,ab->iajb", Qi, U2) + jnp.einsum("ij,ab->iajb", Vi, U1)
    right = Qi @ S2 + Vi @ S1 + weight * mean
    if lasso is not None:  # then π1 given B, above at the next step
        X = lasso_solve(H.reshape(right.size, -1), right, lasso.part(k, at), B[:k, at])
        B = B.at[:k, at].set(X)
        if constraints.free("pi1"):
            pi1 = mean_of_first(s.z1 - B @ u.u1, s.n_sequences, params.V1, ridge)
        return B, pi1
    X = jnp.linalg.solve(H.reshape(right.size, -1) + jnp.diag(weight.ravel()), right.ravel())
    X = X.reshape(right.shape)
    B = B.at[:k, at].set(X[:, : len(at)])
    return B, pi1.at[:k].set(X[:, -1]) if joint else pi1


def lasso_solve(H: Array, right: Array, term: Lasso | GroupLasso, X: Array) -> Array:
    """Return the minimiser of ½ x'Hx - right'x + penalty of x, from X (k, p), by accelerated proximal steps.

    The steps are those of H scaled to a unit diagonal, and the momentum is dropped where it points uphill.
    """
    b, shape = right.ravel(), X.shape
    scale = term.common(jnp.diagonal(H).reshape(shape)).ravel()
    root = jnp.sqrt(scale)
    step = 1 / (scale * jnp.linalg.eigvalsh(H / (root[:, None] * root))[-1])

    def prox(x):
        x = x - step * (H @ x - b)
        return term.prox(x.reshape(shape), step.reshape(shape)).ravel()

    def body(state):
        x, y, t, n, _ = state
        new = prox(y)
        uphill = jnp.sum((y - new) / step * (new - x)) > 0
        t = jnp.where(uphill, 1.0, t)
        t_next = 0.5 * (1 + jnp.sqrt(1 + 4 * t**2))
        y = new + jnp.where(uphill, 0.0, (t - 1) / t_next) * (new - x)
        return new, y, t_next, n + 1, jnp.abs((new - prox(new)) * root).max()

    def unfinished(state):
        *_, n, residual = state
        return (residual > 1e-10 * jnp.abs(b / root).max()) & (n < 10_000)

    x = X.ravel()
    start = x, x, jnp.ones((), H.dtype), jnp.asarray(0), jnp.asarray(jnp.inf, H.dtype)
    return lax.while_loop(unfinished, body, start)[0].reshape(X.shape)


def loadings(
    s: ExpectedStatistics, params: LDSParams, priors: Conjugate, constraints: Constraints
) -> tuple[Array, Array]:
    """Return C and D at their joint maximum given R, by a regression of y on states and inputs; one if one is held."""
    C, D, R, u = params.C, params.D, params.R, s.inputs
    assert u is not None
    k = constraints.n_moving(params)
    n = k if constraints.free("C") else 0
    at = jnp.array(constraints.columns("D", params.n_inputs) if constraints.free("D") else [], int)
    if n + at.size == 0:
        return C, D
    # what is learned taken off, y less what is held is left
    C, D = C.at[:, :n].set(0.0), D.at[:, at].set(0.0)
    Syz = s.Syz - C @ s.Szz - D @ u.Szu.T
    Syu = u.Syu - C @ u.Szu - D @ u.Suu
    S = jnp.hstack([Syz[:, :n], Syu[:, at]])
    Szu = u.Szu[:n, at]
    M = jnp.block([[s.Szz[:n, :n], Szu], [Szu.T, u.Suu[at][:, at]]])
    prior = None
    if {"C", "D"} & priors.terms.keys():
        of_C = _entries(priors.terms.get("C"), (len(C), n), lambda x: x[:, :n])
        of_D = _entries(priors.terms.get("D"), (len(C), len(at)), lambda x: x[:, at])
        prior = tuple(jnp.hstack(x) for x in zip(of_C, of_D, strict=True))
    X = regressed(S, M, R, prior)
    return C.at[:, :n].set(X[:, :n]), D.at[:, at].set(X[:, n:])


def _entries(ridge: Any, shape: tuple[int, int], part: Any) -> Normal:
    """Return mean and precision of the entries that are learned, zeros without a prior."""
    if ridge is None:
        return jnp.zeros(shape), jnp.zeros(shape)
    return part(jnp.asarray(ridge.mean)), part(jnp.asarray(ridge.precision))


def regressed(S: Array, M: Array, R: Array, prior: Any) -> Array:
    """Return the C that maximises -½ tr R⁻¹ (C M C' - 2 C S') + log p(C), for a normal prior or none."""
    if prior is None:
        return right_divide(S, M)
    mean, weight = prior
    precision = jnp.linalg.inv(R)
    H = jnp.einsum("ij,kl->ikjl", precision, M).reshape(S.size, S.size)
    right = (precision @ S + weight * mean).ravel()
    return jnp.linalg.solve(H + jnp.diag(weight.ravel()), right).reshape(S.shape)


def mean_of_first(z1: Array, n: Array, V1: Array, ridge: Any) -> Array:
    """Return the π1 that maximises its part of the expected log-likelihood and its prior, a normal one or none."""
    if ridge is None:
        return z1 / n
    # (n V1⁻¹ + D) π1 = V1⁻¹ z1 + D m, multiplied by V1
    left = n * jnp.eye(len(V1), dtype=V1.dtype) + V1 * ridge.precision
    return jnp.linalg.solve(left, z1 + V1 @ (ridge.precision * ridge.mean))


def right_divide(S: Array, M: Array) -> Array:
    """Return S M^-1 for a symmetric M."""
    return jnp.linalg.solve(M, S.T).T
