"""Priors on A with parameters of their own, which only NUTS can read: β unknown, and the horseshoe.

They are not penalties: the joint mode of A and its scales is degenerate, so that there is no MAP to compute.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from .base import Prior
from .laplace import Laplace

_ENTRIES = ("state", "from_state")


class HierarchicalPrior(Prior):
    """A prior of several NumPyro sites, with A as a deterministic site computed from them."""

    symmetry = "signed permutations"


@dataclass(frozen=True)
class GammaLaplace(HierarchicalPrior):
    """The prior β ~ Gamma(shape, rate), A_ij | β ~ Laplace(0, 1/β): how sparse A is, is learned with A.

    Sampled as A = A_unit / β (non-centred), since a small A and a large β go together.
    """

    shape: float
    rate: float
    site_dims = {"A_unit": _ENTRIES}

    def __post_init__(self):
        _positive(self, "shape", "rate")

    def site(self, n_states: int) -> Array:
        beta = numpyro.sample("beta", dist.Gamma(self.shape, self.rate))
        unit = numpyro.sample("A_unit", Laplace(1.0).distribution(n_states))
        A: Any = numpyro.deterministic("A", unit / beta)
        return A

    def start(self, A) -> dict[str, Any]:
        beta = jnp.asarray(self.shape / self.rate, jnp.asarray(A).dtype)
        return {"beta": beta, "A_unit": A * beta}

    def relabelled(self, sites, W) -> dict[str, np.ndarray]:
        return {"A_unit": _moved(sites["A_unit"], W)}


@dataclass(frozen=True)
class Horseshoe(HierarchicalPrior):
    """The regularised horseshoe (Piironen and Vehtari, 2017): A_ij = u_ij τ λ~_ij with u ~ N(0, 1).

    τ ~ HalfCauchy(scale) pulls all entries to zero, λ_ij ~ HalfCauchy(1) lets single ones escape, and a slab of width
    `slab`, c² ~ InverseGamma(ν/2, ν slab²/2) with ν = 4, keeps those from growing: λ~² = c²λ² / (c² + τ²λ²).
    """

    scale: float = 0.1
    slab: float = 1.0
    site_dims = {"A_unit": _ENTRIES, "lambda": _ENTRIES}

    def __post_init__(self):
        _positive(self, "scale", "slab")

    def site(self, n_states: int) -> Array:
        tau = numpyro.sample("tau", dist.HalfCauchy(self.scale))
        c2 = numpyro.sample("slab2", dist.InverseGamma(2.0, 2.0 * jnp.square(self.slab)))
        shape = (n_states, n_states)
        lam = numpyro.sample("lambda", dist.HalfCauchy(jnp.ones(shape)).to_event(2))
        u = numpyro.sample("A_unit", dist.Normal(jnp.zeros(shape), 1.0).to_event(2))
        A: Any = numpyro.deterministic("A", u * tau * _regularised(lam, tau, c2))
        return A

    def start(self, A) -> dict[str, Any]:
        A = jnp.asarray(A)
        tau, c2 = jnp.asarray(self.scale, A.dtype), jnp.asarray(self.slab, A.dtype) ** 2
        # λ such that u is near ±1; λ is not far from 1 where A is zero
        lam = jnp.clip(jnp.abs(A) / tau, 0.5, 50.0)
        return {
            "tau": tau,
            "slab2": c2,
            "lambda": lam,
            "A_unit": A / (tau * _regularised(lam, tau, c2)),
        }

    def relabelled(self, sites, W) -> dict[str, np.ndarray]:
        return {
            "A_unit": _moved(sites["A_unit"], W),
            "lambda": _moved(sites["lambda"], np.abs(W)),  # scales have no sign
        }


def _moved(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return W X W' of every draw."""
    return W @ X @ W.swapaxes(-1, -2)


def _regularised(lam, tau, c2):
    """Return λ~, with λ~² = c²λ² / (c² + τ²λ²)."""
    return lam * jnp.sqrt(c2 / (c2 + (tau * lam) ** 2))


def _positive(prior, *names: str) -> None:
    """Raise unless the named fields are positive numbers."""
    for name in names:
        value = getattr(prior, name)
        if not (isinstance(value, int | float) and value > 0 and jnp.isfinite(value)):
            raise ValueError(f"{name} is {value!r}; it must be a positive number")
