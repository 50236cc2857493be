"""A prior on the leading block of a larger A, whose other entries are known: static states beside those that move."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .base import Penalty


@dataclass(frozen=True, eq=False)
class Embedded(Penalty):
    """A penalty on the leading k x k block of A; elsewhere A is forced to be the identity, for `n_static` states.

    NUTS reads it where sequences have levels of their own. A fit needs none of this: it has `prior` on the block.
    """

    prior: Any  # on the block
    n_static: int = field(default=0, metadata={"static": True})

    def __post_init__(self):
        if not isinstance(self.prior, Penalty):
            raise TypeError(
                f"prior is {self.prior!r}, which has sites of its own; with levels of the sequences' own NUTS takes a "
                "Penalty such as Laplace(beta)"
            )

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
        k, M = n_states - self.n_static, np.eye(n_states)
        M[:k, :k] = self.prior.center_of(k)
        return M

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries are forced: all outside of the block."""
        return self._filled(self.prior.forced(n_states - self.n_static), True)

    def curvature(self, n_states: int) -> np.ndarray | None:
        """Return what kinks of the block's penalty add to a mass matrix."""
        found = self.prior.curvature(n_states - self.n_static)
        return None if found is None else self._filled(found, 0.0)

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw the block from its prior; elsewhere A is the identity."""
        if n_states is None:
            raise ValueError("n_states is None; give it, as the prior alone has no size")
        k = n_states - self.n_static
        block = self.prior.sample(key, k, sample_shape)
        A = jnp.broadcast_to(
            jnp.eye(n_states, dtype=block.dtype), (*sample_shape, n_states, n_states)
        )
        return A.at[..., :k, :k].set(block)

    def _block(self, A) -> Array:
        k = jnp.shape(A)[-1] - self.n_static
        return jnp.asarray(A)[..., :k, :k]

    def _filled(self, block: np.ndarray, rest: Any) -> np.ndarray:
        """Return a matrix (l, l) with a block, and one value elsewhere."""
        k = len(block)
        X = np.full((k + self.n_static,) * 2, rest)
        X[:k, :k] = block
        return X

    def to_dict(self) -> dict[str, Any]:
        """Return kind, prior and number of static states, for a JSON file."""
        return {
            "kind": "Embedded",
            "prior": self.prior.to_dict(),
            "n_static": int(self.n_static),
        }
