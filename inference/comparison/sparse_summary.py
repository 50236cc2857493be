"""A sparse summary of posterior draws of A: decoupled shrinkage and selection (Hahn and Carvalho, 2015)."""

import jax
import jax.numpy as jnp
import numpy as np

from ...models import Laplace, LDSParams
from ..proximal import quadratic, solve


def sparse_summary(draws: np.ndarray, S00: np.ndarray) -> np.ndarray:
    """Return for each state the sparsest row of A that predicts as near to the posterior mean as a typical draw does.

    Row a minimises (a - ā)S00(a - ā)' / 2 + λ Σ |a_j| / |ā_j| for the largest λ at which the first term is no more
    than its median over the draws (n, l, l). Each row has its own λ: a state that is switched off has wide draws, and
    their large loss must not allow other rows more zeros.
    """
    mean = draws.mean(0)
    l = len(mean)

    def loss(A):  # (..., l), of each row
        E = A - mean
        return 0.5 * np.einsum("...ij,jk,...ik->...i", E, S00, E)

    allowed = np.median(loss(draws), axis=0)
    g = quadratic(jnp.eye(l), jnp.asarray(S00), jnp.asarray(mean @ S00))
    weight = 1 / np.maximum(np.abs(mean), 1e-12)
    # at this λ and above a row is all zero: the sparsest one, and the one to try first
    largest = np.maximum((np.abs(mean @ S00) / weight).max(1), 1e-300)
    empty = loss(np.zeros_like(mean)) <= allowed
    best = mean.copy()
    low, high = np.log(1e-8 * largest), np.log(largest)
    for _ in range(30):
        middle = 0.5 * (low + high)
        A = np.asarray(_shrunk(g, jnp.asarray(np.exp(middle)[:, None] * weight), jnp.asarray(mean)))
        near = loss(A) <= allowed
        best[near] = A[near]
        low, high = np.where(near, middle, low), np.where(near, high, middle)
    return np.where(empty[:, None], 0.0, best)


@jax.jit
def _shrunk(g, beta, start):
    """Return the minimiser of g plus the weighted ℓ1 norm."""
    return solve(g, Laplace(beta), start, tol=1e-8).A


def second_moment(params: LDSParams, n_steps: int, u: np.ndarray | None = None) -> np.ndarray:
    """Return Σ E[z_t z_t'] over n_steps steps of the model, the weight of prediction errors of A z.

    Inputs `u` (N, T, p) count as noise of their own size, new at each step.
    """
    A, _, Q, _, pi1, V1 = (np.asarray(x, float) for x in params[:6])
    if u is not None:
        Bu = np.asarray(u) @ np.asarray(params.B).T
        Q = Q + np.einsum("nti,ntj->ij", Bu, Bu) / Bu[..., 0].size
    M, total = V1 + np.outer(pi1, pi1), np.zeros_like(V1)
    for _ in range(max(n_steps - 1, 1)):
        total = total + M
        M = A @ M @ A.T + Q
    return total
