"""Where a fit ended, and why."""

from typing import NamedTuple

import numpy as np

from ..models import LDSParams, Prior
from .map.mstep import Spec

REASONS = {
    "tolerance": "converged: the optimality conditions hold to {residual:.1e}, tol is {tol:g}",
    "max_iter": "stopped after max_iter = {max_iter} iterations, optimality conditions at {residual:.1e}",
    "interrupted": "interrupted; this is what was reached",
    "not finite": "the objective is not finite",
    "drift": "stopped: the scales of single states drift apart, see warnings; optimality conditions at {residual:.1e}",
}


class FitResult(NamedTuple):
    """Where a fit ended, and why."""

    params: LDSParams
    objective: np.ndarray  # (n_iter,), log p(y | Ω) + log p(A) after each iteration
    n_iter: int
    converged: bool
    reason: str
    kkt_residual: float  # relative violation of the optimality conditions at the last EM step
    log_likelihood: float  # Σ log p(y_n | Ω)
    prior: Prior
    spec: Spec
    steps: dict[str, int]  # how many of each kind: em, quasi-newton, basis
    warnings: tuple[str, ...]
    restarts: np.ndarray  # the objective of each start when the best was chosen, if several

    def __str__(self) -> str:
        A, beta = np.asarray(self.params.A), np.asarray(self.prior.beta)
        l, d = self.params.n_states, len(self.params.C)
        range_ = f"β = {beta.min():.4g}" + (f" to {beta.max():.4g}" if beta.ndim else "")
        lines = [
            f"LDS of {l} states and {d} channels, prior of A: {type(self.prior).__name__}({range_})",
            f"{self.reason}, {self.n_iter} iterations",
            f"log-likelihood {self.log_likelihood:.4f}, objective {self.objective[-1]:.4f}",
            f"{int((A == 0).sum())} of {A.size} entries of A are exactly zero",
        ]
        if self.spec.hold:
            lines.append(f"held: {', '.join(self.spec.hold)}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.reason == REASONS["interrupted"]
