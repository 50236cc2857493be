"""Sequences with gaps packed into blocks: by the number of their missing cells, or of their observed ones.

A block is a batch of small matrices of one size. Sizes are filled up, and so are blocks, by sequences of weight 0.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from . import filled, observed
from .skipping import MOST

MULTIPLE = 8  # sizes of matrices are filled up to a multiple of this
_MOST_SIZES = 4
_OF_ENTRY = 0.0155  # microseconds for each entry of a matrix to invert, of 8 x 8 to 96 x 96
_WORTH = 500.0  # microseconds that a further size must save: it is a program to compile
_BLOCK = 1 << 18  # entries of all matrices of a block at most: 2 MB, so that a block stays in cache


def pack_filled(
    y: np.ndarray, mask: np.ndarray, lengths: np.ndarray, weights: Any, dtype: Any
) -> tuple[filled.Filled, np.ndarray]:
    """Pack sequences y (N, T, d) to be filled in; return also where each of them is in `Filled.sequences`."""
    N, T, d = y.shape
    inside, seen = _cells(mask, lengths)
    distinct = np.unique(lengths)
    empty = (inside & ~seen).reshape(N, T, d).all(2).sum(1)
    values = np.where(seen, y.reshape(N, -1), 0.0)

    def group(slots, taken, k):
        return filled.Group(
            values[slots],
            _first(inside & ~seen, k)[slots],
            jnp.asarray(weights, dtype)[slots] * taken,  # weights may be traced
            np.searchsorted(distinct, lengths[slots[:, 0]]),
            empty[slots].astype(float),
        )

    groups, place = _groups((inside & ~seen).sum(1), lengths, group, dtype)
    return filled.Filled(groups, jnp.asarray(np.arange(T) < distinct[:, None], dtype)), place


def pack_observed(
    y: np.ndarray, mask: np.ndarray, lengths: np.ndarray, weights: Any, dtype: Any
) -> tuple[observed.Observed, np.ndarray]:
    """Pack sequences y (N, T, d) with few observed cells; return also where each is in `Observed.sequences`."""
    N, T, d = y.shape
    _, seen = _cells(mask, lengths)
    distinct = np.unique(lengths)
    of_length = np.searchsorted(distinct, lengths)
    values = np.where(seen, y.reshape(N, -1), 0.0)

    def group(slots, taken, k):
        cells = _first(seen, k)
        filler = np.pad(values, [(0, 0), (0, k)])  # where fewer than k cells are observed
        return observed.Group(
            np.take_along_axis(filler, cells, axis=1)[slots],
            cells[slots],
            jnp.asarray(weights, dtype)[slots] * taken,
            of_length[slots],
        )

    groups, place = _groups(seen.sum(1), np.zeros(N, int), group, dtype)
    w = jnp.asarray(weights, dtype)
    n_lengths = jnp.zeros(len(distinct), dtype).at[of_length].add(w)
    n_emissions = jnp.asarray(seen.reshape(N, T, d).any(2).sum(1), dtype) @ w
    inside = jnp.asarray(np.arange(T) < distinct[:, None], dtype)
    return observed.Observed(groups, inside, n_lengths, n_emissions), place


def kept_steps(mask: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return which steps (N, T) the filter keeps: see `skipping`."""
    N, T, _ = mask.shape
    t = np.arange(T)
    kept = mask.any(2) & (t < lengths[:, None])
    kept[:, 0] = True
    kept[np.arange(N), np.maximum(lengths - 1, 0)] = True
    last = np.maximum.accumulate(np.where(kept, t, 0), axis=1)  # the last kept step up to t
    return kept | ((t - last) % MOST == 0) & (t < lengths[:, None])


def sizes_of(k: np.ndarray, times: float = 1.0) -> np.ndarray:
    """Return the size (N,) that each sequence's matrix is filled up to: of up to four sizes, those that cost least.

    A size is a program to compile: it must save more than `_WORTH` in each E-step, in which every sequence stands for
    `times` of its kind.
    """
    rounded = np.maximum(-(-k // MULTIPLE), 1) * MULTIPLE
    sizes, count = np.unique(rounded, return_counts=True)
    many = np.cumsum(count) * times
    # best[j]: the least cost of the sequences up to size j, and its sizes
    best = [(_cost(sizes[j], many[j]), (j,)) for j in range(len(sizes))]
    for _ in range(_MOST_SIZES - 1):
        best = [
            min(
                [best[j]]
                + [
                    (best[i][0] + _cost(sizes[j], many[j] - many[i]) + _WORTH, (*best[i][1], j))
                    for i in range(j)
                ]
            )
            for j in range(len(sizes))
        ]
    chosen = sizes[list(best[-1][1])]
    return chosen[np.searchsorted(chosen, rounded)]


def _cost(size: int, n: float) -> float:
    """Return the microseconds of n matrices of a size: inverse, and the way there and back."""
    return _OF_ENTRY * size**2 * n


def _cells(mask: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells (N, T d) are inside the sequences, and which of these are observed."""
    N, T, d = mask.shape
    inside = np.repeat(np.arange(T) < lengths[:, None], d, axis=1)
    return inside, mask.reshape(N, -1) & inside


def _first(where: np.ndarray, k: int) -> np.ndarray:
    """Return the cells (N, k) `where` it is true, in order, then T d, T d + 1, …; k of them are enough for some."""
    N, cells = where.shape
    found = np.tile(cells + np.arange(k), (N, 1))
    order = np.argsort(~where, axis=1, kind="stable")[:, :k]
    width = order.shape[1]
    is_one = np.arange(width) < where.sum(1)[:, None]
    found[:, :width] = np.where(is_one, order, found[:, :width])
    return found.astype(np.int32)


def _groups(
    k: np.ndarray, kind: np.ndarray, group: Any, dtype: Any
) -> tuple[tuple[Any, ...], np.ndarray]:
    """Pack sequences with matrices of size k (N,) into groups by size, and blocks by kind (N,)."""
    size = sizes_of(k)
    groups, place, start = [], np.zeros(len(k), int), 0
    for of_group in np.unique(size):
        slots, taken = _slots(np.flatnonzero(size == of_group), kind, int(of_group))
        place[slots[taken]] = start + np.flatnonzero(taken)
        start += slots.size
        found = group(slots, taken, int(of_group))
        arrays = (jnp.asarray(x, dtype if x.dtype.kind == "f" else jnp.int32) for x in found)
        groups.append(type(found)(*arrays))
    return tuple(groups), place


def _slots(members: np.ndarray, kind: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which sequence has each place (B, n) of blocks of one kind, and which places are taken.

    The first sequence of a kind stands in for none.
    """
    parts = [members[kind[members] == x] for x in np.unique(kind[members])]
    counts = np.array([len(part) for part in parts])
    sizes = [n for n in (8, 16, 32, 64, 128) if n == 8 or n * k**2 <= _BLOCK]
    n = sizes[int(np.argmin([(-(-counts // n)).sum() * (n + 8) for n in sizes]))]
    more = [(0, -len(part) % n) for part in parts]
    pairs = list(zip(parts, more, strict=True))
    slots = [np.pad(part, m, constant_values=part[0]) for part, m in pairs]
    taken = [np.pad(np.ones(len(part), bool), m) for part, m in pairs]
    return np.concatenate(slots).reshape(-1, n), np.concatenate(taken).reshape(-1, n)
