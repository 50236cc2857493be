"""A penalty on A as a NumPyro distribution over the matrices with its forced entries."""

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

    With forced entries the support is the matrices that have them: NUTS moves the other entries only,
    and the site still has the whole A. Where the prior's fields are traced its pattern cannot be read: the
    support is every real matrix, and `log_prob` is -∞ off the pattern, unless `fixed` (l, l) gives the values of
    the forced entries, NaN for the others.
    """

    pytree_data_fields = ("prior", "_support")

    def __init__(
        self, prior: Penalty, n_states: int, fixed=None, *, validate_args: bool | None = None
    ):
        self.prior, self._support = prior, constraints.real_matrix
        if fixed is None and all(not_jax_tracer(x) for x in jax.tree.leaves(prior)):
            fixed = prior.fixed(n_states)
        if fixed is not None and np.isfinite(fixed).any():
            self._support = FixedPattern(fixed)
        super().__init__((), (n_states, n_states), validate_args=validate_args)

    def log_prob(self, value, intermediates=None) -> Array:
        batch = jnp.shape(value)[:-2]
        if not batch:
            return self.prior.log_prob(value)
        flat = jnp.reshape(value, (-1, *self.event_shape))
        return jax.vmap(self.prior.log_prob)(flat).reshape(batch)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.prior.sample(key, self.event_shape[-1], sample_shape)


class WithZeros(Distribution):
    """Independent entries of a matrix, and zeros where `zero` is true: NUTS moves the others only.

    `each` is the distribution of the entries, as a batch of scalars.
    """

    pytree_data_fields = ("each", "_support")

    def __init__(self, each, zero, *, validate_args: bool | None = None):
        zero = np.asarray(zero, bool)
        self.each = each.expand(zero.shape)
        self._support = FixedPattern(np.where(zero, 0.0, np.nan))
        super().__init__((), zero.shape, validate_args=validate_args)

    @constraints.dependent_property(event_dim=2)  # type: ignore[arg-type]
    def support(self):  # type: ignore[override]
        """The matrices with these zeros."""
        return self._support

    def _learned(self) -> Any:
        pattern: Any = self._support
        return np.isin(np.arange(np.prod(pattern.shape)), pattern.index).reshape(pattern.shape)

    def log_prob(self, value, intermediates=None) -> Array:
        """Return the log density of the entries that are not zero."""
        return jnp.where(self._learned(), self.each.log_prob(value), 0.0).sum((-2, -1))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw matrices, sample_shape + their shape."""
        return jnp.where(self._learned(), self.each.sample(key, sample_shape), 0.0)


class FixedPattern(constraints.Constraint):
    """Real matrices with given values where `fixed`, of their shape, is not NaN."""

    event_dim = 2

    def __init__(self, fixed):
        fixed = np.asarray(fixed, float)
        self.shape = fixed.shape
        self.free = tuple(np.flatnonzero(np.isnan(fixed)).tolist())  # compares by value
        self.values = tuple(fixed[~np.isnan(fixed)].tolist())

    @property
    def index(self):
        return np.array(self.free, int)

    @property
    def rest(self):
        return np.delete(np.arange(np.prod(self.shape)), self.index)

    def __call__(self, x):
        flat = jnp.reshape(x, (*jnp.shape(x)[:-2], -1))
        held = flat[..., self.rest] == np.array(self.values)
        return jnp.isfinite(flat).all(-1) & held.all(-1)

    def eq(self, other, static=False):
        return isinstance(other, FixedPattern) and vars(self) == vars(other)

    def tree_flatten(self):
        return (), ((), dict(vars(self)))


@biject_to.register(FixedPattern)
class ScatterTransform(transforms.Transform):
    """The map from the entries that are not fixed, a vector (m,), to the matrix; log |det| = 0."""

    domain = constraints.real_vector  # type: ignore[assignment]
    codomain = property(lambda self: self.pattern)  # type: ignore[assignment]

    def __init__(self, pattern: FixedPattern):
        self.pattern = pattern

    def __call__(self, x):
        base = np.zeros(np.prod(self.pattern.shape))
        base[self.pattern.rest] = self.pattern.values
        flat = jnp.broadcast_to(jnp.asarray(base, x.dtype), (*x.shape[:-1], len(base)))
        return flat.at[..., self.pattern.index].set(x).reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return jnp.reshape(y, (*jnp.shape(y)[:-2], -1))[..., self.pattern.index]

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return jnp.zeros(jnp.shape(x)[:-1])

    def forward_shape(self, shape):
        return (*shape[:-1], *self.pattern.shape)

    def inverse_shape(self, shape):
        return (*shape[:-2], len(self.pattern.free))

    def eq(self, other, static=False):
        return isinstance(other, ScatterTransform) and self.pattern.eq(other.pattern)

    def tree_flatten(self):
        return (self.pattern,), (("pattern",), {})
