"""A prior under which whole rows or columns of A vanish: the paper's future work."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .base import Piece
from .blocks import BlockPenalty, checked_beta


@dataclass(frozen=True, eq=False)
class GroupLaplace(BlockPenalty):
    """p(A) ∝ exp(−Σ_i beta_i ‖A_i‖₂) over the rows or columns A_i, which vanish as a whole.

    Row i has the effects on state i, column i the effects of state i.
    beta is a number, or (l,) with 0 for a free group and ∞ for one forced to zero.
    """

    beta: Any
    by: Literal["rows", "columns"]

    def __post_init__(self):
        object.__setattr__(self, "beta", checked_beta(self.beta, ndim=1))
        if self.by not in ("rows", "columns"):
            raise ValueError(f"by is {self.by!r}; it must be 'rows' or 'columns'")

    @property
    def blocks(self) -> Literal["rows", "columns"]:
        """The blocks over which the penalty is a sum: the rows or the columns, as `by` says."""
        return self.by

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the matrices in which the groups that are zero in A stay zero; the norms of the others are smooth."""
        axis = -1 if self.by == "rows" else -2
        beta = np.take(self._each_entry(len(A)).astype(float), [0], axis=axis)
        beta = np.where(np.isinf(beta), 0.0, beta)
        zero = np.broadcast_to(~(A != 0).any(axis, keepdims=True), A.shape)

        def evaluate(A):
            norms = np.sqrt((A * A).sum(axis, keepdims=True))
            return float((beta * norms).sum()), beta * A / np.where(norms > 0, norms, 1.0)

        return Piece(np.where(zero, 0.0, -np.inf), np.where(zero, 0.0, np.inf), evaluate)
