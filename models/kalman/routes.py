"""Which route each sequence of a cohort with gaps takes: the cost model, stated here alone; sequences to be filled in.

Costs are rough microseconds of value and gradient on a core, by hand from a few timings on a busy machine (l = 3 to 15,
N = 1 to 1000, T = 25 to 100): good to a factor of two. The route follows from the data and the number of states, so
that it is chosen once, on the host.
"""

from enum import Enum
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .filled import Filled, Group

WORTH = 500.0  # what a route of its own must save, for it is a program to compile
_STEP = 12.0  # a step of the filter, however few its sequences are
_MULTIPLE = 8  # k is filled up to a multiple of this
_BLOCK = 1 << 20  # entries of all K_mm of a block at most
_MOST_CELLS = 900  # T d up to which K is made: its memory grows with the square


class Route(Enum):
    """How a sequence goes through the E-step."""

    COMPLETE = "without gaps, compressed with the others of its length"
    FILLED = "missing cells filled in"
    FILTERED = "a recursion of its own"


class Gaps(NamedTuple):
    """What the costs depend on, of each sequence with gaps."""

    length: np.ndarray  # (N,)
    k: np.ndarray  # (N,) missing cells
    empty: np.ndarray  # (N,) steps without an observed cell


def count_gaps(mask: np.ndarray, lengths: np.ndarray) -> Gaps:
    """Count the gaps of each sequence, mask (N, T, d)."""
    inside = np.arange(mask.shape[1]) < lengths[:, None]
    missing = ~mask & inside[..., None]
    return Gaps(lengths, missing.sum((1, 2)), missing.all(2).sum(1))


def filter_cost(length: Any, l: int) -> Any:
    """Return the cost of a sequence with a recursion of its own: products of l x l matrices at each step."""
    return length * (0.3 + 0.015 * l**2)


