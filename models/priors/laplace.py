"""The paper's prior on A: independent Laplace entries, whose MAP has exact zeros."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .blocks import EntryPenalty
from .fields import checked_beta, checked_center, checked_diagonal, checked_positive
from .input_groups import beta_of_B, without_column


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(EntryPenalty):
    """The prior A_ij ~ Laplace(M_ij, 1/beta_ij), independent: SLDS, equation 4 of the paper, where M = 0.

    - `beta` is a number, or (l, l) with 0 for a free entry and ∞ for one forced to the centre.
    - `center` M is what A is pulled to: 0, "identity", or a matrix (l, l). A - M has the exact zeros.
    - `diagonal="free"` leaves the diagonal without a penalty.
    - `beta_B` is a number, or (l, p), for the entries of B of a model with inputs: B_ij ~ Laplace(0, 1/beta_B_ij), so
      that B has exact zeros too. A fit reads it as `priors={"B": ...}`; None leaves B without a prior. A number is not
      for an intercept, which is as good as free (a millionth of it); a matrix is taken as it is.

    `Laplace(beta)` is the paper's. `Laplace.off_diagonal` and `Laplace.towards_persistence` keep what a state
    remembers of itself.

    >>> prior = Laplace(2.0)
    >>> A = jnp.array([[0.5, -0.25], [0.0, 1.0]])
    >>> float(prior.value(A))  # the penalty
    3.5
    >>> prior.prox(A, step=0.125).tolist()  # its soft threshold, by 2 · 0.125
    [[0.25, 0.0], [0.0, 0.75]]
    >>> Laplace.towards_persistence(2.0).prox(A, step=0.125).tolist()
    [[0.75, 0.0], [0.0, 1.0]]
    """

    beta: Any
    center: Any = 0.0
    diagonal: str = "penalised"
    beta_B: Any = None

    def __post_init__(self):
        object.__setattr__(self, "beta", checked_beta(self.beta, ndim=2))
        object.__setattr__(self, "center", checked_center(self.center))
        checked_diagonal(self.diagonal)
        if self.beta_B is not None:
            object.__setattr__(self, "beta_B", checked_positive("beta_B", self.beta_B, "(l, p)"))

    @classmethod
    def off_diagonal(cls, beta: Any, beta_B: Any = None) -> "Laplace":
        """Return the prior that pulls links between states to 0, and leaves each state's own memory free."""
        return cls(beta, diagonal="free", beta_B=beta_B)

    @classmethod
    def towards_persistence(cls, beta: Any, beta_B: Any = None) -> "Laplace":
        """Return the prior that pulls A to the identity: at a large beta each state is a random walk.

        Of such a local-level model, carrying the last value forward is a limit.
        """
        return cls(beta, center="identity", beta_B=beta_B)

    def prior_of_B(self, n_states: int, n_inputs: int, intercept: int | None = None) -> Any:
        """Return the prior of B (l, p) as a NumPyro distribution, or None."""
        if self.beta_B is None or n_inputs == 0:
            return None
        scale = 1 / beta_of_B(self.beta_B, (n_states, n_inputs), intercept)
        return dist.Laplace(jnp.zeros(scale.shape), jnp.asarray(scale)).to_event(2)

    def beta_max_of_B(self, gradient: np.ndarray, intercept: int | None = None) -> float:
        """Return the largest |gradient_ij| / beta_B_ij, but for an intercept's column."""
        ratio = np.abs(gradient) / beta_of_B(self.beta_B, gradient.shape, None)
        return float(without_column(ratio, intercept).max(initial=0.0))

    def expanded(self, n_states: int, dtype: Any) -> "Laplace":
        """Return the same prior with beta and centre (l, l): one compiled program for all of its forms."""
        if (
            type(self) is not Laplace
        ):  # a class of a user's own, which may differ in more than its fields
            return self
        beta = self._each_entry(n_states).astype(dtype)
        return Laplace(jnp.asarray(beta), jnp.asarray(self.center_of(n_states), dtype))
