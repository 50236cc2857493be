"""The prior of B as a posterior keeps it, so that what the data added can be told from the draws alone."""

import json
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from scipy.stats import norm

from ...models import Prior, SpikeSlab
from ...models.priors import InputSpikes
from ...models.priors.distribution import WithZeros


class InputPrior(NamedTuple):
    """The prior of B: independent entries of one family."""

    family: str  # "normal", "laplace" or "spike and slab"
    scale: np.ndarray  # (l, p): of the density, or of the slab; NaN for entries that are not there
    spikes: SpikeSlab | None = None

    def density_at_zero(self, h: Any = 0.0) -> np.ndarray:
        """Return the density of each entry at 0, (l, p), smoothed by normal kernels of widths h."""
        if self.family == "laplace":  # E φ(x / h) / h for x ~ Laplace(0, scale)
            r = h / self.scale
            return np.exp(0.5 * r**2 + norm.logcdf(-r)) / self.scale
        return 1 / np.sqrt(2 * np.pi * (self.scale**2 + h**2))

    def draws(self, n: int) -> np.ndarray:
        """Draw B from the prior, (n, l, p), the same at every call."""
        rng, shape = np.random.default_rng(0), (n, *self.scale.shape)
        if self.family == "laplace":
            return rng.laplace(size=shape) * self.scale
        u = rng.normal(size=shape) * self.scale
        if self.spikes is None:
            return u
        omega = rng.beta(float(self.spikes.a), float(self.spikes.b), (n, 1, 1))
        return np.where(rng.random(shape) < omega, u, 0.0)


def described(prior: Any) -> str:
    """Return the prior of B as a text for `input_prior`; empty if it has no form that can be kept."""
    if isinstance(prior, InputSpikes):
        width = np.asarray(prior.widths, float)
        scale = np.full((len(width) + prior.n_static, prior.n_inputs), np.nan)
        scale[: len(width), list(prior.columns)] = width
        found = {"family": "spike and slab", "spikes": prior.prior.to_dict()}
    else:
        zeros = isinstance(prior, WithZeros)
        each = prior.each if zeros else getattr(prior, "base_dist", prior)
        base = getattr(each, "base_dist", each)  # within what `expand` made
        if not isinstance(base, dist.Normal | dist.Laplace) or np.any(np.asarray(base.loc)):
            return ""
        scale = np.broadcast_to(np.asarray(base.scale, float), prior.event_shape)
        if zeros:
            scale = np.where(prior._learned(), scale, np.nan)
        found = {"family": "normal" if isinstance(base, dist.Normal) else "laplace"}
    kept = [[None if np.isnan(x) else float(x) for x in row] for row in scale]
    return json.dumps({**found, "scale": kept})


def input_prior(attrs: Any) -> InputPrior | None:
    """Return the prior of B from the attributes of a posterior; None if it is unknown."""
    text = str(attrs.get("prior_B_json", ""))
    if not text:
        return None
    found = json.loads(text)
    spikes: Any = Prior.from_dict(found["spikes"]) if "spikes" in found else None
    return InputPrior(found["family"], np.array(found["scale"], float), spikes)
