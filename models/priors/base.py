"""Priors on the transition matrix A: a penalty with a prox to MAP-EM, a distribution to NUTS.

One object has both readings, so that the two cannot disagree. Each prior is a sum over blocks g
of A, its entries, rows or columns:

    −log p(A) = Σ_g beta_g ‖A_g‖₂ − log constant

A block with beta = 0 is free: flat, improper. One with beta = ∞ is forced to zero: a point mass.
Neither has a constant, so `log_prob` is a density over the other blocks.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array, lax, random
from numpyro.distributions import Distribution, biject_to, constraints, transforms
from numpyro.util import not_jax_tracer


class Prior:
    """What the priors share. A is (l, l), or a batch (..., l, l)."""

    beta: Any
    _axis: int | None = None  # the axis along which a block extends; None: each entry is a block

    def value(self, A) -> Array:
        """The penalty Σ_g beta_g ‖A_g‖₂, (...). Its gradient takes 0 where A_g = 0."""
        beta, norms = self._blocks(A)
        # Not the product alone: ∞ · 0 is NaN, and so would be its gradient.
        return jnp.sum(jnp.where(norms == 0, 0.0, beta) * norms, axis=(-2, -1))

    def prox(self, A, step: Any = 1.0) -> Array:
        """argmin_X ½‖X − A‖²_F + step · value(X): blockwise soft threshold, with exact zeros.

        X_g = A_g max(0, 1 − step beta_g / ‖A_g‖₂). `step` is one number, or one for each block.
        A block with beta = ∞ is zero whatever the step.
        """
        A = _floating(A)
        beta, norms = self._blocks(A)
        forced = jnp.isinf(beta)
        step = jnp.broadcast_to(jnp.asarray(step, A.dtype), norms.shape)
        threshold = jnp.where(forced, jnp.inf, step * jnp.where(forced, 0.0, beta))
        kept = norms > threshold
        shrink = jnp.where(kept, (norms - threshold) / jnp.where(kept, norms, 1.0), 0.0)
        X = A * shrink  # a product, so that NaN in A stays visible
        return jnp.where(X == 0, 0.0, X)  # no −0.0

    def log_prob(self, A) -> Array:
        """log p(A), (...)."""
        A = _floating(A)
        return self.log_constant(A.shape[-1]).astype(A.dtype) - self.value(A)

    def log_constant(self, n_states: int) -> Array:
        """Σ_g log [ beta_g^k Γ(k/2) / (2 π^{k/2} Γ(k)) ] over 0 < beta_g < ∞, blocks of size k.

        One over (surface of the unit sphere · ∫ r^{k−1} exp(−beta r) dr); beta / 2 for k = 1.
        """
        beta, _ = self._blocks(jnp.zeros((n_states, n_states)))
        k = 1 if self._axis is None else n_states
        unit = math.lgamma(k / 2) - math.log(2) - k / 2 * math.log(math.pi) - math.lgamma(k)
        proper = (beta > 0) & (beta < jnp.inf)
        return jnp.sum(jnp.where(proper, k * jnp.log(jnp.where(proper, beta, 1.0)) + unit, 0.0))

    def forced(self, n_states: int) -> np.ndarray:
        """Which entries of A must be zero, (l, l); beta must be concrete."""
        shape = (n_states, n_states)
        with jax.ensure_compile_time_eval():
            return np.isinf(np.broadcast_to(self._blocks(jnp.zeros(shape))[0], shape))

    @property
    def is_proper(self) -> bool:
        """Whether no block is free; beta must be concrete."""
        return bool(np.all(np.asarray(self.beta) > 0))

    def scaled(self, factor) -> "Prior":
        """The prior with factor · beta, factor > 0: free stays free, forced stays forced."""
        return replace(self, beta=factor * self.beta)  # type: ignore[type-var]

    def distribution(self, n_states: int | None = None) -> "PriorDistribution":
        """The NumPyro distribution of A; n_states is needed where beta is a number."""
        if n_states is None:
            if not jnp.ndim(self.beta):
                raise ValueError("n_states is None; give it, as beta is one number and has no size")
            n_states = jnp.shape(self.beta)[-1]
        return PriorDistribution(self, n_states)

    def site(self, n_states: int) -> Array:
        """The site `A` of a NumPyro model."""
        A: Any = numpyro.sample("A", self.distribution(n_states))
        return A

    def start(self, A) -> dict[str, Any]:
        """Values of the sites for a given A."""
        return {"A": A}

    def sample(self, key, n_states: int | None = None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of A, sample_shape + (l, l)."""
        return self.distribution(n_states).sample(key, sample_shape)

    def _blocks(self, A) -> tuple[Array, Array]:
        """beta and ‖A_g‖₂ of every block, both (..., l, l), (..., l, 1) or (..., 1, l)."""
        A = _floating(A)
        norms = jnp.abs(A) if self._axis is None else _norm(A, self._axis)
        beta = jnp.asarray(self.beta, A.dtype)  # A decides the precision
        if beta.ndim and beta.shape[-1] != A.shape[-1]:
            raise ValueError(f"beta has shape {beta.shape}, which does not fit A, {A.shape}")
        if self._axis is not None and beta.ndim == 1:
            beta = jnp.expand_dims(beta, self._axis)
        return jnp.broadcast_to(beta, norms.shape), norms


