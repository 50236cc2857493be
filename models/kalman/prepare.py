"""Cohorts arranged for the E-step: the only place that asks whether a cohort has gaps.

Without gaps one covariance recursion serves all sequences (`complete`). Computations that need only sums over
sequences (EM, the total log-likelihood, its gradient) then run on fewer pseudo-sequences (`compression`). With gaps a
sequence has its missing cells filled in by their conditional moments (`filled`), goes by the law of its observed cells
(`observed`), or has a recursion of its own (`gappy`, `skipping`), by the costs of `routes`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cohort import Cohort
from ..params import LDSParams
from .complete import Complete
from .compression import compress, compressed
from .gappy import Gappy
from .packing import kept_steps, pack_filled, pack_observed
from .parts import Guarded, Parts
from .routes import Route, choose_routes, count_gaps
from .shifted import Shifted, values_of
from .skipping import Skipping
from .statistics import ExpectedStatistics, data_sums

_MULTIPLE = 8  # sequences are filled up to a multiple of this
_WORTH = 20_000  # steps of all sequences that a second part must save
_BLOCK = 128  # sequences with gaps run in blocks: bounded memory, and a block stays in cache


class Prepared(Protocol):
    """Data ready for the E-step, a pytree of arrays. Callers need not know whether it has gaps."""

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω), to be differentiated in the parameters only."""
        ...

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        ...

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        ...


def prepare(
    cohort: Cohort, dtype: Any, weights: Array | None = None, n_states: int = 5
) -> Prepared:
    """Arrange a cohort once, for any number of E-steps of models with about `n_states` states, and exact for others.

    The number of (pseudo-)sequences is filled up to a multiple of 8 by sequences of length 0, so that parts of a
    cohort, such as folds, share their compiled programs. With weights (N,) of 0 and 1 the arrays have the shapes
    that they have without, for the same reason.
    """
    if cohort.complete and isinstance(cohort.y, np.ndarray):
        data = compressed(cohort)
        n, with_inputs = (0 if x is None else _multiple(x.shape[-1]) for x in (data.unit, data.u))
        if weights is not None:
            kept = np.asarray(weights) != 0
            if not kept.any() or not np.isin(np.asarray(weights), (0, 1)).all():
                return arrange(cohort, dtype, weights, _MULTIPLE)
            data = compress(cohort, kept)
        return _filled_up(data, n, with_inputs, dtype)
    if isinstance(cohort.lengths, np.ndarray) and not cohort.complete:
        if isinstance(cohort.mask, np.ndarray):
            return _routed(cohort, dtype, weights, n_states)
        return _by_length(cohort, dtype, weights)
    return _filtered(cohort, dtype, weights)


def _filled_up(data: Complete, n: int, n_with_inputs: int, dtype: Any) -> Complete:
    """Return compressed data with n pseudo-sequences, and with the sums that no parameters change."""
    y, inside, unit = (_fill(x, n, xp=np) for x in (data.y, data.inside, data.unit))
    u = None if data.u is None else _fill(data.u, n_with_inputs, xp=np)
    sums = data_sums(y, np.ones(n), unit, u)
    found = Complete(y, inside, unit, None, data.n_t, u, sums)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), found)


def _routed(cohort: Cohort, dtype: Any, weights: Array | None, n_states: int) -> Prepared:
    """Arrange a cohort with gaps in parts, by the routes that the sequences take."""
    lengths, mask = np.asarray(cohort.lengths), np.asarray(cohort.mask)
    route = choose_routes(count_gaps(mask, lengths), n_states, cohort.n_channels)
    parts = []
    for name in dict.fromkeys(route):
        chosen = route == name
        few = _members(cohort, chosen, complete=name is Route.COMPLETE)
        w = None if weights is None else weights[chosen]
        if name is Route.COMPLETE:
            parts.append(prepare(few, dtype, w, n_states))
        elif name is Route.FILTERED:
            parts.append(_by_length(few, dtype, w))
        elif name is Route.SKIPPED:
            parts.append(shifted(skipped, few, dtype, w))
        else:
            parts.append(guarded(few, dtype, w, name))
    return parts[0] if len(parts) == 1 else Parts(tuple(parts))


