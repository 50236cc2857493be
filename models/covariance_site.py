"""A covariance as a NumPyro site: of the shape that a fit keeps, in coordinates in which NUTS moves well.

An inverse-Wishart prior, restricted to block-diagonal matrices, is one of independent blocks:

    S ~ InverseWishart(ν, Ψ), n x n, given that S = diag(S_1, …):   S_b ~ InverseWishart(ν + n - k_b, Ψ_bb), k_b x k_b

so that a diagonal R, say, has the density that the fit maximised. Each block is LL' with L lower triangular, and the
diagonal of L is s · softplus(x): near zero it is as log L, elsewhere as L itself, of which a posterior is more nearly
normal. s is the prior's scale.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import biject_to, constraints, transforms

from .draws import inverse_wishart, on_host


class BlockInverseWishart(dist.Distribution):
    """Independent inverse-Wishart blocks on the diagonal of a covariance (size, size), and zeros elsewhere.

    `blocks` are their sizes. They may leave the last rows out, which are then zero: states without noise.
    """

    pytree_data_fields = ("concentration", "scale_matrix", "_support")
    pytree_aux_fields = ("blocks",)

    def __init__(self, concentration, scale_matrix, blocks, size=None, *, validate_args=None):
        self.concentration, self.scale_matrix = (
            jnp.asarray(concentration, float),
            jnp.asarray(scale_matrix),
        )
        self.blocks = tuple(int(k) for k in blocks)
        n = self.scale_matrix.shape[-1]
        if sum(self.blocks) != n:
            raise ValueError(f"blocks of sizes {self.blocks} do not make up a matrix {(n, n)}")
        size = n if size is None else int(size)
        self._support = BlockCovariance(
            self.blocks, size, jnp.sqrt(jnp.diagonal(self.scale_matrix) / (n + 1))
        )
        super().__init__((), (size, size), validate_args=validate_args)

    @classmethod
    def restricted(cls, prior: dist.InverseWishart, blocks, size=None) -> "BlockInverseWishart":
        """Return an inverse-Wishart distribution restricted to block-diagonal matrices."""
        return cls(prior.concentration, prior.scale_matrix, blocks, size)

    def _parts(self) -> list[tuple[slice, dist.InverseWishart]]:
        """Return where each block is, and its distribution."""
        n, found, at = sum(self.blocks), [], 0
        for k in self.blocks:
            block = slice(at, at + k)
            nu, scale = self.concentration + (n - k), self.scale_matrix[block, block]
            found.append((block, dist.InverseWishart(nu, scale_matrix=scale)))
            at += k
        return found

    def log_prob(self, value, intermediates=None) -> Array:
        """Return the log density of the blocks."""
        n = len(self.blocks)
        if n > 1 and set(self.blocks) == {1}:  # one operation for all variances
            variances = jnp.diagonal(value, axis1=-2, axis2=-1)[..., :n]
            count, total = self.concentration + (n - 1), jnp.diagonal(self.scale_matrix)
            return dist.InverseGamma(count / 2, total / 2).log_prob(variances).sum(-1)
        return sum(part.log_prob(value[..., at, at]) for at, part in self._parts())  # type: ignore[return-value]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw covariances, sample_shape + (size, size)."""
        dtype, known = self.scale_matrix.dtype, on_host(key, self.concentration, self.scale_matrix)
        S: Any = (np if known else jnp).zeros((*sample_shape, *self.event_shape), dtype)
        keys = jax.random.split(key, len(self.blocks))
        for k, (at, part) in zip(keys, self._parts(), strict=True):
            if known:
                nu, Psi = part.concentration, self.scale_matrix[at, at]
                S[..., at, at] = inverse_wishart(k, nu, Psi, sample_shape)
            else:
                S = S.at[..., at, at].set(part.sample(k, sample_shape))
        return jnp.asarray(S)

    @constraints.dependent_property(event_dim=2)  # type: ignore[arg-type]
    def support(self):  # type: ignore[override]
        """The covariances of this shape."""
        return self._support


