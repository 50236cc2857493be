"""Changes of basis z → Wz, which alter the parameters and not the distribution of y."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from .linalg import sym_last
from .params import LDSParams


def spectral_radius(A) -> jax.Array:
    """Return max_i |λ_i(A)|, of a matrix (..., l, l) or of the A of an `LDSParams`."""
    A = A.A if isinstance(A, LDSParams) else A
    return jnp.abs(jnp.linalg.eigvals(jnp.asarray(A))).max(axis=-1)


def is_stable(A) -> jax.Array:
    """Tell whether the spectral radius is below 1: the states then have a stationary distribution."""
    return spectral_radius(A) < 1


@jax.jit
def change_basis(params: LDSParams, W) -> LDSParams:
    """Return the same distribution over y in the states Wz, for an invertible W (l, l).

    A → WAW⁻¹,  C → CW⁻¹,  Q → WQW',  pi1 → W pi1,  V1 → WV1W',  B → WB.

    >>> params = LDSParams(np.diag([0.5, 1.0]), *(np.eye(2) for _ in range(3)), np.zeros(2), np.eye(2))
    >>> np.asarray(change_basis(params, np.array([[1.0, 1.0], [0.0, 1.0]])).A).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    return moved(jax.tree.map(jnp.asarray, params), jnp.asarray(W), jnp)


def moved(params: LDSParams, W: Any, xp: Any = np) -> LDSParams:
    """Return the parameters in the states Wz, in numpy or jax.numpy, for one W or for stacks (..., l, l)."""
    A, C, Q, R, pi1, V1, B, D = params.eight
    Wt = W.swapaxes(-1, -2)

    def right_divide(X):  # X W⁻¹
        return xp.linalg.solve(Wt, X.swapaxes(-1, -2)).swapaxes(-1, -2)

    return LDSParams(
        A=right_divide(W @ A),
        C=right_divide(C),
        Q=sym_last(W @ Q @ Wt),
        R=R,
        pi1=(W @ pi1[..., None])[..., 0],
        V1=sym_last(W @ V1 @ Wt),
        B=None if B is None else W @ B,
        D=D,
    )


@jax.jit
def canonical_scaling(params: LDSParams) -> LDSParams:
    """Return the same model with the scale, order and signs of its states normalised: z → c S Π z.

    Neither the likelihood nor ‖A‖₁ depends on them.

    - c > 0 makes the mean of diag(Q) one; it cancels in A.
    - Π orders the states by decreasing signal-to-noise Q_ii (C'R⁻¹C)_ii, which depends neither on
      the sign and scale of a state nor on the units of the channels. Ties (up to rounding) go by
      decreasing A_ii, then stay as they are.
    - S makes the largest entry (in magnitude) of each column of C positive, or pi1_i if all are 0.

    A's entries are only moved and flipped, so zeros stay exact. A second call changes nothing.
    """
    A, C, Q, R, pi1, V1, B, D = jax.tree.map(jnp.asarray, params).eight
    l, eps = A.shape[0], jnp.finfo(Q.dtype).eps

    mean = jnp.trace(Q) / l
    # Snapped to 1 within rounding: otherwise every further call would move the last digit.
    c = jnp.where(jnp.abs(mean - 1) <= 8 * l * eps, jnp.ones_like(mean), 1 / jnp.sqrt(mean))
    C, Q, pi1, V1 = C / c, Q * (c * c), pi1 * c, V1 * (c * c)

    # States that tie share a rank; otherwise rounding would decide between equal states.
    signal = jnp.diagonal(Q) * jnp.sum(C * jnp.linalg.solve(R, C), axis=0)
    falling = jnp.argsort(-signal)
    s = signal[falling]
    distinct = s[:-1] - s[1:] > jnp.sqrt(eps) * s[:-1]
    rank = jnp.zeros(l, dtype=int).at[falling[1:]].set(jnp.cumsum(distinct))
    order = jnp.lexsort((-jnp.diagonal(A), rank))

    lead = jnp.take_along_axis(C, jnp.argmax(jnp.abs(C), axis=0)[None, :], axis=0)[0]
    sign = jnp.where(jnp.where(lead == 0, pi1, lead) < 0, -jnp.ones_like(lead), 1)[order]
    signs = sign[:, None] * sign[None, :]

    return LDSParams(
        A=_plain_zeros(A[order][:, order] * signs),
        C=_plain_zeros(C[:, order] * sign[None, :]),
        Q=_plain_zeros(Q[order][:, order] * signs),
        R=R,
        pi1=_plain_zeros(pi1[order] * sign),
        V1=_plain_zeros(V1[order][:, order] * signs),
        B=None if B is None else _plain_zeros(c * B[order] * sign[:, None]),
        D=D,
    )


def whitened(params: LDSParams, F: np.ndarray) -> LDSParams:
    """Return the model in the states F⁻¹z, for a lower triangular F: those with E zz' = FF' get the identity.

    By triangular solves in numpy, which are more accurate than `moved` with an inverse of F.
    """
    A, C, Q, R, pi1, V1, B, D = params.eight

    def solve(X):
        return linalg.solve_triangular(F, X, lower=True)

    noises = solve(solve(Q).T).T, R, solve(pi1), solve(solve(V1).T).T
    return LDSParams(solve(A @ F), C @ F, *noises, None if B is None else solve(B), D)


def unit_noise(params: LDSParams) -> LDSParams:
    """Return the same model with states of one scale: the diagonal of Q is 1."""
    return change_basis(params, jnp.diag(1 / jnp.sqrt(jnp.diagonal(params.Q))))


def _plain_zeros(X):
    """Turn -0.0 into 0.0 (adding 0.0 would do so too, but a compiler may drop the addition)."""
    return jnp.where(X == 0, jnp.zeros_like(X), X)


def derivative(params: LDSParams, X: np.ndarray) -> LDSParams:
    """Return the derivative of every parameter along W = exp(tX) at t = 0, for a generator X (l, l)."""
    A, C, Q, R, pi1, V1, B, D = params.eight
    noises = X @ Q + Q @ X.T, 0 * R, X @ pi1, X @ V1 + V1 @ X.T
    inputs = (None, None) if B is None else (X @ B, 0 * D)
    return LDSParams(X @ A - A @ X, -C @ X, *noises, *inputs)
