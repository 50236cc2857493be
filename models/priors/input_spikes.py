"""Spike and slab on B: which input moves which state, with exact zeros among the draws."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.infer import Predictive

from .spike_slab import SpikeSlab


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["prior", "scale"],
    meta_fields=["columns", "n_inputs", "n_static"],
)
@dataclass(frozen=True, eq=False)
class InputSpikes:
    """A `SpikeSlab` on the entries of B that are there: B_ij = γ_ij u_ij with u_ij ~ N(0, (slab s_ij)²).

    - `scale` s (k, p') is the usual size of an entry, so that one slab serves inputs and states of any units.
    - `columns` are the p' inputs that act on states, of p in all; `n_static` states below the k others have none.

    It has the sites omega_B, included_B (γ), B_slab (u), and B, which is computed from them.
    """

    prior: Any  # a SpikeSlab, of which the centre is 0
    scale: Any
    columns: tuple[int, ...]
    n_inputs: int
    n_static: int = 0

    @classmethod
    def of(cls, prior: SpikeSlab, scale: Any, columns: Any, n_inputs: int, n_static: int = 0):
        """Return `prior` on B; raise if it is around anything but 0."""
        if np.any(prior.center_of(1)) or prior.diagonal == "free":
            raise ValueError(
                f"priors['B'] is {prior}; entries of B are 0 or from the slab: give SpikeSlab(slab)"
            )
        return cls(prior, jnp.asarray(scale), tuple(map(int, columns)), n_inputs, n_static)

    @property
    def widths(self) -> Array:
        """The standard deviations of the slabs, (k, p')."""
        return self.prior.slab * jnp.asarray(self.scale)

    def site(self) -> Array:
        """Sample ω, γ and u, and return B, which is the deterministic site `B`."""
        width = self.widths
        omega = numpyro.sample("omega_B", dist.Beta(self.prior.a, self.prior.b))
        entries = dist.Bernoulli(jnp.broadcast_to(omega, width.shape)).to_event(2)
        included = numpyro.sample("included_B", entries, infer={"enumerate": "parallel"})
        u = numpyro.sample("B_slab", dist.Normal(jnp.zeros(width.shape), width).to_event(2))
        B: Any = numpyro.deterministic("B", self.placed(u, included))
        return B

    def placed(self, u, included) -> Array:
        """Return B (l, p): u where an entry is included, 0 elsewhere."""
        kept = jnp.where(included, u, 0.0)
        B = jnp.zeros((kept.shape[0] + self.n_static, self.n_inputs), kept.dtype)
        return B.at[: kept.shape[0], jnp.asarray(self.columns)].set(kept)

    def start(self, B) -> dict[str, Any]:
        """Return the sites at which B has the given value."""
        B = jnp.asarray(B)
        u = B[: len(B) - self.n_static, jnp.asarray(self.columns)]
        return {"B_slab": u, "included_B": u != 0}

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw B from the prior, (n, l, p)."""
        draw = Predictive(self.site, num_samples=sample_shape[0], return_sites=["B"])
        found: Any = draw(key)["B"]
        return found

    def __str__(self) -> str:
        return f"{self.prior} on B, in usual sizes"
