"""Likelihood, score and E-step of cohorts with gaps: a covariance recursion for each sequence, all of them together.

The sequences are the last axis of every array (see `linalg`). A missing cell has its row of C set to 0 and an
independent unit noise, so that it has no effect while the other channels of its step are used in full.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from ..linalg import batched as mul
from ..linalg import left, sym, tr, whitener
from ..params import LDSParams
from .derivative import fisher_rule, summed_rule
from .statistics import ExpectedStatistics, StateMoments, statistics_of_score


class Gappy(NamedTuple):
    """Sequences with gaps, ready for the E-step: B blocks of N sequences, which the functions below take one by one.

    Padding counts as observed with y = 0, which keeps covariances bounded.
    """

    y: Real[Any, "*b T d N"]  # 0 where missing or padding
    inside: Real[Any, "*b T N"]  # 1 up to the sequence's length, 0 after
    observed: Real[Any, "*b T d N"]  # 1 where the cell was seen, and in the padding
    weights: Real[Any, "*b N"]  # how much each sequence counts in a sum

    def sequences(self, params: LDSParams, rule: bool = True) -> Array:
        """Return log p(y_n | Ω) of each sequence, (B N,); with rule=False JAX differentiates through the scan."""
        one = block_log_likelihood if rule else lambda params, x: loglik(x, forward(params, x))
        return lax.map(lambda block: one(params, block), self).reshape(-1)

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return summed(params, self)

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return jax.grad(self.log_likelihood)(params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        parts = lax.map(lambda block: _statistics(params, block), self)
        return jax.tree.map(lambda x: x.sum(0), parts)


class Forward(NamedTuple):
    """Result of the Kalman filter: z_t | y_{1:t} ~ N(mf_t, Pf_t)."""

    mf: Real[Array, "*T l N"]
    Pf: Real[Array, "*T l l N"]
    Kt: Real[Array, "*T d l N"]  # transposed gain K_t'
    W: Real[Array, "*T d d N"]  # whitener of the innovations, W S W' = I
    e: Real[Array, "*T d N"]  # whitened innovations, 0 where missing and past the end
    logdet: Real[Array, "*T N"]  # log |S_t| of the observed cells


def observe(params: LDSParams, m: Array, P: Array, y: Array, o: Array, inside: Array) -> Forward:
    """Update the predicted states N(m, P) of a step by its observed cells."""
    C, R = params.C, params.R
    eye = jnp.eye(C.shape[0], dtype=C.dtype)[..., None]
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
    return Forward(m + mul(tr(Kt), v), Pf, Kt, W, mul(W, v) * inside, logdet)


def first_states(params: LDSParams, N: int) -> tuple[Array, Array]:
    """Return mean and covariance of the first state for N sequences."""
    m, P = (jnp.broadcast_to(x[..., None], (*x.shape, N)) for x in (params.pi1, params.V1))
    return m, P


def forward(params: LDSParams, data: Gappy) -> Forward:
    """Filter the sequences of a block, each with covariances of its own."""
    A, Q = params.A, params.Q

    def step(carry, x):
        fwd = observe(params, *carry, *x)
        P_next = sym(left(A, tr(left(A, fwd.Pf)))) + Q[..., None]
        return (A @ fwd.mf, P_next), fwd

    start = first_states(params, data.y.shape[-1])
    return lax.scan(step, start, (data.y, data.observed, data.inside))[1]


def loglik(data: Any, fwd: Forward) -> Array:
    """Return log p(y_n), (N,): the sum of -½ (e'e + log |S| + d_t log 2π) over the steps of the sequence."""
    constant = fwd.logdet + data.observed.sum(1) * jnp.log(2 * jnp.pi)
    return -0.5 * ((fwd.e**2).sum((0, 1)) + (constant * data.inside).sum(0))


def adjoint(
    params: LDSParams, fwd: Forward, o: Array, inside: Array, s: Array, Lamf: Array
) -> tuple[Array, Array, Array, Array, tuple[Array, Array]]:
    """Return z, u, K'Λ_f and D of a step, and r and Λ before it, from s = A'r and Λ_f = A'ΛA after it.

    E[z_t | y] = z, E[v_t | y] = R u and Cov[v_t | y] = R - R D R.
    """
    C = params.C
    mf, Pf, Kt, W, e, _ = fwd
    z = mf + mul(Pf, s)
    u = mul(tr(W), e) - mul(Kt, s)
    KLam = mul(Kt, Lamf)
    D = mul(tr(W), W) * (o[:, None] * o * inside) + mul(KLam, tr(Kt))
    DC = tr(left(C.T, D))
    return z, u, KLam, D, (s + C.T @ u, sym(Lamf + left(C.T, DC - 2 * KLam)))


def score(params: LDSParams, data: Gappy, fwd: Forward, weights: Array) -> tuple[LDSParams, Array]:
    """Return Σ_n w_n ∇ log p(y_n), and the gradients in y, (T, d, N)."""
    return backward(params, data, fwd, weights)[:2]


def backward(
    params: LDSParams, data: Gappy, fwd: Forward, weights: Array, states: bool = False
) -> tuple[LDSParams, Array, Any]:
    """Return the score, the gradients in y, and the moments (z1, M1, Szz) of the states, or None if not asked for.

    The adjoint recursions and the score are those of `shared_passes`. All sums are taken during the recursion, by three
    products a step: a call costs more than the arithmetic of a small one.
    """
    A = params.A
    d, l = params.C.shape

    def M_sum(means, by_Pf, alone):  # Σ w (z z' + Pf - Pf A'ΛA Pf)
        return means[l + d :, l + d :] + alone[-l * l :].reshape(l, l) - by_Pf[l + d :]

    def step(carry, x):
        r, Lam, (_, M1, *sums) = carry
        fwd, o, inside = x
        Pf, Kt = fwd.Pf, fwd.Kt
        s, LamA = left(A.T, r), tr(left(A.T, Lam))
        Lamf = sym(left(A.T, LamA))  # A'ΛA, the information of later steps on z_t
        z, u, KLam, D, before = adjoint(params, fwd, o, inside, s, Lamf)
        w = weights * inside  # r, u, Λ and D are 0 past the end
        means = jnp.concatenate([r, u, z])
        means = (means * w) @ means.T
        by_Pf = jnp.concatenate([LamA, KLam, mul(Pf, Lamf)] if states else [LamA, KLam]) * w
        by_Pf = by_Pf.reshape(by_Pf.shape[0], -1) @ Pf.reshape(l, -1).T
        alone = jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in (Lam, D, Kt, Pf)]) @ w
        # after the scan these are those of the first step
        first = z @ w, M_sum(means, by_Pf, alone) if states else M1
        now = *first, *jax.tree.map(jnp.add, sums, [means, by_Pf, alone])
        return (*before, now), u

    n, rows = 2 * l + d, (2 * l if states else l) + d
    shapes = l, (l, l), (n, n), (rows, l), 2 * l * l + d * d + d * l
    sums = tuple(jnp.zeros(shape, A.dtype) for shape in shapes)
    end = jnp.zeros_like(fwd.mf[0]), jnp.zeros_like(fwd.Pf[0]), sums
    xs = (fwd, data.observed, data.inside)
    (r, Lam, (z1, M1, means, by_Pf, alone)), u = lax.scan(step, end, xs, reverse=True)
    Lam_sum, D, Kt, _ = jnp.split(alone, np.cumsum([l * l, d * d, d * l]))
    grads = LDSParams(
        A=means[:l, l + d :] - by_Pf[:l],
        C=means[l : l + d, l + d :] - Kt.reshape(d, l) + by_Pf[l : l + d],
        Q=0.5 * (means[:l, :l] - Lam_sum.reshape(l, l)),
        R=0.5 * (means[l : l + d, l : l + d] - D.reshape(d, d)),
        pi1=r @ weights,
        V1=0.5 * ((r * weights) @ r.T - Lam @ weights),
    )
    found = (z1, M1, M_sum(means, by_Pf, alone)) if states else None
    return grads, -u * weights, found


