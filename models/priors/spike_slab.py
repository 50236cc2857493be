"""Spike and slab on A: each entry is exactly at its centre, or comes from a wide normal distribution.

A Laplace posterior has no mass at zero, and cannot say that an entry is zero. This one can: P(A_ij = 0 | y) is the
direct counterpart of a zero of the MAP.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from .base import Symmetry
from .fields import checked_center, checked_diagonal, positive
from .hierarchical import HierarchicalPrior, conjugated


@dataclass(frozen=True)
class SpikeSlab(HierarchicalPrior):
    """The prior A_ij = M_ij + γ_ij u_ij with γ_ij ~ Bernoulli(ω), u_ij ~ N(0, slab²) and ω ~ Beta(a, b).

    - `slab` is the size of an entry that is not at its centre: 0.5 does not shrink what a stable A can have.
    - `center` M is 0, "identity", or a matrix (l, l), as in `Laplace`; `diagonal="free"` includes the diagonal always.
    - `a = b = 1` says nothing on how many entries are included.

    As a NumPyro model it has the discrete site `included` (γ); `sample_posterior` draws it, with ω and A, by a sampler
    of its own.
    """

    slab: float = 0.5
    a: float = 1.0
    b: float = 1.0
    center: Any = 0.0
    diagonal: str = "penalised"
    site_dims = {"A_slab": ("state", "from_state"), "included": ("state", "from_state")}

    def __post_init__(self):
        positive(self, "slab", "a", "b")
        object.__setattr__(self, "center", checked_center(self.center))
        checked_diagonal(self.diagonal)

    @classmethod
    def like(cls, prior: Any, slab: float = 0.5) -> "SpikeSlab":
        """Return spike and slab around what another prior pulls A to; a diagonal that it leaves free is included."""
        if isinstance(prior, cls):
            return prior
        base = getattr(prior, "base", prior)
        return cls(
            slab,
            center=getattr(base, "center", 0.0),
            diagonal=getattr(base, "diagonal", "penalised"),
        )

    def computed(self, n_states: int) -> Array:
        """Sample ω, γ and u, and return A."""
        shape = (n_states, n_states)
        omega = numpyro.sample("omega", dist.Beta(self.a, self.b))
        p = jnp.where(self._always(n_states), 1.0, omega)
        entries = dist.Bernoulli(p).to_event(2)
        included = numpyro.sample("included", entries, infer={"enumerate": "parallel"})
        u = numpyro.sample("A_slab", dist.Normal(jnp.zeros(shape), self.slab).to_event(2))
        return self.placed(u, included)

    def placed(self, u, included) -> Array:
        """Return A, which is M + u where an entry is included and M elsewhere, for u and γ (..., l, l)."""
        M = self._matrix(jnp.shape(u)[-1])
        return M + jnp.where(included, u, 0.0)

    def start(self, A) -> dict[str, Any]:
        """Return the sites at which A has the given value: all that is not at the centre is included."""
        u = jnp.asarray(A) - self._matrix(jnp.shape(A)[-1])
        return {"A_slab": u, "included": (u != 0) | self._always(u.shape[-1])}

    def center_of(self, n_states: int) -> np.ndarray:
        """Return M."""
        return np.array(self._matrix(n_states))

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), can be at the centre."""
        return ~self._always(n_states)

    @property
    def symmetry(self) -> Symmetry:
        """Order and signs of the states, but for a centre that is a matrix of its own, which tells them apart."""
        return "none" if np.ndim(self.center) else "signed permutations"

    def relabelled(self, sites: Mapping[str, np.ndarray], W: np.ndarray) -> dict[str, np.ndarray]:
        """Return γ and u in the states Wz."""
        included = conjugated(sites["included"].astype(float), np.abs(W)) > 0.5
        return {"A_slab": conjugated(sites["A_slab"], W), "included": included}

    def _always(self, n_states: int) -> np.ndarray:
        """Tell which entries are always included."""
        return np.eye(n_states, dtype=bool) & (self.diagonal == "free")

    def _matrix(self, n_states: int) -> Array:
        """Return M as a matrix (l, l)."""
        if isinstance(self.center, str):
            return jnp.eye(n_states)
        return jnp.broadcast_to(jnp.asarray(self.center, float), (n_states, n_states))

    def __str__(self) -> str:
        towards = (
            "I" if isinstance(self.center, str) else "a matrix" if np.ndim(self.center) else "0"
        )
        free = ", diagonal free" if self.diagonal == "free" else ""
        return f"SpikeSlab(at {towards} or N(·, {self.slab:g}²){free}, ω ~ Beta({self.a:g}, {self.b:g}))"
