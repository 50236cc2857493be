"""Sequences with gaps by the route of complete ones: missing cells are filled in by their conditional moments.

All T d cells of a sequence are Gaussian with a mean μ and a precision K that no sequence changes. The complete E-step
is linear in G = Σ_n w_n x_n x_n' with x_n = (1, y_n), so that the E-step of sequences with gaps is the complete one on
Σ_n w_n E[x_n x_n' | observed]: the missing cells m of a sequence have the mean y_m - K_mm⁻¹ (K (y - μ))_m, whatever
y_m was, and the covariance K_mm⁻¹. The filter of unit vectors x gives K, and goes on to the sums, in which G says how
much each pair of them counts. The cost is the inverse of a k x k matrix for each sequence, whatever l is. Sequences
that end early have a K and a G for each length.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Integer, Real

from ..linalg import spd_inverse
from ..params import LDSParams
from . import shared_passes
from .complete import Complete, statistics
from .derivative import fisher_rule
from .shared_passes import Forward
from .statistics import DataSums, ExpectedStatistics

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
        stats = statistics(params, found.data, found.law.fwd)
        n_empty = jnp.stack([(group.weights * group.empty).sum() for group in self.groups]).sum()
        return stats._replace(
            n_emissions=stats.n_emissions - n_empty,
            Syy=stats.Syy - n_empty * params.R,  # there y_t is C z_t
            log_likelihood=_sum_value(self, found),
        )


class Law(NamedTuple):
    """The law of all cells of a sequence: its log density is constant - ½ x'Hx for x = (1, y), of each length."""

    units: Complete  # the unit vectors x of each length, cut off at its end
    fwd: Forward  # their filter
    E: Real[Array, "lengths cells 1+cells"]  # takes x to whitened innovations
    H: Real[Array, "lengths 1+cells 1+cells"]  # E'E: (μ'Kμ, -μ'K; -Kμ, K)


def joint_law(params: LDSParams, data: Filled) -> Law:
    """Return the law of the cells."""
    L, T = data.inside.shape
    d = params.n_channels
    n = 1 + T * d
    x = jnp.tile(jnp.eye(n, dtype=params.A.dtype), L)
    inside = jnp.repeat(data.inside.T, n, axis=1)
    y = x[1:].reshape(T, d, L * n) * inside[:, None]
    units = Complete(y, inside, x[0], None, jnp.zeros(T, x.dtype))
    fwd = shared_passes.forward(params, units)
    E = fwd.e.reshape(-1, L, n)[: n - 1].swapaxes(0, 1)
    return Law(units, fwd, E, E.mT @ E)


def _precisions(law: Law, more: int) -> Array:
    """Return H, with `more` cells of unit precision and mean 0 to stand in where fewer are missing."""
    n = law.H.shape[1]
    H = jnp.pad(law.H, [(0, 0), (0, more), (0, more)])
    at = n + jnp.arange(more)
    return H.at[:, at, at].set(1.0)


def _fill(H: Array, block: Group) -> tuple[Array, Array, Array, Array, Array]:
    """Return filled sequences x (n, 1 + cells + k), the places of their k missing cells, K_mm⁻¹, log |K_mm| and k."""
    n, k = block.hidden.shape
    H, at = H[block.length], 1 + block.hidden
    x = jnp.pad(block.y, [(0, 0), (1, k)]).at[:, 0].set(1.0)
    inverse, logdet = spd_inverse(H[at[:, :, None], at[:, None]])
    each = jnp.arange(n)[:, None]
    change = (inverse @ (x @ H)[each, at][..., None])[..., 0]
    filled = x.at[each, at].add(-change)
    return filled, at, inverse, logdet, (block.hidden < block.y.shape[1]).sum(1)


class Found(NamedTuple):
    """The complete data that stand for the sequences with gaps, and what their sums do not say."""

    law: Law
    data: Complete
    rest: Real[Array, ""]  # to add to their log-likelihood


