"""Sequences with few observed cells: the Gaussian of these cells alone, whatever the length of the gaps between them.

Before any data all T d cells have a mean μ and a covariance Σ that no sequence changes, nor its length. With the
k observed cells o of a sequence, α = Σ_oo⁻¹ (y_o - μ_o) gives its likelihood and, by D = Σ_n w_n (α α' - Σ_oo⁻¹) in the
places of its cells, the gradients in μ and ½ Σ. All else is linear in D: the score by the derivative of (μ, Σ) in the
parameters, the states by E[z_t | o] = E[z_t] + X_t α and Cov[z_t | o] = P_t - X_t Σ_oo⁻¹ X_t', with X_t = Cov[z_t, y].
The cost is the inverse of a k x k matrix for each sequence, whatever l and T are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Integer, Real

from ..linalg import spd_inverse, sym
from ..params import LDSParams
from .derivative import fisher_rule, summed_rule
from .filled import by_group, only_values
from .statistics import ExpectedStatistics, StateMoments, statistics_of_score

_LOG_2PI = 1.8378770664093453


class Group(NamedTuple):
    """Sequences with at most k observed cells: B blocks of n sequences, filled up with weights of 0."""

    y: Real[Any, "B n k"]  # the observed cells, then zeros
    seen: Integer[Any, "B n k"]  # which these are, t d + channel; T d, T d + 1, … fill up
    weights: Real[Any, "B n"]  # how much each sequence counts in a sum
    length: Integer[Any, "B n"]  # which of the lengths each sequence has


class Observed(NamedTuple):
    """Sequences with gaps, ready for the E-step, in groups by the number of observed cells."""

    groups: tuple[Group, ...]
    inside: Real[Any, "lengths T"]  # for each length, 1 up to it and 0 after
    n_lengths: Real[Any, " lengths"]  # how many sequences have it, with their weights
    n_emissions: Real[Any, ""]  # steps with an observed cell, with the sequences' weights

    def sequences(self, params: LDSParams) -> Array:
        """Return log p(y_n | Ω) of each sequence, in the order of groups and blocks; 0 for those that fill up."""
        return each(params, self)

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return summed(params, self)

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return jax.grad(self.log_likelihood)(params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        law, to_params = jax.vjp(lambda p: joint_law(p, self.inside.shape[1]), params)
        value, a, D = _accumulate(law, self, len(self.n_lengths))
        grads = _score(to_params, law, a.sum(0), D.sum(0))
        n_t = self.n_lengths @ self.inside
        states = StateMoments((n_t[0], n_t[1:].sum(), self.n_emissions), *_moments(law, self, a, D))
        return statistics_of_score(params, grads, states, value)


class Law(NamedTuple):
    """The law of all states and cells before any data: E[z_t], Cov[z_t], Cov[z_t, y], E[y], Cov[y]."""

    z: Real[Array, "T l"]
    P: Real[Array, "T l l"]
    X: Real[Array, "T l cells"]
    mean: Real[Array, " cells"]
    cov: Real[Array, "cells cells"]


def joint_law(params: LDSParams, T: int) -> Law:
    """Return the law of T steps: Cov[z_t, y_s] is A^(t-s) P_s C' up to t, and P_t (C A^(s-t))' after."""
    A, C, Q, R, pi1, V1, *_ = params
    d, l = C.shape

    def step(carry, _):
        z, P, power = carry
        return (A @ z, sym(A @ P @ A.T) + Q, A @ power), carry

    start = pi1, V1, jnp.eye(l, dtype=A.dtype)
    _, (z, P, power) = lax.scan(step, start, length=T)
    PC = (P @ C.T).transpose(1, 0, 2).reshape(l, T * d)  # of all s
    before = (power.reshape(T * l, l) @ PC).reshape(T, l, T, d)  # by t - s and s
    after = (P.reshape(T * l, l) @ (C @ power).reshape(T * d, l).T).reshape(T, l, T, d)  # t, s - t
    t, s = jnp.arange(T)[:, None], jnp.arange(T)
    X = jnp.where(
        (s <= t)[..., None, None], before[jnp.abs(t - s), :, s], after[t, :, jnp.abs(s - t)]
    )  # (T, T, l, d)
    cov = jnp.einsum("il,tsld->tisd", C, X) + jnp.einsum("ts,id->tisd", jnp.eye(T), R)
    X = X.transpose(0, 2, 1, 3).reshape(T, l, T * d)
    return Law(z, P, X, (z @ C.T).reshape(-1), cov.reshape(T * d, T * d))


def _condition(law: Law, block: Group) -> tuple[Array, Array, Array]:
    """Return log p(y_n) (n,), α (n, k) and Σ_oo⁻¹ (n, k, k) of the sequences of a block."""
    cells, k = law.mean.size, block.seen.shape[1]
    # cells of unit variance and mean 0 stand in where fewer are observed
    cov = jax.scipy.linalg.block_diag(law.cov, jnp.eye(k, dtype=law.cov.dtype))
    seen = block.seen
    inverse, logdet = spd_inverse(cov[seen[:, :, None], seen[:, None]])
    v = block.y - jnp.pad(law.mean, (0, k))[seen]
    alpha = (inverse * v[:, None]).sum(-1)
    count = (seen < cells).sum(1)
    return -0.5 * ((v * alpha).sum(1) + logdet + count * _LOG_2PI), alpha, inverse


def _accumulate(law: Law, data: Observed, L: int, weights: Any = None) -> tuple[Array, ...]:
    """Return Σ_n w_n log p(y_n), and for each length Σ_n w_n α (L, cells) and D (L, cells, cells); L = 1: for all."""
    cells = law.mean.size
    weights = [group.weights for group in data.groups] if weights is None else weights
    value, parts = jnp.zeros((), law.mean.dtype), []

    def add(carry, x):
        value, a, D = carry
        block, w = x
        each, alpha, inverse = _condition(law, block)
        at = jnp.minimum(block.length, L - 1)[:, None], block.seen
        a = a.at[at].add(w[:, None] * alpha)
        more = alpha[:, :, None] * alpha[:, None] - inverse
        D = D.at[at[0][:, :, None], at[1][:, :, None], at[1][:, None]].add(w[:, None, None] * more)
        return (value + w @ each, a, D), None

    for group, w in zip(data.groups, weights, strict=True):
        n = cells + group.seen.shape[2]
        zero = jnp.zeros((L, n), law.mean.dtype), jnp.zeros((L, n, n), law.mean.dtype)
        (value, a, D), _ = lax.scan(add, (value, *zero), (group, w))
        parts.append((a[:, :cells], D[:, :cells, :cells]))
    return value, sum(a for a, _ in parts), sum(D for _, D in parts)  # type: ignore[return-value]


def _score(to_params: Any, law: Law, a: Array, D: Array) -> LDSParams:
    """Return the score from the gradients a in the mean of the cells and ½ D in their covariance."""
    zero = jax.tree.map(jnp.zeros_like, law)
    (grads,) = to_params(zero._replace(mean=a, cov=0.5 * D))
    return grads._replace(Q=sym(grads.Q), R=sym(grads.R), V1=sym(grads.V1))


def _moments(law: Law, data: Observed, a: Array, D: Array) -> tuple[Array, Array, Array, Array]:
    """Return Σ E[z_1], Σ M_1, Σ M_t over all steps, and Σ M_t over the last step of each sequence."""
    T, l, _ = law.X.shape
    z, P, X = law.z, law.P, law.X

    def moment(n, z, P, X, a, D):  # Σ M_t over n sequences with these sums of α and α α' - Σ_oo⁻¹
        change = X @ a
        cross = z[:, None] * change
        return n * (z[:, None] * z + P) + cross + cross.T + X @ D @ X.T

    # sequences that reach step t: those of its length and of longer ones
    n, a_from, D_from = (jnp.cumsum(x[::-1], 0)[::-1] for x in (data.n_lengths, a, D))
    which = (1 - data.inside).sum(0).astype(int)  # the shortest length that reaches t
    if len(data.n_lengths) == 1:
        steps = jax.vmap(lambda z, P, X: moment(n[0], z, P, X, a_from[0], D_from[0]))(z, P, X)
    else:

        def at_step(x):
            i, z, P, X = x
            return moment(n[i], z, P, X, a_from[i], D_from[i])

        steps = lax.map(at_step, (which, z, P, X))
    end = data.inside.sum(1).astype(int) - 1
    last = jax.vmap(moment)(data.n_lengths, z[end], P[end], X[end], a, D).sum(0)
    return n[0] * z[0] + X[0] @ a_from[0], steps[0], steps.sum(0), last


def _sum_value(params: LDSParams, data: Observed) -> Array:
    law = joint_law(params, data.inside.shape[1])
    return sum(lax.map(lambda x: x.weights @ _condition(law, x)[0], g).sum() for g in data.groups)  # type: ignore[return-value]


def _sum_value_and_score(params: LDSParams, data: Observed) -> tuple[Array, LDSParams]:
    law, to_params = jax.vjp(lambda p: joint_law(p, data.inside.shape[1]), params)
    value, a, D = _accumulate(law, data, 1)
    return value, _score(to_params, law, a[0], D[0])


def _each_forward(params: LDSParams, data: Observed) -> Law:
    return joint_law(params, data.inside.shape[1])


def _each_value(data: Observed, law: Law) -> Array:
    def block_values(block):
        return _condition(law, block)[0]

    return jnp.concatenate([lax.map(block_values, group).reshape(-1) for group in data.groups])


def _each_score(params: LDSParams, data: Observed, law: Law, weights: Array) -> tuple[Any, Any]:
    _, to_params = jax.vjp(lambda p: joint_law(p, data.inside.shape[1]), params)
    parts = by_group(data.groups, weights)
    _, a, D = _accumulate(law, data, 1, parts)
    dys = [
        lax.map(lambda x: -x[1][:, None] * _condition(law, x[0])[1], (group, w))
        for group, w in zip(data.groups, parts, strict=True)
    ]
    return _score(to_params, law, a[0], D[0]), only_values(data, dys)


summed = summed_rule(_sum_value, _sum_value_and_score)
each = fisher_rule(_each_forward, _each_value, _each_score)
