"""Pieces of a cohort with gaps that all have the same shapes, so that one compiled program serves them.

Chunks of a stream and shards of a mesh are such pieces. All sequences of a piece take one route: they are filled in
(see filled.py), with the filter as a spare route, or filtered. Blocks and pieces are filled up by sequences of
weight 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .filled import Filled, Group
from .gappy import Gappy
from .packing import _BLOCK, sizes_of
from .parts import Guarded
from .routes import _MOST_CELLS, Gaps, Route, route_cost

_WIDTH = 128  # sequences of a block of the filter
_SPARE = 1.15  # blocks of a chunk in units of what a sample needs
_WIDTHS = (8, 16, 32, 64, 128)


class Plan(NamedTuple):
    """The shapes of a piece."""

    n: int  # sequences
    T: int
    d: int
    lengths: np.ndarray  # all lengths that occur, sorted
    sizes: tuple[int, ...] = ()  # of matrices of missing cells; none: sequences are filtered
    widths: tuple[int, ...] = ()  # sequences of a block, for each size
    blocks: tuple[int, ...] = ()  # for each size

    def needed(self, lengths: np.ndarray, k: np.ndarray, share: float = 1.0) -> tuple[int, ...]:
        """Return how many blocks of each size some sequences need, or a cohort with `share` times as many."""
        of_size = np.searchsorted(self.sizes, k)
        found = []
        for i, width in enumerate(self.widths):
            counts = np.bincount(np.searchsorted(self.lengths, lengths[of_size == i]))
            found.append(int(np.ceil(share * counts / width).sum()))
        return tuple(found)

    def fits(self, lengths: np.ndarray, k: np.ndarray) -> bool:
        """Tell whether these sequences go into one piece."""
        wanted = self.needed(lengths, k)
        return len(k) <= self.n and all(a <= b for a, b in zip(wanted, self.blocks, strict=True))


def plan_of(
    gaps: Gaps, most: int, lengths: np.ndarray, N: int, n: int, T: int, d: int, n_states: int
) -> Plan:
    """Return the plan for pieces of n of N sequences, from a sample's gaps, the most missing cells, and all lengths."""
    plan = Plan(n, T, d, np.unique(lengths))
    costs = [route_cost(route, gaps, n_states, d) for route in (Route.FILTERED, Route.FILLED)]
    if T * d > _MOST_CELLS or costs[0] <= costs[1]:
        return plan
    k = np.append(gaps.k, most)
    sizes = tuple(np.unique(sizes_of(k, N / len(k))).tolist())
    share = n / len(gaps.k)
    of_size = np.searchsorted(sizes, gaps.k)
    widths = []
    for i, size in enumerate(sizes):
        counts = share * np.bincount(np.searchsorted(plan.lengths, gaps.length[of_size == i]))
        allowed = [w for w in _WIDTHS if w == 8 or w * size**2 <= _BLOCK]
        costs = [(np.ceil(counts / w)).sum() * (w + 8) for w in allowed]
        widths.append(allowed[int(np.argmin(costs))])
    plan = plan._replace(sizes=sizes, widths=tuple(widths))
    wanted = plan.needed(gaps.length, gaps.k, share)
    return plan._replace(blocks=tuple(int(_SPARE * b) + 1 for b in wanted))


def plan_for(pieces: Sequence[Gaps], plan: Plan) -> Plan:
    """Return the plan with as many blocks as the fullest of some pieces needs."""
    wanted = [plan.needed(x.length, x.k) for x in pieces]
    return plan._replace(blocks=tuple(max(x) for x in zip(*wanted, strict=True)))


def piece(
    plan: Plan,
    y: np.ndarray,
    mask: np.ndarray,
    lengths: np.ndarray,
    weights: np.ndarray,
    dtype: Any,
) -> Guarded | Gappy:
    """Return up to n sequences y (N, T, d) as a piece, in numpy."""
    spare = _filtered(plan, y, mask, lengths, weights, dtype)
    if not plan.sizes:
        return spare
    N, cells = len(y), plan.T * plan.d
    inside = np.repeat(np.arange(plan.T) < lengths[:, None], plan.d, axis=1)
    seen = mask.reshape(N, cells) & inside
    hidden = inside & ~seen
    k = hidden.sum(1)
    empty = hidden.reshape(N, plan.T, plan.d).all(2).sum(1)
    values = np.where(seen, y.reshape(N, cells), 0.0)
    of_size, of_length = np.searchsorted(plan.sizes, k), np.searchsorted(plan.lengths, lengths)
    groups, place, start = [], np.zeros(plan.n, np.int32), 0
    for i, (size, width, blocks) in enumerate(
        zip(plan.sizes, plan.widths, plan.blocks, strict=True)
    ):
        slots, length = _slots(np.flatnonzero(of_size == i), of_length, width, blocks)
        taken = slots >= 0
        place[slots[taken]] = start + np.flatnonzero(taken)
        start += slots.size
        at = np.maximum(slots, 0)
        groups.append(
            Group(
                np.where(taken[..., None], values[at], 0.0).astype(dtype),
                np.where(taken[..., None], _cells(hidden, k, size)[at], cells + np.arange(size, dtype=np.int32)),
                np.where(taken, weights[at], 0.0).astype(dtype),
                length.astype(np.int32),
                np.where(taken, empty[at], 0).astype(dtype),
            )
        )  # fmt: skip
    within = (np.arange(plan.T) < plan.lengths[:, None]).astype(dtype)
    return Guarded(Filled(tuple(groups), within), spare, place)


def _slots(
    members: np.ndarray, of_length: np.ndarray, width: int, blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return which sequence has each place (blocks, width), -1 for none, and the length of each block."""
    order = members[np.argsort(of_length[members], kind="stable")]
    counts = np.bincount(of_length[order])
    of_each = -(-counts // width)  # blocks of a length
    first = (np.cumsum(of_each) - of_each) * width
    within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    slots = np.full(blocks * width, -1)
    slots[np.repeat(first, counts) + within] = order
    length = np.zeros(blocks, int)
    length[: of_each.sum()] = np.repeat(np.arange(len(counts)), of_each)
    return slots.reshape(blocks, width), length


def _cells(hidden: np.ndarray, k: np.ndarray, size: int) -> np.ndarray:
    """Return the missing cells (N, size) of each sequence, then T d, T d + 1, …; enough for those with up to `size`."""
    N, cells = hidden.shape
    found = np.tile(cells + np.arange(size, dtype=np.int32), (N, 1))
    row, cell = np.nonzero(hidden)
    within = np.arange(len(row)) - np.repeat(np.cumsum(k) - k, k)
    few = within < size
    found[row[few], within[few]] = cell[few]
    return found


def _filtered(
    plan: Plan,
    y: np.ndarray,
    mask: np.ndarray,
    lengths: np.ndarray,
    weights: np.ndarray,
    dtype: Any,
) -> Gappy:
    """Return sequences for the filter, in blocks."""
    width = min(plan.n, _WIDTH)
    more = -(-plan.n // width) * width - len(y)
    within = (np.arange(plan.T) < lengths[:, None])[..., None]
    observed = np.where(within, mask, True)

    def split(x, value):
        x = np.pad(x, [(0, more)] + [(0, 0)] * (x.ndim - 1), constant_values=value)
        x = x.reshape(-1, width, *x.shape[1:])
        return np.ascontiguousarray(np.moveaxis(x, 1, -1)).astype(dtype)

    values = np.where(mask & within, y, 0.0)
    return Gappy(split(values, 0), split(within[..., 0], 0), split(observed, 1), split(weights, 0))
