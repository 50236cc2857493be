"""Sequences with whole steps missing: the filter goes from one kept step to the next, over g steps at once.

z_{t+g} given z_t is N(A_g z_t, Q_g) with A_g = A A_{g-1} and Q_g = A Q_{g-1} A' + Q, tabulated for g = 0, …, G. Kept
are the first and the last step of a sequence, those with an observed cell, and of a longer gap every G-th. The score
in A_g and Q_g gives that in A and Q by the derivative of the table. The states in between need no recursion: with
ρ = Q_g⁻¹ (z_{t+g} - A_g z_t), whose moments the score has, E[z_{t+j} | z_t, ρ] = A_j z_t + Q_j A_{g-j}' ρ.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from ..linalg import batched as mul
from ..linalg import sym, tr
from ..params import LDSParams
from .derivative import fisher_rule
from .gappy import Forward, adjoint, first_states, loglik, observe, summed_over_blocks
from .statistics import ExpectedStatistics, StateMoments, statistics_of_score

MOST = 8  # steps from one kept step to the next, at most


class Skipping(NamedTuple):
    """Sequences with gaps, their kept steps alone, ready for the E-step: blocks as of `Gappy`."""

    y: Real[Array, "*b T d N"]  # 0 where missing or padding
    inside: Real[Array, "*b T N"]  # 1 up to the last kept step, 0 after
    observed: Real[Array, "*b T d N"]  # 1 where the cell was seen, and in the padding
    weights: Real[Array, "*b N"]  # how much each sequence counts in a sum
    hop: Real[Array, "*b T N"]  # steps to the next kept one, 0 at the last

    def sequences(self, params: LDSParams) -> Array:
        """Return log p(y_n | Ω) of each sequence, (B N,)."""
        return lax.map(lambda block: each(params, block), self).reshape(-1)

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


class Hops(NamedTuple):
    """The law of z_{t+g} given z_t, or the score in it: of one g, or for g = 0, …, G along the first axis."""

    A: Real[Array, "*G l l"]
    Q: Real[Array, "*G l l"]


def hops(params: LDSParams) -> Hops:
    """Return the law of up to `MOST` steps at once."""
    A, Q = params.A, params.Q

    def step(law, _):
        return Hops(A @ law.A, sym(A @ law.Q @ A.T) + Q), law

    start = Hops(jnp.eye(A.shape[0], dtype=A.dtype), jnp.zeros_like(Q))
    return lax.scan(step, start, length=MOST + 1)[1]


def _one_hot(hop: Array) -> Array:
    """Return which hop each sequence makes, (G + 1, N)."""
    return (hop == jnp.arange(MOST + 1)[:, None]).astype(hop.dtype)


def _of_each(table: Array, one_hot: Array) -> Array:
    """Return the matrices (l, l, N) of the sequences' hops."""
    G, l, _ = table.shape
    return (table.reshape(G, l * l).T @ one_hot).reshape(l, l, -1)


def forward(params: LDSParams, data: Skipping) -> Forward:
    """Filter the kept steps of a block of sequences."""
    law = hops(params)

    def step(carry, x):
        *seen, hop = x
        fwd = observe(params, *carry, *seen)
        g = _one_hot(hop)
        A = _of_each(law.A, g)
        P_next = sym(mul(A, tr(mul(A, fwd.Pf)))) + _of_each(law.Q, g)
        return (mul(A, fwd.mf), P_next), fwd

    start = first_states(params, data.y.shape[-1])
    return lax.scan(step, start, (data.y, data.observed, data.inside, data.hop))[1]


class Sums(NamedTuple):
    """What the backward pass sums: by hop, (G + 1, l, l), or over all steps."""

    A: Real[Array, "*G l l"]  # score in A_g: Σ E[ρ z_t']
    Q: Real[Array, "*G l l"]  # twice that in Q_g
    M: Real[Array, "*G l l"]  # Σ M_t
    C: Real[Array, "d l"]
    R: Real[Array, "d d"]  # twice the score


