"""The result of a fit: the parameters that it reached, how it got there, and why it stopped."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real

from ..models import LDSParams, Penalty
from .constraints import Constraints


class Stop(Enum):
    """The reasons why a fit stops; a value is the sentence for the user, and `text` fills in its numbers."""

    TOLERANCE = "converged: the optimality conditions hold to {residual:.1e}, tol is {tol:g}"
    MAX_ITER = (
        "stopped after max_iter = {max_iter} iterations, optimality conditions at {residual:.1e}"
    )
    INTERRUPTED = "interrupted; this is what was reached"
    NOT_FINITE = (
        "stopped: the next step would not be finite, or would lower the objective, a breakdown of arithmetic; this is "
        "the last point before it, optimality conditions at {residual:.1e}. Other starting values (init), data of "
        "another scale (cohort.standardize()) or priors='weak' may help"
    )
    DRIFT = "stopped: the scales of states drift apart, see warnings; optimality conditions at {residual:.1e}"

    def text(self, *, residual: float, tol: float, max_iter: int) -> str:
        """Return the reason as a sentence."""
        return self.value.format(residual=residual, tol=tol, max_iter=max_iter)


class FitResult(NamedTuple):
    """The result of a fit: where it ended, and why."""

    params: LDSParams
    objective: Real[np.ndarray, " n_iter"]  # log p(y | Ω) + log p(Ω) after each iteration
    stop: Stop
    reason: str  # `stop` as a sentence
    kkt_residual: float  # relative violation of the optimality conditions at the last EM step
    log_likelihood: float  # Σ log p(y_n | Ω)
    prior: Penalty  # on the A of the moving states
    constraints: Constraints  # to be given to another fit that is to keep the same
    steps: dict[str, int]  # how many of each kind: em, quasi-newton, basis
    warnings: tuple[str, ...]
    # the objective of each start when the best was chosen, if there were several
    restarts: Real[np.ndarray, " n_starts"]
    priors: Mapping[str, Any] = {}  # of the other parameters; none in the paper

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return len(self.objective)

    @property
    def converged(self) -> bool:
        """Whether the optimality conditions hold to the tolerance asked for."""
        return self.stop is Stop.TOLERANCE

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the fit."""
        return self.stop is Stop.INTERRUPTED

    @property
    def moving(self) -> LDSParams:
        """The part of the model that its moving states make up: all of it, but for own levels of the sequences."""
        return self.constraints.moving(self.params)

    @property
    def n_states(self) -> int:
        """The number of states that move, as it was asked for."""
        return self.constraints.n_moving(self.params)

    @property
    def zeros(self) -> np.ndarray:
        """The entries of A, (l, l), that are exactly where the prior pulls them: zero, but for priors with a centre.

        A is that of the states that move.
        """
        return self.prior.at_center(self.moving.A)

    @property
    def zeros_B(self) -> np.ndarray:
        """The entries of B, (l, p), of the states that move, that are exactly zero; none without inputs, (l, 0)."""
        B = self.moving.B
        return np.zeros((self.n_states, 0), bool) if B is None else np.asarray(B) == 0

    @property
    def _zero(self) -> str:
        return "at the prior's centre" if self.prior.center_of(self.n_states).any() else "zero"

    def __str__(self) -> str:
        A = np.asarray(self.moving.A)
        l, d = self.n_states, self.params.n_channels
        lines = [
            f"LDS of {l} states and {d} channels, prior of A: {self.prior}",
            f"{self.reason}, {self.n_iter} iterations",
            f"log-likelihood {self.log_likelihood:.4f}, objective {self.objective[-1]:.4f}",
            f"{int(self.zeros.sum())} of {A.size} entries of A are exactly {self._zero}",
        ]
        if "B" in self.priors:
            zeros = self.zeros_B
            lines.append(f"{int(zeros.sum())} of {zeros.size} entries of B are exactly zero")
        if self.constraints != Constraints():
            lines.append(f"kept: {self.constraints}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])
