"""The shapes that a fit can ask of a covariance: full, diagonal, or of unit diagonal.

A shape has a number of coordinates, an M-step, and coordinates for quasi-Newton steps:

    S(x) = L(x) L(x)' + F,   L(x) = (factor at the origin) · M(x),   M(x) lower triangular, M(0) = I

with F the floor that S stays above. The diagonal of M is exponential, so that every x gives a covariance. The factor
has fewer columns than rows where directions of S are at the floor, in which it stays as it is (`above`).
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.linalg import block_diag

from ..models.linalg import sym


class Full:
    """The shape of a covariance that only has to stay above its floor."""

    def size(self, k: int) -> int:
        """Return the number of coordinates of a covariance (k, k) of this shape."""
        return k * (k + 1) // 2

    def n_coordinates(self, factor: np.ndarray) -> int:
        """Return the number of coordinates around a covariance with this factor, fewer where some is at the floor."""
        return self.size(factor.shape[1])

    def n_parameters(self, k: int) -> int:
        """Return how many of them are free."""
        return self.size(k)

    def blocks(self, k: int) -> tuple[int, ...]:
        """Return the sizes of the blocks on the diagonal of a covariance (k, k), all that is not zero."""
        return (k,)

    def learned(self, S: Any) -> list[Any]:
        """Return the diagonal blocks of S that are learned."""
        return [S]

    def factor(self, S: np.ndarray) -> np.ndarray:
        """Return the lower triangular factor of what is learned of S, 0 elsewhere."""
        return np.linalg.cholesky(S)

    def above(
        self, S: np.ndarray, floor: np.ndarray, clear: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return B and a factor L, S = B + L L', where B has all directions of S within `clear` times the floor.

        None if every direction is.
        """
        half = np.linalg.cholesky(floor)
        white = np.linalg.solve(half, np.linalg.solve(half, S).T)
        values, vectors = np.linalg.eigh(sym(white))
        vectors, low = half @ vectors, values <= clear
        if low.all():
            return None
        if not low.any():
            return floor, self.factor(S - floor)
        base = floor + vectors[:, low] * np.maximum(values[low] - 1, 0) @ vectors[:, low].T
        return base, vectors[:, ~low] * np.sqrt(values[~low] - 1)

    def m_step(self, now: Array, total: Array, n: Array, floor: Array) -> Array:
        """Return total / n kept above the floor F: the exact maximiser among covariances above F."""
        S = sym(total) / n

        def clip(S):
            L = jnp.linalg.cholesky(floor)
            half = jax.scipy.linalg.solve_triangular(L, S, lower=True)
            white = jax.scipy.linalg.solve_triangular(L, half.T, lower=True)
            values, vectors = jnp.linalg.eigh(white)
            vectors = L @ vectors
            return sym(vectors * jnp.maximum(values, 1.0) @ vectors.T)

        above = jnp.isfinite(jnp.linalg.cholesky(S - floor)).all()
        return lax.cond(above, lambda S: S, clip, S)

    def at(
        self, x: np.ndarray, factor: np.ndarray, floor: np.ndarray, n: float
    ) -> tuple[np.ndarray, Any]:
        """Return the covariance at coordinates x, and matrices that `pull` needs again."""
        k = factor.shape[1]
        M = np.diag(np.exp(x[:k] / np.sqrt(2 * n)))
        M[_below(k)] = x[k:] / np.sqrt(n)
        L = factor @ M
        return L @ L.T + floor, (M, L)

    def pull(
        self, g: np.ndarray, S: np.ndarray, known: Any, factor: np.ndarray, n: float
    ) -> np.ndarray:
        """Return the gradient in x from the gradient in the covariance."""
        M, L = known
        by_M = 2 * factor.T @ g @ L
        logs = np.diagonal(by_M) * np.diagonal(M) / np.sqrt(2 * n)
        return np.append(logs, by_M[_below(len(M))] / np.sqrt(n))


