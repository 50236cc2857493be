"""Route for cohorts without gaps: one covariance recursion serves every sequence.

All sequences start from the same prior, so gains and covariances at step t do not depend on the sequence,
whatever its length. Only the means do, and they go through the recursions as the N columns of a matrix.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from .linalg import small_product as mul
from .linalg import sym, whitener
from .params import LDSParams


class Complete(NamedTuple):
    """Sequences without gaps. Padding holds 0 and is left out of every sum by `inside`.

    `unit` is 1 for a sequence; the pseudo-sequences of `statistics.compress` start at unit · π1.
    """

    y: Array  # (T, d, N)
    inside: Array  # (T, N), 1 up to the sequence's length, 0 after
    unit: Array  # (N,)


class Forward(NamedTuple):
    """Kalman filter: z_t | y_{1:t-1} ~ N(m_t, P_t), z_t | y_{1:t} has covariance Pf_t, gain K_t."""

    m: Array  # (T, l, N)
    P: Array  # (T, l, l)
    Pf: Array  # (T, l, l)
    K: Array  # (T, l, d)
    L: Array  # (T, l, l), A - A K C: m_{t+1} = L_t m_t + A K_t y_t
    W: Array  # (T, d, d), whitener of the innovations, W S W' = I
    e: Array  # (T, d, N), whitened innovations W (y - C m), 0 past the end
    logdet: Array  # (T,), log |S_t|


def forward(params: LDSParams, data: Complete) -> Forward:
    """One Riccati pass, then the means of all sequences."""
    A, C, Q, R, pi1, V1 = params

    def riccati(P, _):
        CP = mul(C, P)
        W, logdet = whitener(sym(mul(CP, C.T) + R))
        V = mul(W, CP)
        K = mul(V.T, W)
        X = P - mul(V.T, V)
        # the last term is 0 but for rounding (Joseph): it keeps Pf definite when R is nearly singular
        Pf = sym(X - mul(mul(X, C.T) - mul(K, R), K.T))
        return sym(mul(mul(A, Pf), A.T) + Q), (P, Pf, K, W, logdet)

    _, (P, Pf, K, W, logdet) = lax.scan(riccati, V1, length=data.y.shape[0])
    AK = A @ K
    L = A - AK @ C

    def mean(m, x):
        L_t, AKy_t = x
        return mul(L_t, m) + AKy_t, m

    _, m = lax.scan(mean, pi1[:, None] * data.unit, (L, AK @ data.y))
    e = (W @ data.y - W @ C @ m) * data.inside[:, None]
    return Forward(m, P, Pf, K, L, W, e, logdet)


def loglik(data: Complete, fwd: Forward) -> Array:
    """log p(y_n), (N,): the sum of -½ (e'e + log |S| + d log 2π) over the steps of the sequence."""
    constant = fwd.logdet + data.y.shape[1] * jnp.log(2 * jnp.pi)
    return -0.5 * ((fwd.e**2).sum((0, 1)) + constant @ data.inside)


def backward(
    params: LDSParams,
    data: Complete,
    fwd: Forward,
    n_t: Array,
    tally: Callable[..., tuple[Array, Any]],
    inputs: Any,
    shape: tuple[int, int],
) -> tuple[Any, Any]:
    """The adjoint pass, with a sum over t and n on the way: (r_0, Λ_0, z_1, sum), (Λ_{1:T}, kept).

    r_{t-1} = C'S_t^-1 v_t + L_t' r_t,    Λ_{t-1} = n_t C'S_t^-1 C + L_t' Λ_t L_t,
    with n_t = Σ_n w_n 1[T_n >= t], and E[z_t | y] = m_t + P_t r_{t-1}. Λ is affine, so its sum over sequences that end
    at different times obeys the same recursion, and one pass serves all.
    `tally(inputs_t, r_t, z_t, z_{t+1})` gives the matrix to sum and what to keep; a state past the end of its
    sequence is 0.
    """
    WC = fwd.W @ params.C

    def step(carry, x):
        r, Lam, z_next, total = carry
        m, P, L, dr, dLam, inside, inputs_t = x
        r_before = dr + mul(L.T, r)
        z = (m + mul(P, r_before)) * inside
        Lam_before = sym(dLam + mul(mul(L.T, Lam), L))
        add, keep = tally(inputs_t, r, z, z_next)
        return (r_before, Lam_before, z, total + add), (Lam, keep)

    zero = jnp.zeros_like(fwd.m[0])
    end = (zero, jnp.zeros_like(params.A), zero, jnp.zeros(shape, zero.dtype))
    drive = WC.mT @ fwd.e, n_t[:, None, None] * WC.mT @ WC
    return lax.scan(step, end, (fwd.m, fwd.P, fwd.L, *drive, data.inside, inputs), reverse=True)


def score(
    params: LDSParams, data: Complete, fwd: Forward, weights: Array
) -> tuple[LDSParams, Array]:
    """Σ_n w_n ∇ log p(y_n) by Fisher's identity, and the gradients in y, (T, d, N).

    ∂/∂A = Q^-1 E Σ e_{t+1} z_t' and its like; the inverses of Q and R are cancelled against the smoothed
    disturbances E[e_{t+1} | y] = Q r_t and E[v_t | y] = R u_t, so that none is left.
    """
    A, Pf, K = params.A, fwd.Pf, fwd.K
    AK = A @ K
    l, d = AK.shape[1:]

    def tally(x, r, z, z_next):
        We, AK_t = x
        u = We - mul(AK_t.T, r)
        ru = jnp.concatenate([r, u])
        return (ru * weights) @ jnp.concatenate([ru, z]).T, u

    We = fwd.W.mT @ fwd.e
    n_t = data.inside @ weights
    shape = (l + d, l + d + l)
    start, (Lam, u) = backward(params, data, fwd, n_t, tally, (We, AK), shape)
    r0, Lam0, _, total = start
    rr, rz, uu, uz = total[:l, :l], total[:l, l + d :], total[l:, l : l + d], total[l:, l + d :]
    KLam = AK.mT @ Lam @ A
    n_t = n_t[:, None, None]
    grads = LDSParams(
        A=rz - (Lam @ A @ Pf).sum(0),
        C=uz - (n_t * K.mT - KLam @ Pf).sum(0),
        Q=0.5 * (rr - Lam.sum(0)),
        R=0.5 * (uu - (n_t * fwd.W.mT @ fwd.W + KLam @ K).sum(0)),
        pi1=r0 @ (weights * data.unit),
        V1=0.5 * (r0 * weights @ r0.T - Lam0),
    )
    return grads, -u * weights


def moments(
    params: LDSParams, data: Complete, fwd: Forward, weights: Array, n_t: Array
) -> tuple[Array, ...]:
    """The sums z1, M1, S00, S10, Szz, Syz of `ExpectedStatistics`.

    n_t (T,) counts the sequences, with their weights, that reach step t.
    """
    A, Pf = params.A, fwd.Pf
    l, d = A.shape[0], data.y.shape[1]

    def tally(y, r, z, z_next):
        return jnp.concatenate([z, z_next, y]) @ (z * weights).T, None

    shape = (2 * l + d, l)
    (_, _, z1, total), (Lam, _) = backward(params, data, fwd, n_t, tally, data.y, shape)
    zz, z10, yz = total[:l], total[l : 2 * l], total[2 * l :]

    # S00 leaves out the last state of each sequence, E[z_T | y] = m_T + P_T C'S_T^-1 v_T
    last, n = data.inside.sum(0).astype(int) - 1, jnp.arange(data.unit.size)
    PCW = fwd.P @ (fwd.W @ params.C).mT
    z_last = fwd.m[last, :, n] + (PCW[last] @ fwd.e[last, :, n, None])[..., 0]  # (N, l)

    # Cov[z_t | y] summed over the sequences that reach t; one that ends there has no part in Λ_t
    n_t = n_t[:, None, None]
    APf = A @ Pf
    LamAPf = Lam @ APf
    taken = APf.mT @ LamAPf
    cov = n_t * Pf - taken
    cov00 = (n_t[1:] * Pf[:-1] - taken[:-1]).sum(0)
    cov10 = (n_t[1:] * APf[:-1] - fwd.P[1:] @ LamAPf[:-1]).sum(0)
    return (
        z1 @ (weights * data.unit),
        z1 * weights @ z1.T + cov[0],
        zz - z_last.T * weights @ z_last + cov00,
        z10 + cov10,
        zz + cov.sum(0),
        yz,
    )