def guarded(
    cohort: Cohort, dtype: Any, weights: Array | None = None, route: Route = Route.FILLED
) -> Guarded:
    """Arrange sequences to be filled in, or to go by their observed cells, with the filter as a spare route."""
    pack = pack_filled if route is Route.FILLED else pack_observed
    mask, lengths = np.asarray(cohort.mask), np.asarray(cohort.lengths)
    places = []

    def packed(cohort, dtype, weights):
        w = np.ones(len(lengths)) if weights is None else weights
        dense, place = pack(np.asarray(cohort.y), mask, lengths, w, dtype)
        places.append(jnp.asarray(place))
        return dense

    dense = shifted(packed, cohort, dtype, weights, places)
    spare = _filtered(replace(cohort, complete=False), dtype, weights)
    return Guarded(dense, spare, places[0] if cohort.u is None else jnp.arange(len(lengths)))


def shifted(
    make: Callable[..., Any],
    cohort: Cohort,
    dtype: Any,
    weights: Array | None = None,
    places: Sequence[Array] = (),
) -> Any:
    """Arrange sequences by a route for gaps, `make(cohort, dtype, weights)`; with inputs the route sees y - ȳ.

    The route arranges the numbers of the cells too, as if they were values: that says where each ȳ belongs. `make`
    fills `places` where the sequences do not come in their order.
    """
    if cohort.u is None:
        return make(cohort, dtype, weights)
    bare = replace(cohort, u=None, ahead=None)
    route = make(bare, dtype, weights)
    N, T, d = cohort.y.shape
    numbers = 1 + np.arange(T * d * N).reshape(T, d, N).transpose(2, 0, 1)
    xp: Any = np if isinstance(cohort.mask, np.ndarray) else jnp
    numbered = make(replace(bare, y=xp.where(cohort.mask, numbers, 0)), jnp.int32, None)
    u = jnp.moveaxis(jnp.asarray(cohort.u, dtype), 0, -1)
    inside = jnp.arange(T)[:, None] < jnp.asarray(cohort.lengths)
    w = jnp.ones(N, dtype) if weights is None else jnp.asarray(weights, dtype)
    place = places[0] if places else jnp.arange(N)
    return Shifted(route, values_of(numbered), place, u, inside.astype(dtype), w)


def _filtered(cohort: Cohort, dtype: Any, weights: Array | None) -> Any:
    """Arrange every sequence as it is, with inputs or without."""
    if cohort.complete:
        return arrange(cohort, dtype, weights, _MULTIPLE)
    return shifted(partial(arrange, multiple=_MULTIPLE), cohort, dtype, weights)


def _members(cohort: Cohort, chosen: np.ndarray, complete: bool = False) -> Cohort:
    """Return the sequences `chosen` as a cohort, up to the length of the longest."""
    lengths = np.asarray(cohort.lengths)[chosen]
    names = ("y", "mask") if cohort.u is None else ("y", "mask", "u")
    fields = {name: getattr(cohort, name)[chosen, : lengths.max()] for name in names}
    return replace(cohort, lengths=lengths, complete=complete, ahead=None, **fields)


def _by_length(cohort: Cohort, dtype: Any, weights: Array | None) -> Prepared:
    """Arrange sequences to be filtered in one part or two, the short and the long: none runs far past its end."""
    lengths = np.asarray(cohort.lengths)
    cut = best_cut(lengths)
    if cut is None:
        return _filtered(cohort, dtype, weights)

    def part(chosen):
        few = _members(cohort, chosen)
        return _filtered(few, dtype, None if weights is None else weights[chosen])

    return Parts((part(lengths <= cut), part(lengths > cut)))


def sequence_routes(
    cohort: Cohort, dtype: Any, n_states: int
) -> list[tuple[np.ndarray, Complete | Gappy | Skipping | Guarded]]:
    """Return the sequences of a cohort by route, with their numbers: data whose `sequences` come in this order."""
    every = np.arange(len(cohort))
    if cohort.complete or not isinstance(cohort.y, np.ndarray):
        return [(every, arrange(cohort, dtype))]
    gaps = count_gaps(np.asarray(cohort.mask), np.asarray(cohort.lengths))
    route, found = choose_routes(gaps, n_states, cohort.n_channels), []
    for name in dict.fromkeys(route):
        chosen = route == name
        few = _members(cohort, chosen, complete=name is Route.COMPLETE)
        if name is Route.SKIPPED:
            data = shifted(skipped, few, dtype)
        elif name in (Route.FILLED, Route.OBSERVED):
            data = guarded(few, dtype, route=name)
        else:
            data = arrange(few, dtype) if few.complete else shifted(arrange, few, dtype)
        found.append((every[chosen], data))
    return found


