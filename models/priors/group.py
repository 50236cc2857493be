"""A prior under which whole rows or columns of A vanish: the paper's future work."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .base import Piece
from .blocks import BlockPenalty
from .fields import checked_beta, checked_center, checked_diagonal, checked_positive
from .input_groups import ColumnLaplace, beta_of_B, without_column


@dataclass(frozen=True, eq=False, repr=False)
class GroupLaplace(BlockPenalty):
    """p(A) ∝ exp(−Σ_i beta_i ‖A_i‖₂) over the rows or columns A_i, which vanish as a whole.

    Row i has the effects on state i, column i the effects of state i.
    beta is a number, or (l,) with 0 for a free group and ∞ for one forced to zero. `beta_B` is a number, or (p,), for
    the columns of B of a model with inputs, p(B) ∝ exp(−Σ_j beta_B_j ‖B_j‖₂): an input vanishes from all states at
    once. None leaves B without a prior; a number is not for an intercept, which is as good as free.
    """

    beta: Any
    by: Literal["rows", "columns"]
    center: Any = 0.0
    diagonal: str = "penalised"
    beta_B: Any = None

    def __post_init__(self):
        object.__setattr__(self, "beta", checked_beta(self.beta, ndim=1))
        object.__setattr__(self, "center", checked_center(self.center))
        checked_diagonal(self.diagonal)
        if self.by not in ("rows", "columns"):
            raise ValueError(f"by is {self.by!r}; it must be 'rows' or 'columns'")
        if self.beta_B is not None:
            object.__setattr__(self, "beta_B", checked_positive("beta_B", self.beta_B, "(p,)"))

    @classmethod
    def off_diagonal(
        cls, beta: Any, by: Literal["rows", "columns"], beta_B: Any = None
    ) -> "GroupLaplace":
        """Return the prior whose groups leave out the diagonal, which is free."""
        return cls(beta, by, diagonal="free", beta_B=beta_B)

    @classmethod
    def towards_persistence(
        cls, beta: Any, by: Literal["rows", "columns"], beta_B: Any = None
    ) -> "GroupLaplace":
        """Return the prior that pulls the rows or columns of A to those of the identity."""
        return cls(beta, by, center="identity", beta_B=beta_B)

    def prior_of_B(self, n_states: int, n_inputs: int, intercept: int | None = None) -> Any:
        """Return the prior of B (l, p) as a NumPyro distribution, or None."""
        if self.beta_B is None or n_inputs == 0:
            return None
        return ColumnLaplace(1 / beta_of_B(self.beta_B, (n_inputs,), intercept), n_states)

    def beta_max_of_B(self, gradient: np.ndarray, intercept: int | None = None) -> float:
        """Return the largest ‖gradient_j‖₂ / beta_B_j over the columns, but for an intercept's."""
        norms = np.linalg.norm(gradient, axis=0)
        ratio = norms / beta_of_B(self.beta_B, norms.shape, None)
        return float(without_column(ratio, intercept).max(initial=0.0))

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
