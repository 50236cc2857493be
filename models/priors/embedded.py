"""A prior on the leading block of a larger A, whose other entries are known: static states beside those that move."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .base import Penalty, Prior
from .hierarchical import HierarchicalPrior


def embedded(prior: Prior, n_static: int) -> "Embedded | EmbeddedSites":
    """Return a prior on the leading block of A, beside `n_static` states that never change."""
    if isinstance(prior, HierarchicalPrior):
        return EmbeddedSites(prior, n_static)
    return Embedded(prior, n_static)


@dataclass(frozen=True, eq=False)
class Embedded(Penalty):
    """A penalty on the leading k x k block of A; elsewhere A is forced to be the identity, for `n_static` states.

    NUTS reads it where sequences have levels of their own. A fit needs none of this: it has `prior` on the block.
    """

    prior: Any  # on the block
    n_static: int = field(default=0, metadata={"static": True})

    def __post_init__(self):
        if not isinstance(self.prior, Penalty):
            raise TypeError(f"prior is {self.prior!r}; give a Penalty such as Laplace(beta)")

    @property
    def is_proper(self) -> bool:
        """Whether the prior of the block is."""
        return self.prior.is_proper

    def value(self, A) -> Array:
        """Return the penalty of the block."""
        return self.prior.value(self._block(A))

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return the prox of the block, and the identity elsewhere."""
        A = jnp.asarray(A)
        k = A.shape[-1] - self.n_static
        return jnp.eye(A.shape[-1], dtype=A.dtype).at[:k, :k].set(self.prior.prox(A[:k, :k], step))

    def log_constant(self, n_states: int) -> Array:
        """Return the constant of the block's density."""
        return self.prior.log_constant(n_states - self.n_static)

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries are penalised: none outside of the block."""
        return self._filled(self.prior.penalised(n_states - self.n_static), False)

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the centre of the block, in the identity."""
        return _center(self.prior, n_states, self.n_static)

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries are forced: all outside of the block."""
        return self._filled(self.prior.forced(n_states - self.n_static), True)

    def curvature(self, n_states: int) -> np.ndarray | None:
        """Return what kinks of the block's penalty add to a mass matrix."""
        found = self.prior.curvature(n_states - self.n_static)
        return None if found is None else self._filled(found, 0.0)

    def majorant(self, A) -> "Embedded":
        """Return the majorant of the block's prior."""
        return Embedded(self.prior.majorant(self._block(A)), self.n_static)

    def drawn_after(self, key: Any, A) -> dict[str, Array]:
        """Draw what the prior of the block integrated out."""
        return self.prior.drawn_after(key, self._block(A))

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw the block from its prior; elsewhere A is the identity."""
        if n_states is None:
            raise ValueError("n_states is None; give it, as the prior alone has no size")
        k = n_states - self.n_static
        return _in_identity(self.prior.sample(key, k, sample_shape), self.n_static)

    def _block(self, A) -> Array:
        k = jnp.shape(A)[-1] - self.n_static
        return jnp.asarray(A)[..., :k, :k]

    def _filled(self, block: np.ndarray, rest: Any) -> np.ndarray:
        """Return a matrix (l, l) with a block, and one value elsewhere."""
        k = len(block)
        X = np.full((k + self.n_static,) * 2, rest)
        X[:k, :k] = block
        return X


@dataclass(frozen=True, eq=False)
class EmbeddedSites(HierarchicalPrior):
    """The same for a prior with sites of its own, such as `SpikeSlab`."""

    prior: Any  # on the block
    n_static: int = field(default=0, metadata={"static": True})
    symmetry = "none"

    def computed(self, n_states: int) -> Array:
        """Sample the sites of the block, and return A."""
        return _in_identity(self.prior.computed(n_states - self.n_static), self.n_static)

    def start(self, A) -> dict[str, Any]:
        """Return values of the block's sites."""
        k = jnp.shape(A)[-1] - self.n_static
        return self.prior.start(jnp.asarray(A)[:k, :k])

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the centre of the block, in the identity."""
        return _center(self.prior, n_states, self.n_static)


def _center(prior: Prior, n_states: int, n_static: int) -> np.ndarray:
    """Return the centre of a prior on the leading block, in the identity: on the host, under jit too."""
    k, M = n_states - n_static, np.eye(n_states)
    M[:k, :k] = prior.center_of(k)
    return M


def _in_identity(block, n_static: int) -> Array:
    """Return identity matrices (..., l, l) with the given leading blocks."""
    k = block.shape[-1]
    A = jnp.broadcast_to(
        jnp.eye(k + n_static, dtype=block.dtype), (*block.shape[:-2], k + n_static, k + n_static)
    )
    return A.at[..., :k, :k].set(block)
