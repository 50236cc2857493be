"""A prior under which whole rows or columns of A vanish: the paper's future work."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .base import Piece
from .blocks import BlockPenalty
from .fields import checked_beta, checked_center, checked_diagonal


@dataclass(frozen=True, eq=False, repr=False)
class GroupLaplace(BlockPenalty):
    """p(A) ∝ exp(−Σ_i beta_i ‖A_i‖₂) over the rows or columns A_i, which vanish as a whole.

    Row i has the effects on state i, column i the effects of state i.
    beta is a number, or (l,) with 0 for a free group and ∞ for one forced to zero.
    """

    beta: Any
    by: Literal["rows", "columns"]
    center: Any = 0.0
    diagonal: str = "penalised"

    def __post_init__(self):
        object.__setattr__(self, "beta", checked_beta(self.beta, ndim=1))
        object.__setattr__(self, "center", checked_center(self.center))
        checked_diagonal(self.diagonal)
        if self.by not in ("rows", "columns"):
            raise ValueError(f"by is {self.by!r}; it must be 'rows' or 'columns'")

    @classmethod
    def off_diagonal(cls, beta: Any, by: Literal["rows", "columns"]) -> "GroupLaplace":
        """Return the prior whose groups leave out the diagonal, which is free."""
        return cls(beta, by, diagonal="free")

    @classmethod
    def towards_persistence(cls, beta: Any, by: Literal["rows", "columns"]) -> "GroupLaplace":
        """Return the prior that pulls the rows or columns of A to those of the identity."""
        return cls(beta, by, center="identity")

    @property
    def blocks(self) -> Literal["rows", "columns"]:
        """The blocks over which the penalty is a sum: the rows or the columns, as `by` says."""
        return self.by

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the matrices in which the groups that are zero in A stay zero; the norms of the others are smooth."""
        axis = -1 if self.by == "rows" else -2
        M, own = self.center_of(len(A)), np.eye(len(A), dtype=bool) & (self.diagonal == "free")
        beta = np.asarray(self.norms(A)[0], float)  # one a group
        beta = np.where(np.isinf(beta), 0.0, beta)
        zero = (
            ~np.where(own, False, A != M).any(axis, keepdims=True) & ~own
        )  # with what is free left out

        def evaluate(A):
            D = np.where(own, 0.0, A - M)
            norms = np.sqrt((D * D).sum(axis, keepdims=True))
            return float((beta * norms).sum()), beta * D / np.where(norms > 0, norms, 1.0)

        return Piece(np.where(zero, M, -np.inf), np.where(zero, M, np.inf), evaluate)