def _filled_in(data: Filled, law: Law, weights: list[Array] | None = None) -> Found:
    """Return unit vectors x that count with the moments Σ_n w_n E[x_n x_n' | observed], for each length."""
    weights = [group.weights for group in data.groups] if weights is None else weights
    L, n, _ = law.H.shape
    dtype = law.H.dtype
    G, rest = jnp.zeros((L, n, n), dtype), jnp.zeros((), dtype)
    n_t = jnp.zeros(data.inside.shape[1], dtype)
    for group, w in zip(data.groups, weights, strict=True):
        H = _precisions(law, group.hidden.shape[2])

        def add(carry, x, H=H):
            G, rest = carry
            block, w = x
            filled, at, inverse, logdet, k = _fill(H, block)
            moments = (filled * w[:, None]).T @ filled
            moments = moments.at[at[:, :, None], at[:, None]].add(w[:, None, None] * inverse)
            G = G.at[block.length].add(moments[:n, :n])
            # complete data have p(y_m | y_o) too: its expected logarithm is ½ (log |K_mm| - k log 2π - k)
            return (G, rest + 0.5 * w @ (k * (1 + _LOG_2PI) - logdet)), None

        (G, rest), _ = lax.scan(add, (G, rest), (group, w))
        n_t = n_t + w.sum(1) @ data.inside[group.length]
    T, d = data.inside.shape[1], law.units.y.shape[1]
    Syy = jnp.einsum("ntitj->ij", G[:, 1:, 1:].reshape(L, T, d, T, d))
    columns = law.units._replace(weights=G, n_t=n_t, sums=DataSums(Syy))
    return Found(law, columns, rest)


def _sum_forward(params: LDSParams, data: Filled) -> Found:
    return _filled_in(data, joint_law(params, data))


def _sum_value(data: Filled, found: Found) -> Array:
    """Return Σ_n w_n log p(y_n): the sum of squared innovations E x is that of H G."""
    law, G = found.law, jnp.asarray(found.data.weights)
    constants = _step_constants(law) @ found.data.n_t
    return -0.5 * (jnp.vdot(law.H, G) + constants) + found.rest


def _step_constants(law: Law) -> Array:
    """Return log |S_t| + d log 2π, (T,)."""
    T, d, _ = law.units.y.shape
    return law.fwd.logdet.reshape(-1)[:T] + d * _LOG_2PI


def _sum_score(params: LDSParams, data: Filled, found: Found, weight: Array) -> tuple[Any, None]:
    columns, fwd = found.data, found.law.fwd
    back = shared_passes.backward(params, fwd)
    grads, _ = shared_passes.summed_score(params, columns, fwd, back, columns.weighted, columns.n_t)
    return jax.tree.map(lambda g: weight * g, grads), None


def _each_value(data: Filled, law: Law) -> Array:
    """Return log p(y_n): that of the filled sequence, without the density of what was filled in."""
    of_length = data.inside @ _step_constants(law)
    n = law.H.shape[1]

    def values(group):
        H = _precisions(law, group.hidden.shape[2])

        def of_block(block):
            filled, _, _, logdet, k = _fill(H, block)
            squares = ((filled[:, :n] @ law.E[block.length].T) ** 2).sum(1)
            return -0.5 * (squares + of_length[block.length] + logdet - k * _LOG_2PI)

        return lax.map(of_block, group).reshape(-1)

    return jnp.concatenate([values(group) for group in data.groups])


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
    found = _filled_in(data, law, parts)
    grads, _ = _sum_score(params, data, found, jnp.ones((), weights.dtype))

    def by_y(group, w):  # -K (y - μ) of the filled sequence, 0 at missing cells but for rounding
        H = _precisions(law, group.hidden.shape[2])

        def of_block(x):
            block, w = x
            cells = slice(1, law.H.shape[1])
            return -w[:, None] * (_fill(H, block)[0] @ H[block.length])[:, cells]

        return lax.map(of_block, (group, w))

    dys = [by_y(group, w) for group, w in zip(data.groups, parts, strict=True)]
    return grads, only_values(data, dys)


def only_values(data: Any, dys: list[Array]) -> Any:
    """Return gradients in the y of the groups as data, with None for all that is not differentiated."""
    nothing = dict.fromkeys(data.groups[0]._fields)
    groups = [g._replace(**{**nothing, "y": dy}) for g, dy in zip(data.groups, dys, strict=True)]
    return data._replace(**{**dict.fromkeys(data._fields), "groups": tuple(groups)})


summed = fisher_rule(_sum_forward, _sum_value, _sum_score)
each = fisher_rule(joint_law, _each_value, _each_score)
