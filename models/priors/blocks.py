"""Penalties that are a sum of norms over blocks g of A - M, its entries, rows or columns, for a centre M.

    -log p(A) = Σ_g beta_g ‖(A - M)_g‖₂ - log constant

A block with beta = 0 is free: flat, improper. One with beta = ∞ is forced to the centre: a point mass. Neither enters
the constant, so that `log_prob` is a density over the other blocks. The diagonal may be free on its own.
"""

import math
from dataclasses import fields, replace
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
    center: Any = 0.0  # M: 0, "identity", or a matrix (l, l)
    diagonal: str = "penalised"  # or "free"
    beta_B: Any = None  # of the prior of B that comes along, if it does

    def value(self, A) -> Array:
        """Return Σ_g beta_g ‖(A - M)_g‖₂, (...). Its gradient is taken as 0 where (A - M)_g = 0."""
        beta, norms = self.norms(self._from_center(A))
        # Not the product alone: ∞ · 0 is NaN, and so would be its gradient.
        return jnp.sum(jnp.where(norms == 0, 0.0, beta) * norms, axis=(-2, -1))

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return A with the blocks of D = A - M soft-thresholded: M_g + D_g max(0, 1 - step beta_g / ‖D_g‖₂).

        A block with beta = ∞ is at the centre whatever the step.
        """
        A = floating(A)
        D = self._from_center(A)
        beta, norms = self.norms(D)
        forced = jnp.isinf(beta)
        step = jnp.broadcast_to(jnp.asarray(step, A.dtype), norms.shape)
        threshold = jnp.where(forced, jnp.inf, step * jnp.where(forced, 0.0, beta))
        kept = norms > threshold
        shrink = jnp.where(kept, (norms - threshold) / jnp.where(kept, norms, 1.0), 0.0)
        X = D * shrink  # a product, so that NaN in A stays visible
        if self._has_center:
            X = jnp.where(X == 0, self._center(A), jnp.where(shrink == 1, A, X + self._center(A)))
        if self.diagonal == "free":
            X = jnp.where(_eye(A), A, X)
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
        if k == 0:  # one state, whose only entry is free
            return jnp.zeros(())
        unit = math.lgamma(k / 2) - math.log(2) - k / 2 * math.log(math.pi) - math.lgamma(k)
        proper = (beta > 0) & (beta < jnp.inf)
        return jnp.sum(jnp.where(proper, k * jnp.log(jnp.where(proper, beta, 1.0)) + unit, 0.0))

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the matrix M, (l, l), that the penalty pulls A to; it must be concrete."""
        dtype = jax.dtypes.canonicalize_dtype(float)
        if not self._has_center:
            return np.zeros((n_states, n_states), dtype)
        M = np.eye(n_states) if isinstance(self.center, str) else np.asarray(self.center)
        return _fitting(M, n_states).astype(dtype)

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), are forced to the centre; beta must be concrete."""
        return np.isinf(self._each_entry(n_states))

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), have a beta above 0; beta must be concrete."""
        return self._each_entry(n_states) > 0

    @property
    def is_proper(self) -> bool:
        """Whether no block is free; beta must be concrete."""
        return self.diagonal == "penalised" and bool(np.all(np.asarray(self.beta) > 0))

    @property
    def symmetry(self) -> Symmetry:
        """Order and signs of the states where all blocks share one beta; signs alone where each has its own.

        A centre that is a matrix of its own tells the states apart: signs are left if it is diagonal.
        """
        if np.ndim(self.center):
            M = np.asarray(self.center)
            return "signs" if np.array_equal(M, np.diag(np.diagonal(M))) else "none"
        return "signed permutations" if np.ndim(self.beta) == 0 else "signs"

    def expanded(self, n_states: int, dtype: Any) -> "BlockPenalty":
        """Return the same prior with its centre in the precision of the fit, in which entries are compared with it."""
        if not self._has_center:
            return self
        return replace(self, center=jnp.asarray(self.center_of(n_states), dtype))  # type: ignore[type-var]

    def scaled(self, factor: float) -> "BlockPenalty":
        """Return the prior with factor · beta, factor > 0: free stays free, forced stays forced.

        And with factor · beta_B: a path of β is one over [A B].
        """
        found = replace(self, beta=factor * self.beta)  # type: ignore[type-var]
        if self.beta_B is None:
            return found
        return replace(found, beta_B=max(factor, 1e-300) * self.beta_B)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields; files of models without inputs are as they were before there were any."""
        found = super().to_dict()
        return (
            found if self.beta_B is not None else {k: v for k, v in found.items() if k != "beta_B"}
        )

    def beta_max(self, gradient: Array) -> Array:
        """Return the largest ‖gradient_g‖₂ / beta_g over the blocks with 0 < beta_g < ∞."""
        beta, norms = self.norms(gradient)
        movable = (beta > 0) & (beta < jnp.inf)
        return jnp.max(jnp.where(movable, norms / jnp.where(movable, beta, 1.0), 0.0))

    def n_pulled(self, n_states: int) -> Array:
        """Return the number of entries with 0 < beta < ∞, the dimension of the density."""
        beta, _ = self.norms(jnp.zeros((n_states, n_states)))
        return jnp.sum((beta > 0) & (beta < jnp.inf)) * self.block_size(n_states)

    def density_at_center(self, n_states: int) -> np.ndarray:
        """Return the density of each entry, its block integrated out but for it, at the centre, (l, l).

        beta / 2 for single entries. NaN for an entry that is free or forced.
        """
        beta, k = self._each_entry(n_states), self.block_size(n_states)
        pulled = (beta > 0) & (beta < np.inf)
        unit = 0.5
        if k > 1:
            surface = [
                math.log(2) + m / 2 * math.log(math.pi) - math.lgamma(m / 2) for m in (k - 1, k)
            ]
            unit = math.exp(surface[0] + math.lgamma(k - 1) - surface[1] - math.lgamma(k))
        return np.where(pulled, np.where(pulled, beta, 1.0) * unit, np.nan)

    def proper(self, n_states: int) -> "BlockPenalty":
        """Return the prior with a penalty on free entries too, that of a typical entry, to draw from."""
        beta = np.array(self.beta, float)
        known = beta[(beta > 0) & (beta < np.inf)]
        typical = known.mean() if known.size else 1.0
        return replace(self, beta=np.where(beta > 0, beta, typical), diagonal="penalised")  # type: ignore[type-var]

    def curvature(self, n_states: int) -> np.ndarray:
        """Return one over the variance of an entry, beta² / (k + 1) for a block of size k, (l, l)."""
        return self._each_entry(n_states) ** 2 / (self.block_size(n_states) + 1)

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw A, sample_shape + (l, l): each block of A - M has a uniform direction and a radius ~ Gamma(k, beta)."""
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
        D = jnp.where(jnp.isinf(beta), 0.0, X / beta)
        return D + self._center(D) if self._has_center else D

    def distribution(self, n_states: int | None = None, fixed: np.ndarray | None = None) -> Any:
        """Return the NumPyro distribution of A; n_states is needed where beta is a number."""
        if n_states is None and jnp.ndim(self.beta):
            n_states = jnp.shape(self.beta)[-1]
        if n_states is None:
            raise ValueError("n_states is None; give it, as beta is one number and has no size")
        return super().distribution(n_states, fixed)

    def norms(self, D) -> tuple[Array, Array]:
        """Return beta and ‖D_g‖₂ of every block of D = A - M, both (..., l, l), (..., l, 1) or (..., 1, l)."""
        D, axis = floating(D), _AXIS[self.blocks]
        beta = jnp.asarray(self.beta, D.dtype)  # A decides the precision
        if beta.ndim and beta.shape[-1] != D.shape[-1]:
            raise ValueError(f"beta has shape {beta.shape}, which does not fit A, {D.shape}")
        if axis is None:
            beta = jnp.broadcast_to(beta, D.shape)
            return (jnp.where(_eye(D), 0.0, beta) if self.diagonal == "free" else beta), jnp.abs(D)
        if self.diagonal == "free":
            D = jnp.where(_eye(D), 0.0, D)
        norms = _norm(D, axis)
        beta = jnp.expand_dims(beta, axis) if beta.ndim == 1 else beta
        return jnp.broadcast_to(beta, norms.shape), norms

    def block_size(self, n_states: int) -> int:
        """Return how many entries a block has."""
        return 1 if self.blocks == "entries" else n_states - (self.diagonal == "free")

    @property
    def _has_center(self) -> bool:
        """Whether the centre is another than 0; a centre that is traced counts as one."""
        return isinstance(self.center, str) or bool(np.ndim(self.center))

    def _center(self, A) -> Array:
        """Return M in the precision of A, (l, l)."""
        l = A.shape[-1]
        if not self._has_center:
            return jnp.zeros((l, l), A.dtype)
        M = jnp.eye(l) if isinstance(self.center, str) else jnp.asarray(self.center)
        return _fitting(M, l).astype(A.dtype)

    def _from_center(self, A) -> Array:
        A = floating(A)
        return A - self._center(A) if self._has_center else A

    def _each_entry(self, n_states: int) -> np.ndarray:
        """Return the beta of the block of each entry, (l, l); 0 for a diagonal that is free."""
        shape = (n_states, n_states)
        with jax.ensure_compile_time_eval():
            beta = np.broadcast_to(np.asarray(self.norms(jnp.zeros(shape))[0]), shape)
        return np.where(np.eye(n_states), 0.0, beta) if self.diagonal == "free" else beta

    def __repr__(self) -> str:
        """Return the call that makes this prior, without what is as by default."""
        own: Any = fields(self)  # type: ignore[arg-type]
        values = {f.name: getattr(self, f.name) for f in own}
        default = {
            f.name for f in own if np.ndim(values[f.name]) == 0 and values[f.name] == f.default
        }
        shown = ", ".join(f"{k}={v!r}" for k, v in values.items() if k not in default)
        return f"{type(self).__name__}({shown})"

    def __str__(self) -> str:
        beta = np.asarray(self.beta)
        span = f"{beta.min():.4g}" + (f" to {beta.max():.4g}" if beta.ndim else "")
        pull = (
            ", towards I"
            if isinstance(self.center, str)
            else ", towards a matrix"
            if self._has_center
            else ""
        )
        free = ", diagonal free" if self.diagonal == "free" else ""
        return f"{type(self).__name__}(β = {span}{pull}{free}{self._of_B()})"

    def _of_B(self) -> str:
        if self.beta_B is None:
            return ""
        of_B = np.asarray(self.beta_B)
        return f", of B {of_B.min():.4g}" + (f" to {of_B.max():.4g}" if of_B.ndim else "")


class EntryPenalty(BlockPenalty):
    """A `BlockPenalty` whose blocks are the entries of A: linear within an orthant around its centre."""

    blocks = "entries"

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the orthant of A - M, an entry at the centre on the side to which `pull` points."""
        M = self.center_of(len(A))
        beta, D = self._each_entry(len(A)).astype(float), A - M
        signs = np.where(D != 0, np.sign(D), np.where(pull >= 0, 1.0, -1.0))
        bounded, forced = beta > 0, np.isinf(beta)
        slope = np.where(forced, 0.0, beta) * signs
        return Piece(
            lower=np.where(forced | (bounded & (signs > 0)), M, -np.inf),
            upper=np.where(forced | (bounded & (signs < 0)), M, np.inf),
            evaluate=lambda A: (float((slope * (A - M)).sum()), slope),
        )


def _fitting(M: Any, l: int) -> Any:
    """Return a centre; raise unless it has the shape of an A of l states."""
    if M.shape != (l, l):
        raise ValueError(f"center has shape {M.shape}, which does not fit A, ({l}, {l})")
    return M


def _eye(A) -> np.ndarray:
    return np.eye(A.shape[-1], dtype=bool)


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