def _statistics(params: LDSParams, data: Gappy) -> ExpectedStatistics:
    """Return the sums of a block."""
    weights = data.weights
    fwd = forward(params, data)
    grads, _, (z1, M1, Szz) = backward(params, data, fwd, weights, states=True)
    end = jnp.maximum(data.inside.sum(0).astype(int) - 1, 0), ..., jnp.arange(weights.size)
    m, P = fwd.mf[end], fwd.Pf[end]  # (N, l), (N, l, l): nothing later is known of the last state
    last = (m.T * weights) @ m + jnp.einsum("n,nij->ij", weights, P)
    n_transitions = data.inside[1:].sum(0) @ weights
    n_emissions = (data.inside * data.observed.max(1)).sum(0) @ weights
    n = weights.sum(), n_transitions, n_emissions
    states = StateMoments(n, z1, M1, Szz, last)
    return statistics_of_score(params, grads, states, loglik(data, fwd) @ weights)


def summed_over_blocks(forward: Callable, backward: Callable) -> Callable[[Any, Any], Any]:
    """Return Σ_n w_n log p(y_n) as a function of parameters and data in blocks, with its gradient in the same pass."""

    def value(params, data):
        return lax.map(lambda x: loglik(x, forward(params, x)) @ x.weights, data).sum()

    def value_and_score(params, data):
        def block(x):
            fwd = forward(params, x)
            return loglik(x, fwd) @ x.weights, backward(params, x, fwd, x.weights)[0]

        return jax.tree.map(lambda x: x.sum(0), lax.map(block, data))

    return summed_rule(value, value_and_score)


summed = summed_over_blocks(forward, backward)
block_log_likelihood = fisher_rule(forward, loglik, score)
