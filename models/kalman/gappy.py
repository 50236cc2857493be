"""Route for cohorts with gaps: a covariance recursion for each sequence, all of them together.

The sequences are the last axis of every array (see `linalg`). A missing cell has its row of C set to 0 and an
independent unit noise, so that it says nothing while the other channels of its step are used in full.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..params import LDSParams
from .linalg import batched as mul
from .linalg import left, sym, tr, whitener


class Gappy(NamedTuple):
    """Sequences with gaps. Padding counts as observed with y = 0, which keeps covariances bounded."""

    y: Array  # (T, d, N), 0 where missing or padding
    inside: Array  # (T, N), 1 up to the sequence's length, 0 after
    observed: Array  # (T, d, N), 1 where the cell was seen, and in the padding


class Forward(NamedTuple):
    """Kalman filter: z_t | y_{1:t} ~ N(mf_t, Pf_t)."""

    mf: Array  # (T, l, N)
    Pf: Array  # (T, l, l, N)
    Kt: Array  # (T, d, l, N), transposed gain K_t'
    W: Array  # (T, d, d, N), whitener of the innovations, W S W' = I
    e: Array  # (T, d, N), whitened innovations, 0 where missing and past the end
    logdet: Array  # (T, N), log |S_t| of the observed cells


def forward(params: LDSParams, data: Gappy) -> Forward:
    A, C, Q, R, pi1, V1 = params
    N = data.y.shape[-1]
    eye = jnp.eye(C.shape[0], dtype=C.dtype)[..., None]

    def step(carry, x):
        m, P = carry
        y, o, inside = lax.optimization_barrier(x)
        CP = left(C, P) * o[:, None]
        oo = o[:, None] * o
        S = sym(left(C, tr(CP))) * oo + R[..., None] * oo + eye * (1 - o)
        W, logdet = whitener(S)
        V = mul(W, CP)
        Kt = mul(tr(W), V)
        X = P - mul(tr(V), V)
        joseph = (left(C, X) - left(R, Kt)) * o[:, None]  # 0 but for rounding
        Pf = sym(X - mul(tr(joseph), Kt))
        v = (y - C @ m) * o
        mf = m + (Kt * v[:, None]).sum(0)
        e = (W * v).sum(1) * inside
        P_next = sym(left(A, tr(left(A, Pf)))) + Q[..., None]
        return (A @ mf, P_next), Forward(mf, Pf, Kt, W, e, logdet)

    m1, P1 = (jnp.broadcast_to(x[..., None], (*x.shape, N)) for x in (pi1, V1))
    return lax.scan(step, (m1, P1), (data.y, data.observed, data.inside))[1]


def loglik(data: Gappy, fwd: Forward) -> Array:
    """log p(y_n), (N,): the sum of -½ (e'e + log |S| + d_t log 2π) over the steps of the sequence."""
    constant = fwd.logdet + data.observed.sum(1) * jnp.log(2 * jnp.pi)
    return -0.5 * ((fwd.e**2).sum((0, 1)) + (constant * data.inside).sum(0))


def score(
    params: LDSParams, data: Gappy, fwd: Forward, weights: Array
) -> tuple[LDSParams, Array, tuple[Array, ...]]:
    """Σ_n w_n ∇ log p(y_n), the gradients in y, and the moments (z1, M1, S00, S11, Szz) of the states.

    The adjoint recursions and the score of `shared`, with every sum taken on the way.
    """
    A, C = params.A, params.C

    def outer(a, b):  # Σ_n w_n a b' of vectors (i, N), or of matrices (i, k, N) (j, k, N)
        return (a * weights).reshape(a.shape[0], -1) @ b.reshape(b.shape[0], -1).T

    def step(carry, x):
        r, Lam, goes_on, (_, M, *sums) = carry
        fwd, o, inside = lax.optimization_barrier(x)
        mf, Pf, Kt, W, e, _ = fwd
        s, LamA = left(A.T, r), tr(left(A.T, Lam))
        Lamf = sym(left(A.T, LamA))  # A'ΛA, what the future knows of z_t
        z = mf + (Pf * s).sum(1)
        u = (W * e[:, None]).sum(0) - (Kt * s).sum(1)
        KLam = mul(Kt, Lamf)
        D = mul(tr(W), W) * (o[:, None] * o * inside) + mul(KLam, tr(Kt))

        seen = o.max(0) * inside  # a step without an observed cell leaves the sums of C and R
        taken = mul(Pf, Lamf)

        def moment(w):
            return outer(z * w, z) + ((Pf * weights * w).sum(-1) - outer(taken * w, Pf))

        new = LDSParams(
            A=outer(r, z) - outer(LamA, Pf),
            C=outer(u, z) - (Kt * weights * inside).sum(-1) + outer(KLam, Pf),
            Q=0.5 * (outer(r, r) - (Lam * weights).sum(-1)),
            R=0.5 * (outer(u, u) - (D * weights).sum(-1)),
            pi1=jnp.zeros_like(params.pi1),
            V1=jnp.zeros_like(params.V1),
        )
        # M is the moment of the step after this one, and of the first step in the end
        sums = jax.tree.map(jnp.add, sums, [new, moment(goes_on), M, moment(seen)])
        now = z @ weights, moment(inside)
        DC = tr(left(C.T, D))
        Lam = sym(Lamf + left(C.T, DC) - 2 * left(C.T, KLam))
        return (s + C.T @ u, Lam, inside, (*now, *sums)), u

    A0 = jnp.zeros_like(A)
    zeros = jnp.zeros_like(params.pi1), A0, jax.tree.map(jnp.zeros_like, params), A0, A0, A0
    end = jnp.zeros_like(fwd.mf[0]), jnp.zeros_like(fwd.Pf[0]), jnp.zeros_like(weights), zeros
    xs = (fwd, data.observed, data.inside)
    (r, Lam, _, (z1, M1, grads, *others)), u = lax.scan(step, end, xs, reverse=True)
    V1 = 0.5 * (outer(r, r) - (Lam * weights).sum(-1))
    return grads._replace(pi1=r @ weights, V1=V1), -u * weights, (z1, M1, *others)
