"""Complete sequences of one length as fewer pseudo-sequences with the same sums."""

import functools
from typing import Any

import numpy as np

from ..cohort import Cohort
from .complete import Complete

_ROWS = 4096  # of a block of a QR, if it has few columns


def compress(cohort: Cohort, kept: np.ndarray | None = None) -> Complete:
    """Return pseudo-sequences with the same sums as a cohort without gaps, or as its sequences `kept`, in numpy.

    States are linear in (1, y), so the cohort enters its sums only through Σ (1, y)(1, y)', for each length T_n
    separately. Where more than T_n d + 1 sequences have one length, the triangular factor of a QR of their rows
    has that many rows and the same sums: the E-step's cost no longer grows with N.
    """
    T, d = cohort.n_steps, cohort.n_channels
    kept = np.ones(len(cohort), bool) if kept is None else kept
    values, of_kept = np.asarray(cohort.y)[kept], np.asarray(cohort.lengths)[kept]
    parts, lengths = [], []
    for length in np.unique(of_kept):
        y = values[of_kept == length, :length]
        rows = np.hstack([np.ones((len(y), 1)), y.reshape(len(y), -1)])
        if len(rows) > rows.shape[1]:
            rows = _triangular(rows)
        parts.append(np.pad(rows, [(0, 0), (0, (T - length) * d)]))
        lengths.append(np.full(len(rows), length))
    rows, length = np.concatenate(parts), np.concatenate(lengths)
    inside = np.arange(T)[:, None] < length
    n_t = (np.arange(T)[:, None] < of_kept).sum(1)
    y = np.moveaxis(rows[:, 1:].reshape(-1, T, d), 0, -1)
    host: Any = np.ascontiguousarray(y), inside.astype(float), rows[:, 0], np.ones(len(rows)), n_t
    return Complete(*host)  # numpy, not jax, since the result is cached


def _triangular(rows: np.ndarray) -> np.ndarray:
    """Return the triangular factor of a QR of many rows: block by block, each small enough to stay in cache."""
    block = max(_ROWS, 4 * rows.shape[1])
    R: Any = np.linalg.qr(rows[:block], mode="r")
    for start in range(block, len(rows), block):
        R = np.linalg.qr(np.concatenate([R, rows[start : start + block]]), mode="r")
    return R


class _Same:
    """A cohort as a cache key: by identity, since cohorts never change."""

    def __init__(self, cohort: Cohort):
        self.cohort = cohort

    def __hash__(self):
        return id(self.cohort)

    def __eq__(self, other):
        return self.cohort is other.cohort


@functools.lru_cache(maxsize=8)
def _cached(same: _Same) -> Complete:
    return compress(same.cohort)


def compressed(cohort: Cohort) -> Complete:
    """Return the compressed cohort, from the cache if it is there."""
    return _cached(_Same(cohort))
