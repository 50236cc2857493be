"""Sequences with gaps by the route of complete ones: missing cells are filled in by their conditional moments.

All T d cells of a sequence are Gaussian with a mean μ and a precision K that no sequence changes. The complete E-step
is linear in G = Σ_n w_n (1, y_n)(1, y_n)', so that the E-step of sequences with gaps is the complete one on
Σ_n w_n E[(1, y_n)(1, y_n)' | observed]: the missing cells m of a sequence have the mean y_m - K_mm⁻¹ (K (y - μ))_m,
whatever y_m was, and the covariance K_mm⁻¹. The cost is the inverse of a k x k matrix for each sequence, whatever l is.
Sequences that end early have a K and a G for each length.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Integer, Real

from ..linalg import spd_inverse, sym
from ..params import LDSParams
from . import shared_passes
from .complete import Complete, Terms, filter_terms, statistics, total
from .derivative import fisher_rule
from .shared_passes import Forward, Gains, backward, gains, information
from .statistics import ExpectedStatistics

_LOG_2PI = 1.8378770664093453


class Group(NamedTuple):
    """Sequences with at most k missing cells: B blocks of n sequences of one length, filled up with weights of 0."""

    y: Real[Any, "B n cells"]  # 0 where missing and past the end
    hidden: Integer[Any, "B n k"]  # the missing cells, t d + channel; T d, T d + 1, … fill up
    weights: Real[Any, "B n"]  # how much each sequence counts in a sum
    length: Integer[Any, " B"]  # which of the lengths the block has
    empty: Integer[Any, "B p 2"]  # steps without an observed cell: (sequence of the block, step)
    is_empty: Real[Any, "B p"]  # 0 fills up


class Filled(NamedTuple):
    """Sequences with gaps, ready for the E-step, in groups by the number of missing cells."""

    groups: tuple[Group, ...]
    inside: Real[Any, "lengths T"]  # for each length, 1 up to it and 0 after

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
        law = joint_law(params, self)
        found = _filter(params, self, law, states=_states(params, self, law))
        stats = statistics(params, found.data, found.fwd)
        C, R = params.C, params.R
        n, M = found.n_empty, sym(found.empty)
        return stats._replace(
            n_emissions=stats.n_emissions - n,
            Szz=stats.Szz - M,
            Syz=stats.Syz - C @ M,
            Syy=stats.Syy - sym(C @ M @ C.T + n * R),
            log_likelihood=stats.log_likelihood + found.rest,
        )


class Law(NamedTuple):
    """The law of all cells of a sequence, y ~ N(mean, K⁻¹), with a K for each length, 0 past it."""

    shared: Gains
    units: Forward  # the filter's result for y = each unit vector, for each length
    z: Real[Array, "T l"]  # E[z_t]
    mean: Real[Array, " cells"]
    F: Real[Array, "lengths cells cells"]  # takes y - mean to whitened innovations
    K: Real[Array, "lengths cells cells"]  # F'F


def joint_law(params: LDSParams, data: Filled) -> Law:
    """Return the law of the cells: the filter of unit vectors gives F."""
    A, C = params.A, params.C
    L, T = data.inside.shape
    d = C.shape[0]
    cells = T * d
    shared = gains(params, T)
    eye = jnp.tile(jnp.eye(cells, dtype=A.dtype), L).reshape(T, d, L * cells)
    inside = jnp.repeat(data.inside.T, cells, axis=1)
    nothing = jnp.zeros(L * cells, A.dtype)
    units = shared_passes.forward(
        params, Complete(eye * inside[:, None], inside, nothing, nothing, jnp.zeros(T)), shared
    )
    F = units.e.reshape(-1, L, cells)[:cells].swapaxes(0, 1)
    _, z = lax.scan(lambda m, _: (A @ m, m), params.pi1, length=T)
    return Law(shared, units, z, (z @ C.T).reshape(-1), F, F.mT @ F)


def _fill(law: Law, block: Group) -> tuple[Array, Array, Array, Array]:
    """Return filled sequences (n, cells), K_mm⁻¹ (n, k, k), log |K_mm| (n,) and k (n,) of a block."""
    y, hidden = block.y, block.hidden
    n, cells = y.shape
    more = hidden.shape[1]  # cells of unit precision and mean 0 stand in where fewer are missing
    K = law.K[block.length]
    a = jnp.pad((y - law.mean) @ K, [(0, 0), (0, more)])
    K = jax.scipy.linalg.block_diag(K, jnp.eye(more, dtype=K.dtype))
    inverse, logdet = spd_inverse(K[hidden[:, :, None], hidden[:, None]])
    at = jnp.arange(n)[:, None], hidden
    change = (inverse * a[at][:, None]).sum(-1)
    filled = jnp.pad(y, [(0, 0), (0, more)]).at[at].add(-change)[:, :cells]
    return filled, inverse, logdet, (hidden < cells).sum(1)


class Found(NamedTuple):
    """The complete data that stand for the sequences with gaps, and what their sums do not say."""

    data: Complete
    fwd: Forward
    rest: Real[Array, ""]  # to add to their log-likelihood
    n_empty: Real[Array, ""]  # steps without an observed cell, with the sequences' weights
    empty: Real[Array, "l l"]  # Σ M_t over these steps


class States(NamedTuple):
    """The law of the states given all cells: E[z_t | y] = E[z_t] + Z_t (y - mean), Cov[z_t | y] = cov_t."""

    Z: Real[Array, "lengths T l cells"]
    cov: Real[Array, "lengths T l l"]


def _states(params: LDSParams, data: Filled, law: Law) -> States | None:
    """Return the law of the states, or None if no sequence has a step without an observed cell."""
    if not any(group.empty.shape[1] for group in data.groups):
        return None
    L, cells = law.K.shape[:2]
    T, l = law.z.shape
    lifted = backward(params, law.units)
    Z = (lifted.z @ lifted.x[:, None]).reshape(-1, l, L, cells)[:T]
    Lam = jax.vmap(lambda n_t: information(law.shared, n_t)[1:])(data.inside)
    Pf = law.shared.Pf.reshape(-1, l, l)[:T]
    APf = params.A @ Pf
    return States(Z.transpose(2, 0, 1, 3), Pf - APf.mT @ Lam @ APf)


def _empty_steps(law: Law, states: States, block: Group, filled, inverse) -> tuple[Array, Array]:
    """Return the number of steps without an observed cell in a block, and Σ M_t over them, with weights."""
    i, t = block.empty.T
    w = block.is_empty * block.weights[i]
    Z = states.Z[block.length, t]  # (p, l, cells)
    z = law.z[t] + (Z @ (filled - law.mean)[i, :, None])[..., 0]
    Z = jnp.pad(Z, [(0, 0), (0, 0), (0, block.hidden.shape[1])])
    Z_m = jnp.take_along_axis(Z, block.hidden[i][:, None], axis=2)
    cov = states.cov[block.length, t] + Z_m @ inverse[i] @ Z_m.mT
    return w.sum(), (z.T * w) @ z + jnp.einsum("p,pij->ij", w, cov)


def _filter(
    params: LDSParams,
    data: Filled,
    law: Law,
    weights: list[Array] | None = None,
    states: States | None = None,
) -> Found:
    """Filter the complete data with the moments Σ_n w_n E[(1, y_n)(1, y_n)' | observed]."""
    weights = [group.weights for group in data.groups] if weights is None else weights
    L, cells = law.K.shape[:2]

    def add(carry, x):
        G, rest, n_empty, empty = carry
        block, w = x
        filled, inverse, logdet, k = _fill(law, block)
        rows = jnp.pad(filled, [(0, 0), (1, block.hidden.shape[1])]).at[:, 0].set(1.0)
        at = 1 + block.hidden
        moments = (rows * w[:, None]).T @ rows
        moments = moments.at[at[:, :, None], at[:, None]].add(w[:, None, None] * inverse)
        G = G.at[block.length].add(moments[: 1 + cells, : 1 + cells])
        # complete data have p(y_m | y_o) too: its expected logarithm is ½ (log |K_mm| - k log 2π - k)
        rest = rest + 0.5 * w @ (k * (1 + _LOG_2PI) - logdet)
        if states is not None and block.empty.shape[0]:
            n, M = _empty_steps(law, states, block, filled, inverse)
            n_empty, empty = n_empty + n, empty + M
        return (G, rest, n_empty, empty), None

    zero = jnp.zeros((), law.K.dtype)
    carry = jnp.zeros((L, 1 + cells, 1 + cells), zero.dtype), zero, zero, jnp.zeros_like(params.A)
    for group, w in zip(data.groups, weights, strict=True):
        carry, _ = lax.scan(add, carry, (group, w))
    G, *others = carry
    n_t = [w.sum(1) @ data.inside[g.length] for g, w in zip(data.groups, weights, strict=True)]
    columns = _columns(G, data.inside, jnp.stack(n_t).sum(0))
    return Found(columns, shared_passes.forward(params, columns, law.shared), *others)


def _columns(G: Array, inside: Array, n_t: Array) -> Complete:
    """Return pseudo-sequences with the second moments G, for each length.

    By polarisation, G = ¼ Σ_i (a_i + b_i)(a_i + b_i)' - (a_i - b_i)(a_i - b_i)' with a_i = G_i / s and b_i = s times a
    unit vector: this needs no factor, and G may be singular, or indefinite where weights are negative.
    """
    L, n, _ = G.shape
    size = lax.stop_gradient(jnp.sqrt(jnp.abs(G).max(1)))  # (L, n)
    a = G / jnp.where(size > 0, size, 1.0)[:, None]
    b = jnp.eye(n, dtype=G.dtype) * size[:, None]
    columns = jnp.stack([a + b, a - b], axis=2) / 2  # (L, n, 2, n)
    columns = jnp.moveaxis(columns, 1, 0).reshape(n, -1)
    weights = jnp.tile(jnp.repeat(jnp.array([1.0, -1.0], G.dtype), n), L)
    T = inside.shape[1]
    y = columns[1:].reshape(T, -1, columns.shape[1])
    return Complete(y, jnp.repeat(inside.T, 2 * n, axis=1), columns[0], weights, n_t)


def _sum_forward(params: LDSParams, data: Filled) -> Found:
    return _filter(params, data, joint_law(params, data))


def _sum_value(data: Filled, found: Found) -> Array:
    return total(found.data, filter_terms(found.data, found.fwd)) + found.rest


def _sum_score(params: LDSParams, data: Filled, found: Found, weight: Array) -> tuple[Any, None]:
    cotangent = Terms(-0.5 * weight * found.data.weights, -0.5 * weight * found.data.n_t)
    return shared_passes.score(params, found.data, found.fwd, cotangent)[0], None


def _each_value(data: Filled, law: Law) -> Array:
    """Return log p(y_n): that of the filled sequence, without the density of what was filled in."""
    L, T = data.inside.shape
    constants = law.shared.logdet.reshape(-1)[:T] + law.mean.size // T * _LOG_2PI
    of_length = data.inside @ constants

    def block_values(block):
        filled, _, logdet, k = _fill(law, block)
        squares = (((filled - law.mean) @ law.F[block.length].T) ** 2).sum(1)
        return -0.5 * (squares + of_length[block.length] + logdet - k * _LOG_2PI)

    return jnp.concatenate([lax.map(block_values, group).reshape(-1) for group in data.groups])


def _each_score(params: LDSParams, data: Filled, law: Law, weights: Array) -> tuple[Any, None]:
    shapes = [group.weights.shape for group in data.groups]
    ends = [sum(B * n for B, n in shapes[: i + 1]) for i in range(len(shapes))]
    parts = jnp.split(weights, ends[:-1])
    parts = [x.reshape(shape) for x, shape in zip(parts, shapes, strict=True)]
    found = _filter(params, data, law, parts)
    return _sum_score(params, data, found, jnp.ones((), weights.dtype))


summed = fisher_rule(_sum_forward, _sum_value, _sum_score)
each = fisher_rule(joint_law, _each_value, _each_score)