def filled_cost(gaps: Gaps, l: int, d: int) -> Any:
    """Return the cost of a sequence that is filled in: the inverse of K_mm, a product with K, and its empty steps."""
    k = np.maximum(-(-gaps.k // _MULTIPLE), 1) * _MULTIPLE
    inverse = 4 + 0.012 * k**2 + 2.4e-4 * k**3
    return inverse + 2e-4 * (gaps.length * d) ** 2 + gaps.empty * 1.2e-3 * l * k**2


def length_cost(T: int, l: int, d: int) -> float:
    """Return what a length costs whatever the number of its sequences: its K, and the E-step of 2 T d + 2 columns."""
    return T * (10 + 0.04 * T * d * l)


def total_cost(route: np.ndarray, gaps: Gaps, l: int, d: int) -> float:
    """Return the cost of a cohort whose sequences take these routes (N,), with what each route costs to begin with."""
    filtered, filled = route == Route.FILTERED, route == Route.FILLED
    cost = WORTH * (len(set(route)) + filled.any())  # what is filled in has the filter as a spare
    if filtered.any():
        cost += _STEP * gaps.length[filtered].max() + filter_cost(gaps.length[filtered], l).sum()
    cost += filled_cost(gaps, l, d)[filled].sum()
    for kind, share in (
        (filled, 1.0),
        (route == Route.COMPLETE, 0.5),
    ):  # half: nothing is filled in
        cost += share * sum(length_cost(int(T), l, d) for T in np.unique(gaps.length[kind]))
    return float(cost)


def choose_routes(gaps: Gaps, l: int, d: int) -> np.ndarray:
    """Return the route of each sequence, (N,): the cheapest of a few assignments.

    All are filtered; or those are filled in for which that is cheaper, of lengths that are worth a K, or all that can
    be; and complete sequences are compressed or go with the others.
    """
    none = np.full(len(gaps.length), Route.FILTERED)
    gain = filter_cost(gaps.length, l) - filled_cost(gaps, l, d)
    able = gaps.length * d <= _MOST_CELLS
    worth = able & (gain > 0)
    for T in np.unique(gaps.length[worth]):
        of_length = worth & (gaps.length == T)
        worth[of_length] = gain[of_length].sum() > length_cost(int(T), l, d)
    routes = [none, _with(none, worth, Route.FILLED), _with(none, able, Route.FILLED)]
    routes += [_with(route, gaps.k == 0, Route.COMPLETE) for route in routes]
    return min(routes, key=lambda route: total_cost(route, gaps, l, d))


def _with(routes: np.ndarray, where: np.ndarray, route: Route) -> np.ndarray:
    """Return the routes, another one for the sequences `where`."""
    found = routes.copy()
    found[where] = route
    return found


def sizes_of(k: np.ndarray) -> np.ndarray:
    """Return the size (N,) that each sequence's K_mm is filled up to: two sizes, with the least Σ size³, or one."""
    rounded = np.maximum(-(-k // _MULTIPLE), 1) * _MULTIPLE
    largest = rounded.max()
    choices = [np.where(rounded <= size, size, largest) for size in np.unique(rounded)]
    costs = [(x.astype(float) ** 3).sum() for x in choices]  # the last has one size
    best = int(np.argmin(costs))
    # a second size is a second program: it must save a tenth
    return choices[best if costs[best] < 0.9 * costs[-1] else -1]


def arrange_filled(
    y: np.ndarray, mask: np.ndarray, lengths: np.ndarray, weights: Any, dtype: Any
) -> tuple[Filled, np.ndarray]:
    """Arrange sequences y (N, T, d) to be filled in; return also where each of them is in `Filled.sequences`."""
    N, T, d = y.shape
    gaps = count_gaps(mask, lengths)
    size = sizes_of(gaps.k)
    distinct = np.unique(lengths)
    groups, place, start = [], np.zeros(N, int), 0
    for k in np.unique(size):
        group, slots = _group(y, mask, lengths, np.flatnonzero(size == k), int(k), distinct)
        B, n = slots.shape
        at = np.flatnonzero(slots.reshape(-1) >= 0)
        place[slots.reshape(-1)[at]] = start + at
        start += B * n
        arrays = (jnp.asarray(x, dtype if x.dtype.kind == "f" else None) for x in group)
        w = jnp.asarray(weights, dtype)[slots] * (slots >= 0)  # weights may be traced
        groups.append(Group(*arrays)._replace(weights=w))
    inside = np.arange(T) < distinct[:, None]
    return Filled(tuple(groups), jnp.asarray(inside, dtype)), place


def _group(y, mask, lengths, chosen, k, distinct) -> tuple[Group, np.ndarray]:
    """Return the sequences `chosen` in blocks of one length, and which sequence has each place (B, n), -1 for none."""
    _, T, d = y.shape
    cells = T * d
    n = _block_size(lengths[chosen], k)
    slots, of_block = [], []
    for i, length in enumerate(distinct):
        members = chosen[lengths[chosen] == length]
        for first in range(0, len(members), n):
            part = members[first : first + n]
            slots.append(np.pad(part, (0, n - len(part)), constant_values=-1))
            of_block.append(i)
    slots = np.array(slots)
    B = len(slots)
    taken = slots.reshape(-1) >= 0
    members = slots.reshape(-1)[taken]
    inside = (np.arange(T) < lengths[members, None])[..., None]
    missing = ~mask[members] & inside
    values, hidden = np.zeros((B * n, cells)), np.tile(cells + np.arange(k), (B * n, 1))
    values[taken] = np.where(mask[members] & inside, y[members], 0.0).reshape(-1, cells)
    flat = missing.reshape(-1, cells)
    first = np.argsort(~flat, axis=1, kind="stable")[
        :, :k
    ]  # the missing cells in order, then others
    width = first.shape[1]
    is_missing = np.arange(width) < flat.sum(1)[:, None]
    hidden[taken, :width] = np.where(is_missing, first, cells + np.arange(width))

    empty = np.zeros(B * n)
    empty[taken] = missing.all(2).sum(1)
    blocks = values.reshape(B, n, cells), hidden.reshape(B, n, k).astype(np.int32)
    of_blocks = np.array(of_block, np.int32)
    return Group(*blocks, np.zeros((B, n)), of_blocks, empty.reshape(B, n)), slots


def _block_size(lengths: np.ndarray, k: int) -> int:
    """Return how many sequences a block has: many, but few that fill up, and bounded memory."""
    counts = np.unique(lengths, return_counts=True)[1]
    sizes = [n for n in (8, 16, 32, 64, 128) if n == 8 or n * k**2 <= _BLOCK]
    padded = [(-(-counts // n)).sum() * (n + 8) for n in sizes]
    return sizes[int(np.argmin(padded))]
