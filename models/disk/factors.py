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
_LARGEST = 1e3  # sum of squares of rows, in units of those before: the digits that a Cholesky factor may lose
_SINGULAR = 1e6  # condition of a factor above which its inverse is not used
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
    """Rows (1, y) of one length, gathered into a triangular factor R.

    The first rows are factored by a QR. Later ones are seen in the coordinates in which the earlier ones are
    orthonormal, W = rows R⁻¹, where a sum of squares loses nothing: R'R + rows'rows = R'(I + W'W)R, and a Cholesky
    factor of I + W'W gives the next R. This is twice as fast as a QR of all rows, which is what happens where R is
    nearly singular, or rows are far larger than those before.
    """

    def __init__(self) -> None:
        self.n = 0  # sequences
        self._parts: list[
            np.ndarray
        ] = []  # rows that wait for a QR, the factor of earlier ones first
        self._inverse: np.ndarray | None = None  # of the factor, where W is of use
        self._gram = np.zeros((0, 0))  # W'W of the rows since

    def add(self, y: np.ndarray) -> None:
        """Add sequences y (n, cells), as rows (1, y)."""
        self.n += len(y)
        if self._inverse is not None:
            W = y @ self._inverse[1:]
            W += self._inverse[0]
            more = W.T @ W
            if more.diagonal().max() <= _LARGEST:
                self._gram += more
                if self._gram.diagonal().max() > _LARGEST:
                    self._settle()
                    self._orient()
                return
            self._settle()
        rows = np.empty((len(y), 1 + y.shape[1]))
        rows[:, 0] = 1.0
        rows[:, 1:] = y
        self._push(rows)

    def join(self, other: "Stack") -> None:
        """Add all sequences of another stack."""
        self.n += other.n
        self._settle()
        self._push(other.factor())

    def factor(self) -> np.ndarray:
        """Return the factor of all rows so far."""
        self._settle()
        if len(self._parts) > 1:
            self._parts = [triangular(np.concatenate(self._parts))]
        return self._parts[0]

    def _push(self, rows: np.ndarray) -> None:
        """Put rows to those that wait for a QR, and factor them if there are enough."""
        self._parts.append(rows)
        if sum(map(len, self._parts)) >= max(8 * rows.shape[1], _BLOCK):
            self._parts = [triangular(np.concatenate(self._parts))]
            self._orient()

    def _settle(self) -> None:
        """Put the rows that are in W'W into the factor."""
        if self._inverse is not None:
            half = np.linalg.cholesky(np.eye(len(self._gram)) + self._gram)
            self._parts, self._inverse = [half.T @ self._parts[0]], None

    def _orient(self) -> None:
        """Invert the factor, unless it is nearly singular."""
        R = self._parts[0]
        size = np.sqrt((R**2).sum(0))
        if not (size > 0).all() or np.linalg.cond(R / size) > _SINGULAR:
            return
        self._inverse = np.linalg.inv(R)
        self._gram = np.zeros_like(R)