def best_cut(lengths: np.ndarray) -> int | None:
    """Return the length up to which a sequence is short, or None if two parts are not worth it.

    A part costs its longest sequence times their number, filled up to a multiple of 8. Two parts must save a third of
    the steps, and so many that it makes up for a second program to compile.
    """

    def cost(x):
        return -(-len(x) // _MULTIPLE) * _MULTIPLE * x.max(initial=0)

    cuts = np.unique(lengths)[:-1]
    costs = [cost(lengths[lengths <= c]) + cost(lengths[lengths > c]) for c in cuts]
    before = cost(lengths)
    worth = costs and min(costs) < min(2 / 3 * before, before - _WORTH)
    return int(cuts[int(np.argmin(costs))]) if worth else None


def arrange(
    cohort: Cohort, dtype: Any, weights: Array | None = None, multiple: int = 1
) -> Complete | Gappy:
    """Arrange every sequence as it is: time first, sequences last."""
    y = jnp.moveaxis(jnp.asarray(cohort.y, dtype), 0, -1)  # (T, d, N)
    N = y.shape[-1]
    w = jnp.ones(N, dtype) if weights is None else jnp.asarray(weights, dtype)
    within = jnp.arange(y.shape[0])[:, None] < jnp.asarray(cohort.lengths)  # (T, N)
    inside = within.astype(dtype)
    if cohort.complete:
        fields = (_fill(x, multiple) for x in (y, inside, jnp.ones(N, dtype), w))
        u = cohort.u
        if u is not None:
            u = _fill(jnp.moveaxis(jnp.asarray(u, dtype), 0, -1), multiple)
        return Complete(*fields, n_t=inside @ w, u=u)
    seen = jnp.moveaxis(jnp.asarray(cohort.mask), 0, -1)
    observed = (seen | ~within[:, None]).astype(dtype)
    filled = -(-N // multiple) * multiple
    return in_blocks(Gappy(y, inside, observed, w), filled)


def skipped(cohort: Cohort, dtype: Any, weights: Array | None = None) -> Skipping:
    """Arrange the kept steps of each sequence alone."""
    y, mask, lengths = (np.asarray(x) for x in (cohort.y, cohort.mask, cohort.lengths))
    kept = kept_steps(mask, lengths)
    count = kept.sum(1)
    order = np.argsort(~kept, axis=1, kind="stable")[
        :, : count.max()
    ]  # the kept steps, then others
    inside = np.arange(count.max()) < count[:, None]
    hop = np.where(inside[:, 1:], np.diff(order, axis=1), 0)
    few = replace(
        cohort,
        y=np.where(inside[..., None], np.take_along_axis(y, order[..., None], 1), 0.0),
        mask=np.take_along_axis(mask, order[..., None], 1) & inside[..., None],
        lengths=count,
        complete=False,
    )
    data = arrange(few, dtype, weights, _MULTIPLE)
    assert isinstance(data, Gappy)
    ahead = np.pad(hop, [(0, 0), (0, 1)]).T  # (T, N)
    B, N = data.weights.shape
    ahead = jnp.asarray(_fill(ahead, B * N, xp=np), dtype).reshape(-1, B, N)
    return Skipping(*data, jnp.moveaxis(ahead, 1, 0))


def in_blocks(data: Gappy, n: int) -> Gappy:
    """Fill up the sequences to n at least, and cut them into blocks along a new first axis.

    Blocks are filled up with sequences of length 0 and weight 0.
    """
    size = min(n, _BLOCK)
    blocks = -(-n // size)

    def split(x, value=0.0):
        x = _fill(x, blocks * size, value)
        return jnp.moveaxis(x.reshape(*x.shape[:-1], blocks, size), -2, 0)

    return Gappy(split(data.y), split(data.inside), split(data.observed, 1.0), split(data.weights))


def _multiple(n: int) -> int:
    """Return n, up to the next multiple of 8, so that programs are shared."""
    return -(-max(n, 1) // _MULTIPLE) * _MULTIPLE


def _fill(x: Any, multiple: int, value: float = 0.0, xp: Any = jnp) -> Any:
    """Fill the last axis, that of the sequences, up to a multiple."""
    more = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % multiple)]
    return xp.pad(x, more, constant_values=value)
