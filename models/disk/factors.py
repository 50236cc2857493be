"""Triangular factors of complete sequences, row by row: all that EM needs of them, by one pass over the data.

States are linear in (1, y), so that sequences of one length enter the E-step by Σ (1, y)(1, y)' alone (see
models/kalman/compression.py). The factor R of a QR of their rows has the same sums, R'R, without squaring what is
large: it is made block by block, and factors of blocks, files or processes are stacked and factored again.
"""

from typing import Any

import numpy as np
from scipy.linalg import lapack

_BLOCK = 1024  # rows of a QR: small enough to stay in cache
_STACK = 16  # factors that are stacked
_LAPACK: Any = lapack


def triangular(rows: np.ndarray) -> np.ndarray:
    """Return the triangular factor of rows (n, k), or the rows if there are no more than columns."""
    n, k = rows.shape
    if n <= k:
        return rows
    size = max(_BLOCK, 8 * k)
    blocks = [_factor(rows[i : i + size]) for i in range(0, n, size)]
    while len(blocks) > 1:
        groups = [blocks[i : i + _STACK] for i in range(0, len(blocks), _STACK)]
        blocks = [_factor(np.concatenate(group)) for group in groups]
    return blocks[0]


def _factor(rows: np.ndarray) -> np.ndarray:
    """Return the factor of one block."""
    n, k = rows.shape
    if n <= k:
        return rows
    # LAPACK wants columns, and its own place for them: numpy.linalg.qr copies more, and took twice as long
    found = _LAPACK.dgeqrf(np.array(rows, order="F"), lwork=64 * k, overwrite_a=1)[0]
    return np.triu(found[:k])


class Stack:
    """Rows of one length that are gathered, and factored whenever there are enough of them."""

    def __init__(self) -> None:
        self.n = 0  # sequences
        self._parts: list[np.ndarray] = []
        self._waiting = 0

    def add(self, y: np.ndarray) -> None:
        """Add sequences y (n, cells), as rows (1, y)."""
        rows = np.empty((len(y), 1 + y.shape[1]))
        rows[:, 0] = 1.0
        rows[:, 1:] = y
        self._push(rows, len(y))

    def join(self, other: "Stack") -> None:
        """Add all sequences of another stack."""
        self._push(other.factor(), other.n)

    def factor(self) -> np.ndarray:
        """Return the factor of all rows so far."""
        if len(self._parts) > 1:
            self._parts = [triangular(np.concatenate(self._parts))]
        return self._parts[0]

    def _push(self, rows: np.ndarray, n: int) -> None:
        self.n += n
        self._parts.append(rows)
        self._waiting += len(rows)
        if self._waiting >= max(8 * rows.shape[1], _BLOCK):
            self._parts = [triangular(np.concatenate(self._parts))]
            self._waiting = 0
