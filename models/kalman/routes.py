"""Which route each sequence of a cohort with gaps takes: the cost model, stated here alone; sequences to be filled in.

Costs are rough microseconds of value and gradient on a core, by hand from a few timings on a busy machine (l = 3 to 15,
N = 1 to 1000, T = 25 to 100): good to a factor of two. The route follows from the data and the number of states, so
that it is chosen once, on the host.
"""

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from .packing import MULTIPLE

WORTH = 500.0  # what a route of its own must save, for it is a program to compile
_STEP = 12.0  # a step of the filter, however few its sequences are
_MULTIPLE = 8  # k is filled up to a multiple of this
_BLOCK = 1 << 20  # entries of all K_mm of a block at most
_MOST_CELLS = 900  # T d up to which K is made: its memory grows with the square


class Route(Enum):
    """How a sequence goes through the E-step."""

    COMPLETE = "without gaps, compressed with the others of its length"
    FILLED = "missing cells filled in"
    OBSERVED = "by the law of its observed cells"
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