@dataclass(frozen=True, eq=False)
class Flat(Prior):
    """p(A) ∝ 1, every entry free: OLDS."""

    beta = 0.0

    def scaled(self, factor) -> "Flat":
        return self


@dataclass(frozen=True, eq=False)
class Laplace(Prior):
    """A_ij ~ Laplace(0, 1/beta_ij), independent: SLDS, equation 4 of the paper.

    beta is a number, or (l, l) with 0 for a free entry and ∞ for one that must be zero.

    >>> prior = Laplace(2.0)
    >>> A = np.array([[0.5, -0.25], [0.0, 1.0]])
    >>> float(prior.value(A))  # the penalty
    3.5
    >>> np.asarray(prior.prox(A, step=0.125)).tolist()  # its soft threshold, by 2 · 0.125
    [[0.25, 0.0], [0.0, 0.75]]
    """

    beta: Any

    def __post_init__(self):
        object.__setattr__(self, "beta", _checked(self.beta, ndim=2))


@dataclass(frozen=True, eq=False)
class GroupLaplace(Prior):
    """p(A) ∝ exp(−Σ_i beta_i ‖A_i‖₂) over the rows or columns A_i, which vanish as a whole.

    Row i is what drives state i, column i is what state i drives.
    beta is a number, or (l,) with 0 for a free group and ∞ for one that must be zero.
    """

    beta: Any
    by: Literal["rows", "columns"]

    def __post_init__(self):
        object.__setattr__(self, "beta", _checked(self.beta, ndim=1))
        if self.by not in ("rows", "columns"):
            raise ValueError(f"by is {self.by!r}; it must be 'rows' or 'columns'")

    @property
    def _axis(self) -> int:  # type: ignore[override]
        return -1 if self.by == "rows" else -2


