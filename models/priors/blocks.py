"""Penalties that are a sum of norms over blocks g of A, its entries, rows or columns.

    -log p(A) = Σ_g beta_g ‖A_g‖₂ - log constant

A block with beta = 0 is free: flat, improper. One with beta = ∞ is forced to zero: a point mass. Neither enters the
constant, so that `log_prob` is a density over the other blocks.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from numpyro.util import not_jax_tracer

from .base import Penalty, Piece, Symmetry

_AXIS = {"entries": None, "rows": -1, "columns": -2}  # the axis along which a block extends


class BlockPenalty(Penalty):
    """The common base of `Flat`, `Laplace` and `GroupLaplace`. A is (l, l), or a batch (..., l, l)."""

    beta: Any

    def value(self, A) -> Array:
        """Return Σ_g beta_g ‖A_g‖₂, (...). Its gradient is taken as 0 where A_g = 0."""
        beta, norms = self.norms(A)
        # Not the product alone: ∞ · 0 is NaN, and so would be its gradient.
        return jnp.sum(jnp.where(norms == 0, 0.0, beta) * norms, axis=(-2, -1))

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return A with its blocks soft-thresholded: X_g = A_g max(0, 1 - step beta_g / ‖A_g‖₂).

        A block with beta = ∞ is zero whatever the step.
        """
        A = floating(A)
        beta, norms = self.norms(A)
        forced = jnp.isinf(beta)
        step = jnp.broadcast_to(jnp.asarray(step, A.dtype), norms.shape)
        threshold = jnp.where(forced, jnp.inf, step * jnp.where(forced, 0.0, beta))
        kept = norms > threshold
        shrink = jnp.where(kept, (norms - threshold) / jnp.where(kept, norms, 1.0), 0.0)
        X = A * shrink  # a product, so that NaN in A stays visible
        return jnp.where(X == 0, 0.0, X)  # no −0.0

    def log_prob(self, A) -> Array:
        """Return log p(A), (...)."""
        A = floating(A)
        return self.log_constant(A.shape[-1]).astype(A.dtype) - self.value(A)

    def log_constant(self, n_states: int) -> Array:
        """Return Σ_g log [ beta_g^k Γ(k/2) / (2 π^{k/2} Γ(k)) ] over 0 < beta_g < ∞, blocks of size k.

        One over (surface of the unit sphere · ∫ r^{k−1} exp(−beta r) dr); beta / 2 for k = 1.
        """
        beta, _ = self.norms(jnp.zeros((n_states, n_states)))
        k = self.block_size(n_states)
        unit = math.lgamma(k / 2) - math.log(2) - k / 2 * math.log(math.pi) - math.lgamma(k)
        proper = (beta > 0) & (beta < jnp.inf)
        return jnp.sum(jnp.where(proper, k * jnp.log(jnp.where(proper, beta, 1.0)) + unit, 0.0))

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), are forced to zero; beta must be concrete."""
        return np.isinf(self._each_entry(n_states))

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), have a beta above 0; beta must be concrete."""
        return self._each_entry(n_states) > 0

    @property
    def is_proper(self) -> bool:
        """Whether no block is free; beta must be concrete."""
        return bool(np.all(np.asarray(self.beta) > 0))

    @property
    def symmetry(self) -> Symmetry:
        """Order and signs of the states where all blocks share one beta; signs alone where each has its own."""
        return "signed permutations" if np.ndim(self.beta) == 0 else "signs"

    def scaled(self, factor: float) -> "BlockPenalty":
        """Return the prior with factor · beta, factor > 0: free stays free, forced stays forced."""
        return replace(self, beta=factor * self.beta)  # type: ignore[type-var]

    def beta_max(self, gradient: Array) -> Array:
        """Return the largest ‖gradient_g‖₂ / beta_g over the blocks with 0 < beta_g < ∞."""
        beta, norms = self.norms(gradient)
        movable = (beta > 0) & (beta < jnp.inf)
        return jnp.max(jnp.where(movable, norms / jnp.where(movable, beta, 1.0), 0.0))

    def curvature(self, n_states: int) -> np.ndarray:
        """Return one over the variance of an entry, beta² / (k + 1) for a block of size k, (l, l)."""
        return self._each_entry(n_states) ** 2 / (self.block_size(n_states) + 1)

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw A, sample_shape + (l, l): each block has a uniform direction and a radius ~ Gamma(k, beta)."""
        shape = (*sample_shape, *self.distribution(n_states).event_shape)
        if not_jax_tracer(self.beta) and not self.is_proper:
            # The type of error on which NumPyro's initialisation falls back to a uniform start.
            raise NotImplementedError(
                f"{type(self).__name__} with a beta of 0 is flat, and cannot be sampled: "
                "give every entry a beta > 0, or give A itself"
            )
        axis = _AXIS[self.blocks]
        if axis is None:
            X = random.laplace(key, shape)
            beta, _ = self.norms(X)
        else:
            direction, radius = random.split(key)
            X = random.normal(direction, shape)
            beta, norms = self.norms(X)
            X = X / jnp.where(norms == 0, 1.0, norms)
            # Gamma(k) as a sum of k exponentials: random.gamma takes seconds to compile.
            X = X * random.exponential(radius, shape).sum(axis, keepdims=True)
        return jnp.where(jnp.isinf(beta), 0.0, X / beta)

    def distribution(self, n_states: int | None = None, forced: np.ndarray | None = None) -> Any:
        """Return the NumPyro distribution of A; n_states is needed where beta is a number."""
        if n_states is None and jnp.ndim(self.beta):
            n_states = jnp.shape(self.beta)[-1]
        if n_states is None:
            raise ValueError("n_states is None; give it, as beta is one number and has no size")
        return super().distribution(n_states, forced)

    def norms(self, A) -> tuple[Array, Array]:
        """Return beta and ‖A_g‖₂ of every block, both (..., l, l), (..., l, 1) or (..., 1, l)."""
        A, axis = floating(A), _AXIS[self.blocks]
        norms = jnp.abs(A) if axis is None else _norm(A, axis)
        beta = jnp.asarray(self.beta, A.dtype)  # A decides the precision
        if beta.ndim and beta.shape[-1] != A.shape[-1]:
            raise ValueError(f"beta has shape {beta.shape}, which does not fit A, {A.shape}")
        if axis is not None and beta.ndim == 1:
            beta = jnp.expand_dims(beta, axis)
        return jnp.broadcast_to(beta, norms.shape), norms

    def block_size(self, n_states: int) -> int:
        """Return the number of entries of a block."""
        return 1 if self.blocks == "entries" else n_states

    def _each_entry(self, n_states: int) -> np.ndarray:
        """Return the beta of the block of each entry, (l, l)."""
        shape = (n_states, n_states)
        with jax.ensure_compile_time_eval():
            return np.broadcast_to(np.asarray(self.norms(jnp.zeros(shape))[0]), shape)

    def __str__(self) -> str:
        beta = np.asarray(self.beta)
        span = f"{beta.min():.4g}" + (f" to {beta.max():.4g}" if beta.ndim else "")
        return f"{type(self).__name__}(β = {span})"


class EntryPenalty(BlockPenalty):
    """A `BlockPenalty` whose blocks are the entries of A: linear within an orthant."""

    blocks = "entries"

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the orthant of A, with each zero entry on the side to which `pull` points."""
        beta = self._each_entry(len(A)).astype(float)
        signs = np.where(A != 0, np.sign(A), np.where(pull >= 0, 1.0, -1.0))
        bounded, forced = beta > 0, np.isinf(beta)
        slope = np.where(forced, 0.0, beta) * signs
        return Piece(
            lower=np.where(forced | (bounded & (signs > 0)), 0.0, -np.inf),
            upper=np.where(forced | (bounded & (signs < 0)), 0.0, np.inf),
            evaluate=lambda A: (float((slope * A).sum()), slope),
        )


def floating(A) -> Array:
    """Return A as a jax array of a floating type."""
    A = jnp.asarray(A)
    return A.astype(jnp.result_type(A, float))


def _norm(A: Array, axis: int) -> Array:
    """Return ‖·‖₂ along an axis, which stays with size 1; gradient 0 at 0."""
    # Relative to the largest entry: squares of small entries would underflow to a false zero.
    largest = lax.stop_gradient(jnp.abs(A).max(axis, keepdims=True))
    zero = largest == 0
    squares = jnp.sum((A / jnp.where(zero, 1.0, largest)) ** 2, axis, keepdims=True)
    return largest * jnp.sqrt(jnp.where(zero, 1.0, squares))


def checked_beta(beta, ndim: int):
    """Return beta as a float, or as an array with `ndim` equal axes; its values are checked unless it is traced."""
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
