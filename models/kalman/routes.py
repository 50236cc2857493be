"""Which route each sequence of a cohort with gaps takes: the cost model, stated here alone.

Costs are microseconds of processor time, the mean of an E-step and of value with gradient, fitted to what
`python benchmarks routes` measures. The route follows from the data and the number of states, so that it is chosen
once, on the host.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np

from .packing import MULTIPLE, kept_steps

WORTH = 500.0  # what a route of its own must save, for it is a program to compile
_MOST_CELLS = 900  # T d up to which the law of all cells is made: its memory grows with the square


class Route(Enum):
    """How a sequence goes through the E-step."""

    COMPLETE = "without gaps, compressed with the others of its length"
    FILLED = "missing cells filled in"
    OBSERVED = "by the law of its observed cells"
    FILTERED = "a recursion of its own"
    SKIPPED = "a recursion over its kept steps"


class Gaps(NamedTuple):
    """What the costs depend on, of each sequence with gaps."""

    length: np.ndarray  # (N,)
    k: np.ndarray  # (N,) missing cells
    kept: np.ndarray  # (N,) steps that a filter keeps which skips the others


def count_gaps(mask: np.ndarray, lengths: np.ndarray) -> Gaps:
    """Count the gaps of each sequence, mask (N, T, d)."""
    inside = np.arange(mask.shape[1]) < lengths[:, None]
    missing = ~mask & inside[..., None]
    return Gaps(lengths, missing.sum((1, 2)), kept_steps(mask, lengths).sum(1))


# for each route, the constants of its `terms`; those of the two filters are rounded by hand from fewer cohorts
COSTS = {
    Route.COMPLETE: (5.0, 0.02),
    Route.FILTERED: (6.0, 0.25, 0.016, 0.0),
    Route.SKIPPED: (6.0, 0.3, 0.02, 0.0),
    Route.FILLED: (20.7, 0.0113, 0.0, 0.095, 0.0162, 2.4e-5, 3.6e-4),
    Route.OBSERVED: (35.5, 0.0, 7e-5, 4.3, 0.0144, 5.3e-5),
}


def terms(route: Route, gaps: Gaps, l: int, d: int) -> np.ndarray:
    """Return what the cost of sequences on a route is a sum of, with the constants `COSTS`.

    A step of a pass over sequences costs something however few they are. The filter has products of l x l matrices for
    each step of each sequence. The law of all T d cells has as many rows and columns, for each length where cells are
    filled in; then each sequence has a matrix of its k missing, or observed, cells to invert.
    """
    longest = int(gaps.length.max())
    if route in (Route.FILTERED, Route.SKIPPED):
        T = longest if route is Route.FILTERED else int(gaps.kept.max())
        steps = T * -(-len(gaps.length) // 8) * 8.0
        return np.array([T, steps, steps * l**2, steps * l**3])
    if route is Route.OBSERVED:
        T = np.array([longest], float)
        k = gaps.length * d - gaps.k
    else:
        T = np.unique(gaps.length).astype(float)
        k = gaps.k
    law = [T.sum(), (T**2).sum() * d * l]
    if route is Route.COMPLETE:
        return np.array(law)
    by_size = np.maximum(-(-k // MULTIPLE), 1.0) * MULTIPLE
    law.append(((T * d) ** 2).sum() * (longest * l if route is Route.OBSERVED else longest * d))
    each = [float(len(k)), (by_size**2).sum(), (by_size**3).sum()]
    if route is Route.FILLED:
        each.append(((gaps.length * float(d)) ** 2).sum())  # a product with the law's matrix
    return np.array(law + each)


def route_cost(route: Route, gaps: Gaps, l: int, d: int) -> float:
    """Return the cost of sequences that all take one route."""
    return float(terms(route, gaps, l, d) @ COSTS[route])


def total_cost(route: np.ndarray, gaps: Gaps, l: int, d: int) -> float:
    """Return the cost of a cohort whose sequences take these routes (N,), with what each program costs at first."""
    cost = 0.0
    for name in set(route):
        part = Gaps(*(x[route == name] for x in gaps))
        dense = name in (Route.FILLED, Route.OBSERVED)  # they have the filter as a spare
        cost += WORTH * (1 + dense) + route_cost(name, part, l, d)
    return cost


def choose_routes(gaps: Gaps, l: int, d: int) -> np.ndarray:
    """Return the route of each sequence, (N,): the cheapest of a few assignments.

    All sequences are filtered, or those with few missing cells are filled in, or those with few observed cells go by
    these, or both. Complete sequences are compressed, or go with the others.
    """
    able = gaps.length * d <= _MOST_CELLS
    seen = gaps.length * d - gaps.k
    routes = []
    for name in (Route.FILTERED, Route.SKIPPED):
        filtered = np.full(len(gaps.length), name)
        routes.append(filtered)
        for route, k in ((Route.FILLED, gaps.k), (Route.OBSERVED, seen)):
            limits = np.unique(np.quantile(k, [0.25, 0.5, 0.75, 1.0]))
            routes += [_with(filtered, able & (k <= most), route) for most in limits]
        both = _with(filtered, able & (seen < gaps.k), Route.OBSERVED)
        routes.append(_with(both, able & (seen >= gaps.k), Route.FILLED))
    routes += [_with(route, gaps.k == 0, Route.COMPLETE) for route in routes]
    return min(routes, key=lambda route: total_cost(route, gaps, l, d))


def _with(routes: np.ndarray, where: np.ndarray, route: Route) -> np.ndarray:
    """Return the routes, another one for the sequences `where`."""
    found = routes.copy()
    found[where] = route
    return found
