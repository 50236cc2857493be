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

from ..linalg import spd_inverse
from ..params import LDSParams
from . import shared_passes
from .complete import Complete, Terms, filter_terms, statistics, total
from .derivative import fisher_rule
from .shared_passes import Forward, Gains, gains
from .statistics import ExpectedStatistics

_LOG_2PI = 1.8378770664093453


class Group(NamedTuple):
    """Sequences with at most k missing cells: B blocks of n sequences of one length, filled up with weights of 0."""

    y: Real[Any, "B n cells"]  # 0 where missing and past the end
    hidden: Integer[Any, "B n k"]  # the missing cells, t d + channel; T d, T d + 1, … fill up
    weights: Real[Any, "B n"]  # how much each sequence counts in a sum
    length: Integer[Any, " B"]  # which of the lengths the block has
    empty: Real[Any, "B n"]  # how many steps of each sequence have no observed cell


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
        found = _sum_forward(params, self)
        stats = statistics(params, found.data, found.fwd)
        n_empty = jnp.stack([(group.weights * group.empty).sum() for group in self.groups]).sum()
        return stats._replace(
            n_emissions=stats.n_emissions - n_empty,
            Syy=stats.Syy - n_empty * params.R,  # there y_t is C z_t
            log_likelihood=stats.log_likelihood + found.rest,
        )


class Law(NamedTuple):
    """The law of all cells of a sequence, y ~ N(mean, K⁻¹), with a K for each length, 0 past it."""

    shared: Gains
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
    return Law(shared, z, (z @ C.T).reshape(-1), F, F.mT @ F)


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


def _filter(
    params: LDSParams,
    data: Filled,
    law: Law,
    weights: list[Array] | None = None,
) -> Found:
    """Filter the complete data with the moments Σ_n w_n E[(1, y_n)(1, y_n)' | observed]."""
    weights = [group.weights for group in data.groups] if weights is None else weights
    L, cells = law.K.shape[:2]

    def add(carry, x):
        G, rest = carry
        block, w = x
        filled, inverse, logdet, k = _fill(law, block)
        rows = jnp.pad(filled, [(0, 0), (1, block.hidden.shape[1])]).at[:, 0].set(1.0)
        at = 1 + block.hidden
        moments = (rows * w[:, None]).T @ rows
        moments = moments.at[at[:, :, None], at[:, None]].add(w[:, None, None] * inverse)
        G = G.at[block.length].add(moments[: 1 + cells, : 1 + cells])
        # complete data have p(y_m | y_o) too: its expected logarithm is ½ (log |K_mm| - k log 2π - k)
        rest = rest + 0.5 * w @ (k * (1 + _LOG_2PI) - logdet)
        return (G, rest), None

    zero = jnp.zeros((), law.K.dtype)
    carry = jnp.zeros((L, 1 + cells, 1 + cells), zero.dtype), zero
    for group, w in zip(data.groups, weights, strict=True):
        carry, _ = lax.scan(add, carry, (group, w))
    G, rest = carry
    n_t = [w.sum(1) @ data.inside[g.length] for g, w in zip(data.groups, weights, strict=True)]
    columns = _columns(G, data.inside, jnp.stack(n_t).sum(0))
    return Found(columns, shared_passes.forward(params, columns, law.shared), rest)


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
    weights = found.data.weighted(jnp.ones_like(found.data.unit))
    cotangent = Terms(-0.5 * weight * weights, -0.5 * weight * found.data.n_t)
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


def by_group(groups: tuple[Any, ...], weights: Array) -> list[Array]:
    """Cut weights of all sequences into those of each group, (B, n)."""
    parts, start = [], 0
    for group in groups:
        B, n = group.weights.shape
        parts.append(weights[start : start + B * n].reshape(B, n))
        start += B * n
    return parts


def _each_score(params: LDSParams, data: Filled, law: Law, weights: Array) -> tuple[Any, Filled]:
    parts = by_group(data.groups, weights)
    found = _filter(params, data, law, parts)
    grads, _ = _sum_score(params, data, found, jnp.ones((), weights.dtype))

    def by_y(x):  # -K (y - μ) of the filled sequence, 0 at missing cells but for rounding
        block, w = x
        return -w[:, None] * ((_fill(law, block)[0] - law.mean) @ law.K[block.length])

    dys = [lax.map(by_y, (group, w)) for group, w in zip(data.groups, parts, strict=True)]
    return grads, only_values(data, dys)


def only_values(data: Any, dys: list[Array]) -> Any:
    """Return gradients in the y of the groups as data, with None for all that is not differentiated."""
    nothing = dict.fromkeys(data.groups[0]._fields)
    groups = [g._replace(**{**nothing, "y": dy}) for g, dy in zip(data.groups, dys, strict=True)]
    return data._replace(**{**dict.fromkeys(data._fields), "groups": tuple(groups)})


summed = fisher_rule(_sum_forward, _sum_value, _sum_score)
each = fisher_rule(joint_law, _each_value, _each_score)