class Diagonal(Full):
    """The shape of a diagonal covariance above its floor."""

    def size(self, k: int) -> int:
        """Return k, the number of variances."""
        return k

    def blocks(self, k: int) -> tuple[int, ...]:
        """Return k blocks of one variance each."""
        return (1,) * k

    def m_step(self, now: Array, total: Array, n: Array, floor: Array) -> Array:
        """Return the diagonal of total / n kept above that of the floor."""
        return jnp.diag(jnp.maximum(jnp.diagonal(sym(total) / n), jnp.diagonal(floor)))

    def at(
        self, x: np.ndarray, factor: np.ndarray, floor: np.ndarray, n: float
    ) -> tuple[np.ndarray, Any]:
        """Return the covariance at coordinates x, and matrices that `pull` needs again."""
        M = np.diag(np.exp(x / np.sqrt(2 * n)))
        L = factor @ M
        return L @ L.T + floor, (M, L)

    def pull(
        self, g: np.ndarray, S: np.ndarray, known: Any, factor: np.ndarray, n: float
    ) -> np.ndarray:
        """Return the gradient in x from the gradient in the covariance."""
        return super().pull(g, S, known, factor, n)[: factor.shape[1]]

    def above(
        self, S: np.ndarray, floor: np.ndarray, clear: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return B and a factor L, S = B + L L', where B has the variances within `clear` times the floor."""
        S, F = np.diagonal(S), np.diagonal(floor)
        low = clear * F >= S
        if low.all():
            return None
        return np.diag(np.where(low, S, F)), np.diag(np.sqrt(np.where(low, 0, S - F)))[:, ~low]


class UnitDiagonal(Full):
    """The shape of a correlation matrix, no eigenvalue of which goes below a millionth."""

    def n_parameters(self, k: int) -> int:
        """Return how many of them are free: those below the diagonal."""
        return k * (k - 1) // 2

    def m_step(self, now: Array, total: Array, n: Array, floor: Array) -> Array:
        """Return a correlation matrix with no smaller likelihood than `now`, for the residual covariance total / n.

        A step along the natural gradient S - Q, less its part Q D Q (D diagonal) that would change the diagonal, of the
        best of a few lengths. The step is zero only where log |Q| + tr Q^-1 S is stationary among correlation matrices,
        or at the floor.
        """
        Q, S = now, sym(total) / n
        E = S - Q
        E = E - Q * jnp.linalg.solve(Q * Q, jnp.diagonal(E)) @ Q
        lengths = jnp.append(2.0 ** -jnp.arange(12), 0.0).astype(Q.dtype)
        E = E - jnp.diag(jnp.diagonal(E))  # 0 but for rounding

        def loss(length):
            chol = jnp.linalg.cholesky(Q + length * E)
            value = 2 * jnp.log(jnp.diagonal(chol)).sum()
            value = value + jnp.trace(jax.scipy.linalg.cho_solve((chol, True), S))
            least = 1e-6 * jnp.eye(len(Q), dtype=Q.dtype)
            above = jnp.isfinite(jnp.linalg.cholesky(Q + length * E - least)).all() | (length == 0)
            return jnp.where(jnp.isfinite(value) & above, value, jnp.inf)

        return sym(Q + lengths[jnp.argmin(jax.vmap(loss)(lengths))] * E)

    def above(
        self, S: np.ndarray, floor: np.ndarray, clear: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the floor and a factor of S less the floor; None if a direction is within `clear` times the floor.

        There EM alone moves it: the coordinates rescale S, and with it a part that is to stay at the floor.
        """
        if np.linalg.eigvalsh(S - clear * floor)[0] <= 0:
            return None
        return floor, self.factor(S - floor)

    def at(
        self, x: np.ndarray, factor: np.ndarray, floor: np.ndarray, n: float
    ) -> tuple[np.ndarray, Any]:
        """Return S / √(S_ii S_jj) at coordinates x, and matrices that `pull` needs again."""
        S, known = super().at(x, factor, floor, n)
        variance = np.diagonal(S)
        return S / np.sqrt(np.outer(variance, variance)), (known, variance)

    def pull(
        self, g: np.ndarray, S: np.ndarray, known: Any, factor: np.ndarray, n: float
    ) -> np.ndarray:
        """Return the gradient in x from the gradient in the correlation matrix."""
        known, variance = known
        along = (g * S).sum(1) / variance
        g = g / np.sqrt(np.outer(variance, variance)) - np.diag(along)
        return super().pull(g, S, known, factor, n)


class Split(Full):
    """The shape of a block-diagonal covariance whose first k rows have one shape, and whose others another.

    The others have no noise at all where `rest` is None: zeros, which are not learned.
    """

    def __init__(self, k: int, first: Full, rest: Full | None):
        self.k, self.shapes = k, (first, rest)

    def _parts(self, *matrices: Any) -> list[tuple[Full | None, list[Any]]]:
        """Return the shape of each block, and the block of each matrix."""
        at = slice(None, self.k), slice(self.k, None)
        return [
            (shape, [X[s, s] for X in matrices]) for shape, s in zip(self.shapes, at, strict=True)
        ]

    def size(self, k: int) -> int:
        """Return the number of coordinates of both blocks."""
        both = zip(self.shapes, (self.k, k - self.k), strict=True)
        return sum(s.size(m) for s, m in both if s is not None)

    def n_parameters(self, k: int) -> int:
        """Return how many of them are free."""
        both = zip(self.shapes, (self.k, k - self.k), strict=True)
        return sum(s.n_parameters(m) for s, m in both if s is not None)

    def blocks(self, k: int) -> tuple[int, ...]:
        """Return the blocks of both parts; those of one without noise are left out."""
        both = zip(self.shapes, (self.k, k - self.k), strict=True)
        return sum((s.blocks(m) for s, m in both if s is not None), ())

    def learned(self, S: Any) -> list[Any]:
        """Return the blocks of S that are learned."""
        return [block for shape, (block,) in self._parts(S) if shape is not None]

    def above(
        self, S: np.ndarray, floor: np.ndarray, clear: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return B and a factor L, S = B + L L', block by block; a block that is all at its floor stays as it is."""
        found = [
            (shape is not None and shape.above(X, F, clear)) or (X, np.zeros((len(X), 0)))
            for shape, (X, F) in self._parts(S, floor)
        ]
        if not any(L.size for _, L in found):
            return None
        base, factor = (np.asarray(block_diag(*blocks)) for blocks in zip(*found, strict=True))
        return base, factor

    def _blocks_of(self, factor: np.ndarray) -> list[tuple[Full, np.ndarray, slice]]:
        """Return shape, factor and rows of each block; what is not learned has no columns, in whatever shape."""
        columns = np.count_nonzero(factor[: self.k].any(axis=0))
        parts = (
            (slice(None, self.k), slice(None, columns)),
            (slice(self.k, None), slice(columns, None)),
        )
        return [
            (shape or FULL, factor[rows, of], rows)
            for shape, (rows, of) in zip(self.shapes, parts, strict=True)
        ]

    def n_coordinates(self, factor: np.ndarray) -> int:
        """Return the number of coordinates of both blocks."""
        return sum(shape.n_coordinates(L) for shape, L, _ in self._blocks_of(factor))

    def m_step(self, now: Array, total: Array, n: Array, floor: Array) -> Array:
        """Return the M-step of each block."""
        blocks = [
            jnp.zeros_like(X[0]) if shape is None else shape.m_step(X[0], X[1], n, X[2])
            for shape, X in self._parts(now, total, floor)
        ]
        return jax.scipy.linalg.block_diag(*blocks)

    def at(
        self, x: np.ndarray, factor: np.ndarray, floor: np.ndarray, n: float
    ) -> tuple[np.ndarray, Any]:
        """Return the covariance at coordinates x, and matrices that `pull` needs again."""
        blocks, found = self._blocks_of(factor), []
        ends = np.cumsum([shape.n_coordinates(L) for shape, L, _ in blocks])
        for part, (shape, L, at) in zip(np.split(x, ends[:-1]), blocks, strict=True):
            found.append(shape.at(part, L, floor[at, at], n))
        return np.asarray(block_diag(*(S for S, _ in found))), [known for _, known in found]

    def pull(
        self, g: np.ndarray, S: np.ndarray, known: Any, factor: np.ndarray, n: float
    ) -> np.ndarray:
        """Return the gradient in x from the gradient in the covariance."""
        blocks = zip(self._blocks_of(factor), known, strict=True)
        return np.concatenate(
            [shape.pull(g[at, at], S[at, at], k, L, n) for (shape, L, at), k in blocks]
        )


FULL, DIAGONAL, UNIT_DIAGONAL = Full(), Diagonal(), UnitDiagonal()


@lru_cache
def _below(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices below the diagonal."""
    return np.tril_indices(k, -1)
