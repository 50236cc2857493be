"""A penalty on A as a NumPyro distribution over the matrices with its forced zeros."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, biject_to, constraints, transforms
from numpyro.util import not_jax_tracer

from .base import Penalty


class PriorDistribution(Distribution):
    """A `Penalty` as a NumPyro distribution over matrices (l, l).

    With forced zeros the support is the matrices of that pattern: NUTS moves the other entries only,
    and the site still has the whole A. Where the prior's fields are traced its pattern cannot be read: the
    support is every real matrix, and `log_prob` is -∞ off the pattern, unless `forced` (l, l) gives the pattern.
    """

    pytree_data_fields = ("prior", "_support")

    def __init__(
        self, prior: Penalty, n_states: int, forced=None, *, validate_args: bool | None = None
    ):
        self.prior, self._support = prior, constraints.real_matrix
        if forced is None and all(not_jax_tracer(x) for x in jax.tree.leaves(prior)):
            forced = prior.forced(n_states)
        if forced is not None and np.any(forced):
            self._support = ZeroPattern(forced)
        super().__init__((), (n_states, n_states), validate_args=validate_args)

    def log_prob(self, value, intermediates=None) -> Array:
        batch = jnp.shape(value)[:-2]
        if not batch:
            return self.prior.log_prob(value)
        flat = jnp.reshape(value, (-1, *self.event_shape))
        return jax.vmap(self.prior.log_prob)(flat).reshape(batch)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.prior.sample(key, self.event_shape[-1], sample_shape)


class ZeroPattern(constraints.Constraint):
    """Real matrices (l, l) that are zero where `forced` (l, l) is true."""

    event_dim = 2

    def __init__(self, forced):
        self.n_states = len(forced)
        self.free = tuple(np.flatnonzero(~np.asarray(forced)).tolist())  # compares by value

    @property
    def index(self):
        return np.array(self.free, int)

    def __call__(self, x):
        rest = np.delete(np.arange(self.n_states**2), self.index)
        flat = jnp.reshape(x, (*jnp.shape(x)[:-2], -1))
        return jnp.isfinite(flat).all(-1) & (flat[..., rest] == 0).all(-1)

    def eq(self, other, static=False):
        return isinstance(other, ZeroPattern) and vars(self) == vars(other)

    def tree_flatten(self):
        return (), ((), dict(vars(self)))


@biject_to.register(ZeroPattern)
class ScatterTransform(transforms.Transform):
    """The map from the entries of A that are not forced, a vector (m,), to A (l, l); log |det| = 0."""

    domain = constraints.real_vector  # type: ignore[assignment]
    codomain = property(lambda self: self.pattern)  # type: ignore[assignment]

    def __init__(self, pattern: ZeroPattern):
        self.pattern = pattern

    def __call__(self, x):
        flat = jnp.zeros((*x.shape[:-1], self.pattern.n_states**2), x.dtype)
        return flat.at[..., self.pattern.index].set(x).reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return jnp.reshape(y, (*jnp.shape(y)[:-2], -1))[..., self.pattern.index]

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return jnp.zeros(jnp.shape(x)[:-1])

    def forward_shape(self, shape):
        return (*shape[:-1], self.pattern.n_states, self.pattern.n_states)

    def inverse_shape(self, shape):
        return (*shape[:-2], len(self.pattern.free))

    def eq(self, other, static=False):
        return isinstance(other, ScatterTransform) and self.pattern.eq(other.pattern)

    def tree_flatten(self):
        return (self.pattern,), (("pattern",), {})