class PriorDistribution(Distribution):
    """A `Prior` as a NumPyro distribution over matrices (l, l).

    With forced zeros the support is the matrices of that pattern: NUTS moves the free entries only,
    and the site still holds the whole A. Where beta is traced its pattern cannot be read: the
    support is every real matrix, and `log_prob` is −∞ off the pattern, unless `forced` (l, l) gives it.
    """

    pytree_data_fields = ("prior", "_support")

    def __init__(
        self, prior: Prior, n_states: int, forced=None, *, validate_args: bool | None = None
    ):
        shape = (n_states, n_states)
        self.prior, self._support = prior, constraints.real_matrix
        if forced is None and not_jax_tracer(prior.beta):
            forced = prior.forced(n_states)
        if forced is not None and np.any(forced):
            self._support = _ZeroPattern(forced)
        super().__init__((), shape, validate_args=validate_args)

    def log_prob(self, value, intermediates=None) -> Array:
        return self.prior.log_prob(value)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Each block has a uniform direction and a radius ~ Gamma(k, beta)."""
        prior, shape = self.prior, (*sample_shape, *self.event_shape)
        if not_jax_tracer(prior.beta) and not prior.is_proper:
            # The type of error on which NumPyro's initialisation falls back to a uniform start.
            raise NotImplementedError(
                f"{type(prior).__name__} with a beta of 0 is flat, and cannot be sampled: "
                "give every entry a beta > 0, or give A itself"
            )
        if prior._axis is None:
            X = random.laplace(key, shape)
            beta, _ = prior._blocks(X)
        else:
            direction, radius = random.split(key)
            X = random.normal(direction, shape)
            beta, norms = prior._blocks(X)
            X = X / jnp.where(norms == 0, 1.0, norms)
            # Gamma(k) as a sum of k exponentials: random.gamma takes seconds to compile.
            X = X * random.exponential(radius, shape).sum(prior._axis, keepdims=True)
        return jnp.where(jnp.isinf(beta), 0.0, X / beta)


class _ZeroPattern(constraints.Constraint):
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
        return isinstance(other, _ZeroPattern) and vars(self) == vars(other)

    def tree_flatten(self):
        return (), ((), dict(vars(self)))


@biject_to.register(_ZeroPattern)
class _ScatterTransform(transforms.Transform):
    """The free entries of A, a vector (m,), to A (l, l) with zeros elsewhere; log |det| = 0."""

    domain = constraints.real_vector  # type: ignore[assignment]
    codomain = property(lambda self: self.pattern)  # type: ignore[assignment]

    def __init__(self, pattern: _ZeroPattern):
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
        return isinstance(other, _ScatterTransform) and self.pattern.eq(other.pattern)

    def tree_flatten(self):
        return (self.pattern,), (("pattern",), {})


def _floating(A) -> Array:
    A = jnp.asarray(A)
    return A.astype(jnp.result_type(A, float))


def _norm(A: Array, axis: int) -> Array:
    """‖·‖₂ along an axis, which stays with size 1; gradient 0 at 0."""
    # Relative to the largest entry: squares of small entries would underflow to a false zero.
    largest = lax.stop_gradient(jnp.abs(A).max(axis, keepdims=True))
    zero = largest == 0
    squares = jnp.sum((A / jnp.where(zero, 1.0, largest)) ** 2, axis, keepdims=True)
    return largest * jnp.sqrt(jnp.where(zero, 1.0, squares))


def _checked(beta, ndim: int):
    """beta as a float, or as an array with `ndim` equal axes; its values unless it is traced."""
    if not isinstance(beta, jax.Array):
        try:
            beta = np.array(beta, float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"beta is {beta!r}; give a number or an array of numbers") from error
    shape = beta.shape
    if shape and (len(shape) != ndim or len(set(shape)) != 1 or 0 in shape):
        wanted = "(l, l)" if ndim == 2 else "(l,)"
        raise ValueError(f"beta has shape {shape}; give a number or an array {wanted}")
    if not_jax_tracer(beta):
        host = np.asarray(beta)
        bad = np.argwhere(~(host >= 0))  # NaN too
        if len(bad):
            at = tuple(bad[0].tolist())
            where = f" at index {at}" if at else ""
            raise ValueError(f"beta is {host[at]}{where}; it must be 0 or more, and may be inf")
    # A number is kept as one kind of leaf, which prints as it was written.
    return float(beta) if isinstance(beta, np.ndarray) and not shape else beta


def register(cls, data: tuple[str, ...], meta: tuple[str, ...] = ()) -> None:
    """A pytree rebuilt without `__post_init__`, which rejects JAX's placeholders and stacks."""

    def flatten(prior):
        return tuple(getattr(prior, n) for n in data), tuple(getattr(prior, n) for n in meta)

    def unflatten(aux, leaves):
        prior = object.__new__(cls)
        for name, leaf in zip(data + meta, (*leaves, *aux), strict=True):
            object.__setattr__(prior, name, leaf)
        return prior

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)


register(Flat, ())
register(Laplace, ("beta",))
register(GroupLaplace, ("beta",), ("by",))
