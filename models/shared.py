"""Route for cohorts without gaps: one covariance recursion serves every sequence.

All sequences start from the same prior, so gains and covariances at step t do not depend on the sequence,
whatever its length. Only the means do, and they go through the recursions as the N columns of a matrix.
"""

from typing import NamedTuple

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
    both = jnp.concatenate(  # (m_t, y_t) -> (m_{t+1}, e_t), one product a step
        [jnp.concatenate([L, AK], axis=-1), jnp.concatenate([-W @ C, W], axis=-1)], axis=-2
    )
    l = A.shape[0]

    def mean(m, x):
        both_t, y, inside = x
        out = mul(both_t, jnp.concatenate([m, y]))
        return out[:l], (m, out[l:] * inside)

    _, (m, e) = lax.scan(mean, pi1[:, None] * data.unit, (both, data.y, data.inside))
    return Forward(m, P, Pf, K, L, W, e, logdet)


def loglik(data: Complete, fwd: Forward) -> Array:
    """log p(y_n), (N,): the sum of -½ (e'e + log |S| + d log 2π) over the steps of the sequence."""
    constant = fwd.logdet + data.y.shape[1] * jnp.log(2 * jnp.pi)
    return -0.5 * ((fwd.e**2).sum((0, 1)) + constant @ data.inside)


def information(params: LDSParams, fwd: Forward, n_t: Array) -> Array:
    """Λ_0, ..., Λ_T (T + 1, l, l): what later observations say on z_{t+1}, summed over sequences.

    Λ_{t-1} = n_t C'S_t^-1 C + L_t' Λ_t L_t with n_t = Σ_n w_n 1[T_n >= t]. The recursion is affine, so the
    sum over sequences that end at different times obeys it too, and one pass serves all.
    """
    WC = fwd.W @ params.C

    def step(Lam, x):
        L, drive = x
        before = sym(drive + mul(mul(L.T, Lam), L))
        return before, before

    end = jnp.zeros_like(params.A)
    _, Lam = lax.scan(step, end, (fwd.L, n_t[:, None, None] * WC.mT @ WC), reverse=True)
    return jnp.concatenate([Lam, end[None]])


def score(
    params: LDSParams, data: Complete, fwd: Forward, weights: Array
) -> tuple[LDSParams, Array]:
    """Σ_n w_n ∇ log p(y_n) by Fisher's identity, and the gradients in y, (T, d, N).

    r_{t-1} = C'S_t^-1 v_t + L_t' r_t gives the smoothed disturbances E[e_{t+1} | y] = Q r_t and
    E[v_t | y] = R u_t, and with them ∂/∂A = Q^-1 E Σ e_{t+1} z_t' and its like, where the inverses of Q and R
    cancel. The pass over the sequences forms only the moments of (r_t, e_t) with (r_t, e_t, m_t), in
    which u_t and z_t are linear.
    """
    A, P, Pf, K, L, W = params.A, fwd.P, fwd.Pf, fwd.K, fwd.L, fwd.W
    AK = A @ K
    l, d = AK.shape[1:]
    back = jnp.concatenate([L.mT, (W @ params.C).mT], axis=-1)  # r_{t-1} = back (r_t, e_t)

    def step(r, x):
        e, m, back_t = x
        stack = jnp.concatenate([r, e, m])
        re = stack[: l + d]
        return mul(back_t, re), (r, (re * weights) @ stack.T)

    r0, (r, G) = lax.scan(step, jnp.zeros_like(fwd.m[0]), (fwd.e, fwd.m, back), reverse=True)
    re_re, re_m = G[..., : l + d], G[..., l + d :]
    re_z = re_m + re_re @ back.mT @ P  # z_t = m_t + P_t r_{t-1}
    u = jnp.concatenate([-AK.mT, W.mT], axis=-1)  # u_t = u (r_t, e_t)

    n_t = data.inside @ weights
    Lam = information(params, fwd, n_t)
    Lam0, Lam, n_t = Lam[0], Lam[1:], n_t[:, None, None]
    KLam = AK.mT @ Lam @ A
    grads = LDSParams(
        A=(re_z[:, :l] - Lam @ A @ Pf).sum(0),
        C=(u @ re_z - n_t * K.mT + KLam @ Pf).sum(0),
        Q=0.5 * (re_re[:, :l, :l] - Lam).sum(0),
        R=0.5 * (u @ re_re @ u.mT - n_t * W.mT @ W - KLam @ K).sum(0),
        pi1=r0 @ (weights * data.unit),
        V1=0.5 * (r0 * weights @ r0.T - Lam0),
    )
    return grads, (AK.mT @ r - W.mT @ fwd.e) * weights


def moments(
    params: LDSParams, data: Complete, fwd: Forward, weights: Array, n_t: Array
) -> tuple[Array, ...]:
    """The sums z1, M1, S00, S10, Szz, Syz of `ExpectedStatistics`.

    n_t (T,) counts the sequences, with their weights, that reach step t.
    """
    A, Pf = params.A, fwd.Pf
    APf = A @ Pf
    l, d = A.shape[0], data.y.shape[1]
    drive = (fwd.W @ params.C).mT @ fwd.e
    mf = fwd.m + fwd.P @ drive  # E[z_t | y_{1:t}]

    def step(carry, x):
        r, z_next, total = carry
        mf_t, APf_t, L, drive_t, inside, y = x
        # m_t + P_t r_{t-1} is the same, but rounds to the size of P_1 = V1, which may be large
        z = (mf_t + mul(APf_t.T, r)) * inside  # 0 past the end
        total = total + jnp.concatenate([z, z_next, y]) @ (z * weights).T
        return (drive_t + mul(L.T, r), z, total), None

    zero = jnp.zeros_like(fwd.m[0])
    end = (zero, zero, jnp.zeros((2 * l + d, l), zero.dtype))
    xs = (mf, APf, fwd.L, drive, data.inside, data.y)
    (_, z1, total), _ = lax.scan(step, end, xs, reverse=True)
    zz, z10, yz = total[:l], total[l : 2 * l], total[2 * l :]

    # S00 leaves out the last state of each sequence
    last, n = data.inside.sum(0).astype(int) - 1, jnp.arange(data.unit.size)
    z_last = mf[last, :, n]  # (N, l)

    # Cov[z_t | y] summed over the sequences that reach t; one that ends there has no part in Λ_t
    Lam = information(params, fwd, n_t)[1:]
    n_t = n_t[:, None, None]
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
