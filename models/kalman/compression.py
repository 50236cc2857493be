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
    has that many rows and the same sums: the E-step's cost no longer grows with N. With inputs, rows are (u, 1, y),
    and no more of them than inputs have columns need have any inputs: these come first.
    """
    T, d, p = cohort.n_steps, cohort.n_channels, cohort.n_inputs
    kept = np.ones(len(cohort), bool) if kept is None else kept
    y, of_kept = np.asarray(cohort.y)[kept], np.asarray(cohort.lengths)[kept]
    u = np.zeros((len(y), T, 0)) if cohort.u is None else np.asarray(cohort.u)[kept]
    parts, lengths = [], []
    for length in np.unique(of_kept):
        of_length = of_kept == length
        n = int(of_length.sum())
        of_u = u[of_length, :length].reshape(n, length * p)
        of_y = y[of_length, :length].reshape(n, length * d)
        rows = np.hstack([of_u, np.ones((n, 1)), of_y])
        if len(rows) > rows.shape[1]:
            rows = _triangular(rows)
        if p:
            rows = _inputs_first(rows, length * p)
        ends = np.split(rows, [length * p, length * p + 1], axis=1)
        more = [(T - length) * p, 0, (T - length) * d]
        padded = [np.pad(x, [(0, 0), (0, k)]) for x, k in zip(ends, more, strict=True)]
        parts.append(np.hstack(padded))
        lengths.append(np.full(len(rows), length))
    rows, length = np.concatenate(parts), np.concatenate(lengths)
    has_inputs = (rows[:, : T * p] != 0).any(1)
    order = np.argsort(~has_inputs, kind="stable")
    rows, length = rows[order], length[order]
    u, unit, y = np.split(rows, [T * p, T * p + 1], axis=1)
    inside = np.arange(T)[:, None] < length
    n_t = (np.arange(T)[:, None] < of_kept).sum(1)
    u = u[: has_inputs.sum()]
    y, u = (
        np.ascontiguousarray(np.moveaxis(x.reshape(len(x), T, k), 0, -1))
        for x, k in ((y, d), (u, p))
    )
    host: Any = y, inside.astype(float), unit[:, 0], None, n_t
    return Complete(*host, u=u if p else None)  # numpy, not jax, since the result is cached


def _inputs_first(rows: np.ndarray, n: int) -> np.ndarray:
    """Return rows with the same sums, of which as few as can be are not 0 in the first n columns, those of inputs.

    And as few as can be at all: inputs may be constant, or repeat. Rows that are few enough stay as they are.
    """
    size = np.sqrt((rows**2).sum(0))
    size = np.where(size > 0, size, 1.0)
    rows = rows / size
    Q, u = _pivoted(rows[:, :n])
    if len(u) == len(rows):
        return rows * size
    rest = Q.T @ rows[:, n:]
    _, free = _pivoted(rest[len(u) :])
    rest = np.vstack([rest[: len(u)], free])
    return np.hstack([np.pad(u, [(0, len(free)), (0, 0)]), rest]) * size


def _pivoted(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q and R with rows = Q R for columns of size 1 or less, and of R only rows that are not mere rounding."""
    factor: Any = scipy.linalg.qr(rows, pivoting=True)
    Q, R, order = factor
    size = np.abs(np.diagonal(R))
    rank = int((size > 1e-15 * len(size)).sum())
    found = np.zeros((rank, rows.shape[1]))
    found[:, order] = R[:rank]
    return Q, found


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
