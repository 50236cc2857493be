"""Complete sequences of one length as fewer pseudo-sequences with the same sums."""

import functools
from typing import Any

import numpy as np
import scipy.linalg

from ..cohort import Cohort
from .complete import Complete

_ROWS = 4096  # of a block of a QR, if it has few columns


def compress(cohort: Cohort, kept: np.ndarray | None = None) -> Complete:
    """Return pseudo-sequences with the same sums as a cohort without gaps, or as its sequences `kept`, in numpy.

    States are linear in (1, y), so the cohort enters its sums only through Σ (1, y)(1, y)', for each length T_n
    separately. Where more than T_n d + 1 sequences have one length, the triangular factor of a QR of their rows
    has that many rows and the same sums: the E-step's cost no longer grows with N. With inputs, rows are (1, y, u).
    """
    T, d = cohort.n_steps, cohort.n_channels
    kept = np.ones(len(cohort), bool) if kept is None else kept
    values, of_kept = np.asarray(cohort.y)[kept], np.asarray(cohort.lengths)[kept]
    inputs = None if cohort.u is None else np.asarray(cohort.u)[kept]
    p = cohort.n_inputs
    parts, lengths = [], []
    for length in np.unique(of_kept):
        y = values[of_kept == length, :length]
        rows = np.hstack([np.ones((len(y), 1)), y.reshape(len(y), -1)])
        if inputs is not None:
            u = inputs[of_kept == length, :length]
            rows = np.hstack([rows, u.reshape(len(u), -1)])
        if len(rows) > rows.shape[1]:
            rows = _triangular(rows)
        if inputs is not None:
            rows = _of_full_rank(rows)
        ends = np.split(rows, [1, 1 + length * d], axis=1)
        more = [0, (T - length) * d, (T - length) * p]
        padded = [np.pad(x, [(0, 0), (0, n)]) for x, n in zip(ends, more, strict=True)]
        parts.append(np.hstack(padded))
        lengths.append(np.full(len(rows), length))
    rows, length = np.concatenate(parts), np.concatenate(lengths)
    inside = np.arange(T)[:, None] < length
    n_t = (np.arange(T)[:, None] < of_kept).sum(1)
    y, u = (
        np.ascontiguousarray(np.moveaxis(x.reshape(len(rows), T, k), 0, -1))
        for x, k in zip(np.split(rows[:, 1:], [T * d], axis=1), (d, p), strict=True)
    )
    host: Any = y, inside.astype(float), rows[:, 0], np.ones(len(rows)), n_t
    return Complete(*host, u=u if p else None)  # numpy, not jax, since the result is cached


def _of_full_rank(rows: np.ndarray) -> np.ndarray:
    """Return as many rows with the same sums as there are independent columns: inputs may be constant, or repeat."""
    scale = np.sqrt((rows**2).sum(0))
    scale = np.where(scale > 0, scale, 1.0)
    factor: Any = scipy.linalg.qr(rows / scale, mode="r", pivoting=True)
    R, order = factor[0], factor[1]
    size = np.abs(np.diagonal(R))
    rank = int((size > 1e-15 * len(size) * size[0]).sum())
    found = np.zeros((rank, rows.shape[1]))
    found[:, order] = R[:rank]
    return found * scale if rank < len(rows) else rows


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
