"""Anderson acceleration of a fixed-point iteration on LDS parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..models import LDSParams


def flatten(params: LDSParams) -> Array:
    """All parameters as one unconstrained vector; covariances by their log-Cholesky factor."""
    A, C, Q, R, pi1, V1 = params
    parts = [A.ravel(), C.ravel(), *(_log_cholesky(S) for S in (Q, R, V1)), pi1]
    return jnp.concatenate(parts)


def unflatten(x: Array, like: LDSParams) -> LDSParams:
    """The inverse of `flatten`."""
    l, d = like.A.shape[0], like.C.shape[0]
    tri = [k * (k + 1) // 2 for k in (l, d, l)]
    sizes = [l * l, d * l, *tri, l]
    A, C, Q, R, V1, pi1 = jnp.split(x, [sum(sizes[: i + 1]) for i in range(5)])
    Q, R, V1 = _covariance(Q, l), _covariance(R, d), _covariance(V1, l)
    return LDSParams(A.reshape(l, l), C.reshape(d, l), Q, R, pi1, V1)


def _log_cholesky(S: Array) -> Array:
    chol = jnp.linalg.cholesky(S)
    diagonal = jnp.diagonal(chol)
    chol = chol + jnp.diag(jnp.log(diagonal) - diagonal)
    return chol[jnp.tril_indices(len(S))]


def _covariance(x: Array, k: int) -> Array:
    chol = jnp.zeros((k, k), x.dtype).at[jnp.tril_indices(k)].set(x)
    diagonal = jnp.diagonal(chol)
    chol = chol + jnp.diag(jnp.exp(diagonal) - diagonal)
    return chol @ chol.T


class Accelerator(NamedTuple):
    """The last points and their EM images, as differences (Walker and Ni; damped as in DAAREM)."""

    x: Array  # (p,), the last point
    f: Array  # (p,), its image less itself
    dx: Array  # (m, p)
    df: Array  # (m, p), rows not yet filled are 0
    count: Array  # how many rows are filled; -1 before the first point

    def reset(self) -> "Accelerator":
        return start_accelerator(self.x.size, len(self.dx), self.x.dtype)

    def extrapolate(self, x: Array, image: Array) -> tuple["Accelerator", Array, Array]:
        """Take in a point and its image; the next point, and whether it differs from the image."""
        m = len(self.dx)
        f = image - x
        row = jnp.maximum(self.count, 0) % m
        known = self.count >= 0
        dx = jnp.where(known, self.dx.at[row].set(x - self.x), self.dx)
        df = jnp.where(known, self.df.at[row].set(f - self.f), self.df)
        gram = df @ df.T
        # ridge relative to the gram's own scale: rows that are nearly parallel must not blow up
        ridge = 1e-10 * jnp.trace(gram) + jnp.finfo(f.dtype).tiny
        gamma = jnp.linalg.solve(gram + ridge * jnp.eye(m, dtype=f.dtype), df @ f)
        point = image - gamma @ (dx + df)
        ready = known & jnp.isfinite(point).all()
        return Accelerator(x, f, dx, df, self.count + 1), point, ready


def start_accelerator(p: int, m: int, dtype) -> Accelerator:
    zeros, rows = jnp.zeros(p, dtype), jnp.zeros((m, p), dtype)
    return Accelerator(zeros, zeros, rows, rows, jnp.asarray(-1))


def size(params: LDSParams) -> int:
    return jax.eval_shape(flatten, params).size
