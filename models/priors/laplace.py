"""The paper's prior on A: independent Laplace entries, whose MAP has exact zeros."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .blocks import EntryPenalty, checked_beta


@dataclass(frozen=True, eq=False)
class Laplace(EntryPenalty):
    """The prior A_ij ~ Laplace(0, 1/beta_ij), independent: SLDS, equation 4 of the paper.

    beta is a number, or (l, l) with 0 for a free entry and ∞ for one forced to zero.

    >>> prior = Laplace(2.0)
    >>> A = np.array([[0.5, -0.25], [0.0, 1.0]])
    >>> float(prior.value(A))  # the penalty
    3.5
    >>> np.asarray(prior.prox(A, step=0.125)).tolist()  # its soft threshold, by 2 · 0.125
    [[0.25, 0.0], [0.0, 0.75]]
    """

    beta: Any

    def __post_init__(self):
        object.__setattr__(self, "beta", checked_beta(self.beta, ndim=2))

    def expanded(self, n_states: int, dtype: Any) -> "Laplace":
        """Return the same prior with beta (l, l): one compiled program for a number and a matrix."""
        beta = np.broadcast_to(np.asarray(self.beta, dtype), (n_states, n_states))
        return Laplace(jnp.asarray(beta))