class BlockCovariance(constraints.Constraint):
    """Covariances with positive definite blocks of given sizes on the diagonal, and zeros elsewhere."""

    event_dim = 2

    def __init__(self, blocks, size, scale):
        self.blocks, self.size, self.scale = tuple(blocks), size, scale

    def __call__(self, x):
        block = np.repeat(np.arange(len(self.blocks)), self.blocks)
        block = np.append(block, np.full(self.size - len(block), -1))
        inside = (block[:, None] == block) & (block >= 0)
        padded = jnp.where(inside, x, 0.0) + jnp.diag(jnp.asarray(block < 0, x.dtype))
        definite = jnp.isfinite(jnp.linalg.cholesky(padded)).all((-2, -1))
        return definite & (jnp.where(inside, 0.0, x) == 0).all((-2, -1))

    def eq(self, other: Any, static=False):
        same = isinstance(other, BlockCovariance) and (self.blocks, self.size) == (
            other.blocks,
            other.size,
        )
        return same if static or not same else jnp.array_equal(self.scale, other.scale)

    def tree_flatten(self):
        return (self.scale,), (("scale",), {"blocks": self.blocks, "size": self.size})


@biject_to.register(BlockCovariance)
class FactorTransform(transforms.Transform):
    """The map from the coordinates of triangular factors, a vector, to a block-diagonal covariance."""

    domain = constraints.real_vector  # type: ignore[assignment]
    codomain = property(lambda self: self.shape)  # type: ignore[assignment]

    def __init__(self, shape: BlockCovariance):
        self.shape = shape

    def _factor(self, x):
        """Return the factor L (size, size), its diagonal s · softplus(x), and the coordinates of that diagonal."""
        rows, columns, n = *self._below(), sum(self.shape.blocks)
        at, scale = np.arange(n), jnp.asarray(self.shape.scale, x.dtype)
        diagonal = scale * jax.nn.softplus(x[..., :n])
        L = jnp.zeros((*x.shape[:-1], self.shape.size, self.shape.size), x.dtype)
        return L.at[..., at, at].set(diagonal).at[..., rows, columns].set(x[..., n:]), diagonal

    def _below(self):
        """Return the indices below the diagonal of each block."""
        found, at = [], 0
        for k in self.shape.blocks:
            found.append(np.stack(np.tril_indices(k, -1)) + at)
            at += k
        return np.concatenate(found, axis=1)

    def __call__(self, x):
        L, _ = self._factor(x)
        return L @ jnp.swapaxes(L, -1, -2)

    def _inverse(self, y):
        (rows, columns), n, at = self._below(), sum(self.shape.blocks), 0
        L = jnp.zeros_like(y)
        for k in self.shape.blocks:
            block = slice(at, at + k)
            L = L.at[..., block, block].set(jnp.linalg.cholesky(y[..., block, block]))
            at += k
        ratio = jnp.diagonal(L, axis1=-2, axis2=-1)[..., :n] / jnp.asarray(
            self.shape.scale, y.dtype
        )
        logs = ratio + jnp.log(-jnp.expm1(-ratio))  # softplus⁻¹
        return jnp.concatenate([logs, L[..., rows, columns]], axis=-1)

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        # |dS / dL| = Π 2^k L_ii^(k - i), i = 0 .. k-1 in each block; then |dL / dx|
        _, diagonal = self._factor(x)
        n = sum(self.shape.blocks)
        power = np.concatenate([np.arange(k, 0, -1) for k in self.shape.blocks])
        by_factor = n * jnp.log(2.0) + (power * jnp.log(diagonal)).sum(-1)
        slopes = jnp.log(jnp.asarray(self.shape.scale, x.dtype)) - jax.nn.softplus(-x[..., :n])
        return by_factor + slopes.sum(-1)

    def forward_shape(self, shape):
        return (*shape[:-1], self.shape.size, self.shape.size)

    def inverse_shape(self, shape):
        return (*shape[:-2], sum(k * (k + 1) // 2 for k in self.shape.blocks))

    def eq(self, other, static=False):
        return isinstance(other, FactorTransform) and self.shape.eq(other.shape, static)

    def tree_flatten(self):
        return (self.shape,), (("shape",), {})
