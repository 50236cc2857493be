"""The normal prior on A, a ridge: smooth, without zeros; it stands in for a prior with kinks."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .base import Penalty


@dataclass(frozen=True, eq=False)
class NormalPrior(Penalty):
    """The prior A_ij ~ N(center_ij, 1 / precision_ij), independent; an entry with precision 0 is free, ∞ forced."""

    precision: Any  # (l, l)
    center: Any  # (l, l)
    blocks = "entries"

    @classmethod
    def like(cls, prior: Any, A: np.ndarray) -> "NormalPrior | None":
        """Return a normal prior with the centre and variances that another one has around A; None if unknown."""
        precision = prior.majorant(A).curvature(len(A))
        return None if precision is None else cls(np.asarray(precision), prior.center_of(len(A)))

    def value(self, A) -> Array:
        """Return ½ Σ precision_ij (A_ij - center_ij)²."""
        return 0.5 * jnp.sum(self._finite() * (jnp.asarray(A) - self.center) ** 2, (-2, -1))

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return A drawn to the centre by the share precision · step / (1 + precision · step)."""
        forced = jnp.isinf(self.precision)
        share = 1 / (1 + self._finite() * step)
        return jnp.where(forced, self.center, self.center + share * (jnp.asarray(A) - self.center))

    def log_constant(self, n_states: int) -> Array:
        """Return Σ ½ log(precision / 2π) over the entries that are neither free nor forced."""
        inside = (jnp.asarray(self.precision) > 0) & ~jnp.isinf(self.precision)
        return jnp.sum(
            jnp.where(
                inside, 0.5 * jnp.log(jnp.where(inside, self.precision, 1.0) / (2 * jnp.pi)), 0.0
            )
        )

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries are forced to the centre."""
        return np.isinf(np.asarray(self.precision))

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the centre."""
        return np.array(self.center, float)

    def curvature(self, n_states: int) -> np.ndarray:
        """Return zeros: there is no kink."""
        return np.zeros((n_states, n_states))

    @property
    def is_proper(self) -> bool:
        """Whether no entry is free."""
        return bool((np.asarray(self.precision) > 0).all())

    def _finite(self) -> Array:
        return jnp.where(jnp.isinf(jnp.asarray(self.precision)), 0.0, jnp.asarray(self.precision))