def backward(
    params: LDSParams, data: Skipping, fwd: Forward, weights: Array
) -> tuple[LDSParams, Array, tuple[Sums, Array, Array]]:
    """Return the score, the gradients in y, and the sums, Σ E[z_1] and Σ M_1."""
    law, to_params = jax.vjp(hops, params)
    d, l = params.C.shape

    def step(carry, x):
        r, Lam, (sums, *_) = carry
        fwd, o, inside, hop = x
        g, w = _one_hot(hop), weights * inside
        A = _of_each(law.A, g)
        s, LamA = mul(tr(A), r), mul(Lam, A)
        Lamf = sym(mul(tr(A), LamA))
        z, u, KLam, D, before = adjoint(params, fwd, o, inside, s, Lamf)

        def outer(a, b):
            return a[:, None] * b

        Pf = fwd.Pf
        M = outer(z, z) + Pf - mul(mul(Pf, Lamf), Pf)
        of_hop = jnp.concatenate([outer(r, z) - mul(LamA, Pf), outer(r, r) - Lam, M])
        of_hop = (of_hop.reshape(-1, of_hop.shape[-1]) * w) @ g.T  # (3 l², G + 1)
        others = jnp.concatenate([outer(u, z) - fwd.Kt + mul(KLam, Pf), outer(u, u) - D], axis=1)
        others = others @ w  # (d, l + d)
        new = Sums(*of_hop.reshape(3, l, l, -1).transpose(0, 3, 1, 2), *jnp.split(others, [l], 1))
        return (*before, (jax.tree.map(jnp.add, sums, new), z @ w, M @ w)), u

    A0 = jnp.zeros_like(law.A)
    zeros = Sums(A0, A0, A0, jnp.zeros_like(params.C), jnp.zeros_like(params.R))
    first = jnp.zeros_like(params.pi1), jnp.zeros_like(params.V1)
    end = jnp.zeros_like(fwd.mf[0]), jnp.zeros_like(fwd.Pf[0]), (zeros, *first)
    xs = (fwd, data.observed, data.inside, data.hop)
    (r, Lam, (sums, z1, M1)), u = lax.scan(step, end, xs, reverse=True)
    (grads,) = to_params(Hops(sums.A, 0.5 * sums.Q))
    grads = grads._replace(
        Q=sym(grads.Q),
        C=sums.C,
        R=0.5 * sums.R,
        pi1=r @ weights,
        V1=0.5 * ((r * weights) @ r.T - Lam @ weights),
    )
    return grads, -u * weights, (sums, z1, M1)


def between(law: Hops, sums: Sums, n: Array) -> Array:
    """Return Σ M_t over the steps that were skipped; n (G + 1,) is how often each hop was made."""
    g, j = np.array([(g, j) for g in range(2, MOST + 1) for j in range(1, g)]).T
    A, Q, rest = law.A[j], law.Q[j], law.A[g - j]
    later = rest @ Q
    cross = A @ sums.A[g].mT @ later
    noise = later.mT @ sums.Q[g] @ later + n[g][:, None, None] * Q
    return (A @ sums.M[g] @ A.mT + cross + cross.mT + noise).sum(0)


def _statistics(params: LDSParams, data: Skipping) -> ExpectedStatistics:
    """Return the sums of a block."""
    weights = data.weights
    fwd = forward(params, data)
    grads, _, (sums, z1, M1) = backward(params, data, fwd, weights)
    made = jax.vmap(_one_hot)(data.hop).sum(0) @ weights  # how often each hop was made, from 1 on
    Szz = sums.M.sum(0) + between(hops(params), sums, made)
    n_emissions = (data.inside * data.observed.max(1)).sum(0) @ weights
    n = weights.sum(), data.hop.sum(0) @ weights, n_emissions
    states = StateMoments(n, z1, M1, Szz, sums.M[0])
    return statistics_of_score(params, grads, states, loglik(data, fwd) @ weights)


def _score(params: LDSParams, data: Skipping, fwd: Forward, weights: Array) -> tuple[Any, Array]:
    return backward(params, data, fwd, weights)[:2]


each = fisher_rule(forward, loglik, _score)
summed = summed_over_blocks(forward, backward)
