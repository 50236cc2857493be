"""The prior of B that a prior on A brings along: its entries, or whole inputs, may be exactly zero."""

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, random
from numpyro.distributions import constraints

FREE = (
    1e-6  # share of its β with which an intercept is drawn to zero: as good as free, and yet proper
)


class ColumnLaplace(dist.Distribution):
    """p(B) ∝ exp(-Σ_j ‖B_j‖₂ / scale_j) over the columns of B (l, p): whole inputs that act on no state.

    A fit with it as `priors={"B": ...}` has columns of B that are exactly zero; `GroupLaplace(..., beta_B=...)` brings
    it along.
    """

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support: Any = constraints.real_matrix
    pytree_data_fields = ("scale",)
    pytree_aux_fields = ("n_states",)

    def __init__(self, scale: Any, n_states: int, *, validate_args: bool | None = None):
        self.scale, self.n_states = jnp.asarray(scale), n_states
        if self.scale.ndim != 1:
            raise ValueError(f"scale has shape {self.scale.shape}; give one for each input, (p,)")
        shape = (n_states, self.scale.shape[0])
        super().__init__(batch_shape=(), event_shape=shape, validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        """Return log p(B), with the constant β^l Γ(l/2) / (2 π^{l/2} Γ(l)) of each column, β = 1 / scale."""
        l = self.n_states
        unit = math.lgamma(l / 2) - math.log(2) - l / 2 * math.log(math.pi) - math.lgamma(l)
        square = jnp.sum(jnp.asarray(value) ** 2, axis=-2)
        norms = jnp.sqrt(jnp.where(square == 0, 1.0, square)) * (square > 0)
        return jnp.sum(unit - l * jnp.log(self.scale) - norms / self.scale, axis=-1)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw B: each column has a uniform direction and a radius ~ Gamma(l, β)."""
        shape = (*sample_shape, *self.event_shape)
        direction, radius = random.split(key)
        x = random.normal(direction, shape)
        x = x / jnp.linalg.norm(x, axis=-2, keepdims=True)
        return self.scale * x * random.exponential(radius, shape).sum(-2, keepdims=True)


def beta_of_B(beta_B: Any, shape: tuple[int, ...], intercept: int | None) -> np.ndarray:
    """Return `beta_B` in full, (l, p) or (p,); one number leaves the intercept, a column, as good as free."""
    beta = np.asarray(beta_B, float)
    try:
        found = np.array(np.broadcast_to(beta, shape))
    except ValueError:
        raise ValueError(f"beta_B has shape {beta.shape}; give a number, or {shape}") from None
    if beta.ndim == 0 and intercept is not None:
        found[..., intercept] *= FREE
    return found


def without_column(x: np.ndarray, column: int | None) -> np.ndarray:
    """Return x (..., p) without one of its columns, or as it is."""
    return x if column is None else np.delete(x, column, axis=-1)
