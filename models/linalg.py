"""Products and factors of very small matrices, with an optional trailing batch axis.

XLA on the CPU pays about a microsecond for every call of dot or LAPACK, more than the arithmetic of a
5 x 5 product. Where many small matrices go together, the batch axis is therefore the *last* one: the sums
below become loops over contiguous memory.

No batch goes to LAPACK: in jaxlib 0.10 a batched call waits for threads of the pool that it runs on, and two of them at
once, on a machine with two cores, wait for each other for ever.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.typing import ArrayLike

_SMALL_PRODUCT = 3000  # multiplications up to which a fused sum beats dot inside a scan
_UNROLLED = 8  # size up to which a matrix is eliminated row by row; a larger one is cut into halves
_BATCH_LAST = 24  # size up to which many matrices are inverted with the batch as the last axis


def small_product(a: Array, b: Array) -> Array:
    """Return a @ b for two matrices, as one fused sum where they are so small that calling dot costs more."""
    if a.shape[0] * a.shape[1] * b.shape[1] > _SMALL_PRODUCT:
        return a @ b
    return (a[:, :, None] * b[None]).sum(1)


def tr(a: Array) -> Array:
    """Return the transpose of the two leading axes."""
    return jnp.swapaxes(a, 0, 1)


def sym(a: Any) -> Any:
    """Return (a + a') / 2 over the two leading axes, of a numpy or a jax array."""
    return 0.5 * (a + a.swapaxes(0, 1))


def sym_last(a: Any) -> Any:
    """Return (a + a') / 2 over the two last axes, of a numpy or a jax array."""
    return 0.5 * (a + a.swapaxes(-1, -2))


def left(A: Array, x: Array) -> Array:
    """Multiply one matrix with a batch: (i, k) x (k, ..., U) -> (i, ..., U), a single large product."""
    return (A @ x.reshape(x.shape[0], -1)).reshape(A.shape[0], *x.shape[1:])


def apart(f: Callable) -> Callable:
    """Return f as a program of its own, which XLA neither fuses with its surroundings nor computes twice."""
    compiled = jax.jit(f)

    @functools.wraps(f)
    def called(*args):
        with set_xla_metadata(inlineable="false"):
            return compiled(*args)

    return called


@apart
def batched(a: Array, b: Array) -> Array:
    """Multiply two batches, (i, k, U) x (k, j, U) -> (i, j, U); b may be vectors, (k, U).

    Written out, the sum is a loop over U with vector instructions; as a reduction it is not, and 4 times slower.
    Written out and fused, it would be computed again at every use.
    """
    a = a.reshape(*a.shape[:2], *[1] * (b.ndim - 2), a.shape[2])
    return functools.reduce(operator.add, (a[:, k] * b[k] for k in range(b.shape[0])))


def whitener(S: Array) -> tuple[Array, Array]:
    """Return W (lower triangular) with W S W' = I, and log |S|; NaN where S is not positive definite.

    S is (d, d) or (d, d, U).
    """
    d = S.shape[0]
    eye = jnp.eye(d, dtype=S.dtype)
    if d > _UNROLLED and S.ndim > 2:
        return _whitener_by_halves(S)
    if d > _UNROLLED:
        chol = jnp.linalg.cholesky(S)
        W = lax.linalg.triangular_solve(chol, eye, left_side=True, lower=True)
        return W, 2 * jnp.log(jnp.diagonal(chol)).sum()
    eye = jnp.broadcast_to(eye.reshape(d, d, *[1] * (S.ndim - 2)), S.shape)
    M = jnp.concatenate([S, eye], axis=1)
    for i in range(d - 1):  # eliminate below each pivot: [S, I] -> [D L', L^-1]
        below = M[i + 1 :] - (M[i + 1 :, i] / M[i, i])[:, None] * M[i]
        M = jnp.concatenate([M[: i + 1], below])
    pivots = jnp.stack([M[i, i] for i in range(d)])
    return M[:, d:] / jnp.sqrt(pivots)[:, None], jnp.log(pivots).sum(0)


def _whitener_by_halves(S: Array) -> tuple[Array, Array]:
    """Return the whitener of S (d, d, U): of S = [[A, B'], [B, D]] it is [[V, 0], [-W B A⁻¹, W]].

    V whitens A, and W the Schur complement D - B A⁻¹ B'.
    """
    h = _half(S.shape[0])
    V, logdet_A = apart(whitener)(S[:h, :h])
    X = batched(S[h:, :h], tr(V))
    W, logdet_D = apart(whitener)(S[h:, h:] - batched(X, tr(X)))
    below = -batched(W, batched(X, V))
    top = jnp.concatenate([V, jnp.zeros_like(below).swapaxes(0, 1)], axis=1)
    return jnp.concatenate([top, jnp.concatenate([below, W], axis=1)]), logdet_A + logdet_D


def spd_inverse(S: Array) -> tuple[Array, Array]:
    """Return S⁻¹ and log |S| of many positive definite matrices (n, k, k), by halves; NaN where one is not definite."""
    if S.shape[-1] <= _BATCH_LAST:
        inverse, logdet = _inverse(jnp.moveaxis(S, 0, -1), batched, tr)
        return jnp.moveaxis(inverse, -1, 0), logdet
    return _inverse(S, jnp.matmul, lambda a: a.mT)


@apart
def _small_inverse(S: Array) -> tuple[Array, Array]:
    """Return S⁻¹ and log |S| of matrices (k, k, U) with k up to _UNROLLED."""
    W, logdet = whitener(S)
    return functools.reduce(operator.add, (w[:, None] * w for w in W)), logdet


def _inverse(S: Array, mul: Callable, transposed: Callable) -> tuple[Array, Array]:
    """Return S⁻¹ and log |S|: all but the smallest blocks is products, `mul`, of batches as the caller has them.

    With S = [[A, B'], [B, D]] and X = (D - B A⁻¹ B')⁻¹ B A⁻¹ it is [[A⁻¹ + (B A⁻¹)' X, -X'], [-X, (D - B A⁻¹ B')⁻¹]].
    """
    last = mul is batched  # the batch is the last axis
    k = S.shape[0] if last else S.shape[-1]
    if last and k <= _UNROLLED:
        return _small_inverse(S)
    if not last and k <= _BATCH_LAST:
        return spd_inverse(S)
    rows, columns = (0, 1) if last else (-2, -1)
    h = _half(k)

    def block(i: slice, j: slice) -> Array:
        return S[i, j] if last else S[..., i, j]

    one, two = slice(h), slice(h, None)
    B = block(two, one)
    A, logdet_A = _inverse(block(one, one), mul, transposed)
    BA = mul(B, A)
    D, logdet_D = _inverse(block(two, two) - mul(BA, transposed(B)), mul, transposed)
    X = mul(D, BA)
    top = jnp.concatenate([A + mul(transposed(BA), X), -transposed(X)], axis=columns)
    found = jnp.concatenate([top, jnp.concatenate([-X, D], axis=columns)], axis=rows)
    return found, logdet_A + logdet_D


def _half(k: int) -> int:
    """Return the size of the first half of k: a multiple of 8 for a k above 8."""
    return -(-k // 16) * 8


def definite(Q: Any) -> Any:
    """Return Q with a variance of 1 for states that have no noise (a row of zeros), so that it can be inverted."""
    xp = np if isinstance(Q, np.ndarray) else jnp
    return Q + xp.diag((xp.diagonal(Q) == 0).astype(Q.dtype))


def least_correlation(S: ArrayLike) -> float:
    """Return the smallest eigenvalue of S as a correlation matrix: how near S is to singular, whatever the units."""
    S = np.asarray(S)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(np.diagonal(S))
        correlations = S / np.outer(sd, sd)
    return float(np.linalg.eigvalsh(correlations)[0]) if np.isfinite(correlations).all() else np.nan
