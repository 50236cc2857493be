"""Exact basis steps: z → Wz leaves the likelihood as it is, so any W that lowers the penalty is a gain for free."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..models import LDSParams, Prior, change_basis

_MAX_CONDITION = 1e4  # of W: a basis that is nearly degenerate gains little and costs precision


def level(params: LDSParams) -> LDSParams:
    """The same model with states of one scale: the diagonal of Q is 1."""
    return change_basis(params, jnp.diag(1 / jnp.sqrt(jnp.diagonal(params.Q))))


def basis_step(params: LDSParams, prior: Prior) -> tuple[LDSParams, Array, float]:
    """The best of a few bases z → Wz, W, and by how much it lowers the penalty (0: the basis is kept).

    Candidates: the states rescaled one by one (ℓ1 matrix balancing), and the real block-diagonal eigenbasis of A, where
    ‖A‖₁ is near its infimum Σ |λ_i| over all bases.
    """
    A = np.asarray(params.A, float)
    best, best_W, gain = params, jnp.eye(len(A), dtype=params.A.dtype), 0.0
    before = float(prior.value(A))
    for W, A_new in _candidates(A, eigenbasis=np.ndim(prior.beta) == 0):
        condition = np.linalg.cond(W)
        lower = before - float(prior.value(A_new))
        if condition < _MAX_CONDITION and lower > max(gain, 1e-9 * (1 + before)):
            best_W = jnp.asarray(W, params.A.dtype)
            moved = change_basis(params, best_W)
            best, gain = moved._replace(A=jnp.asarray(A_new, params.A.dtype)), lower
    return best, best_W, gain


def _candidates(A: np.ndarray, eigenbasis: bool):
    d = _balance(A)
    yield np.diag(d), A * d[:, None] / d
    if eigenbasis:  # a penalty that differs between entries need not gain from a diagonal A
        V, D = _block_eigenbasis(A)
        if np.isfinite(V).all() and np.linalg.cond(V) < _MAX_CONDITION:
            yield np.linalg.inv(V), D


def _balance(A: np.ndarray, sweeps: int = 50) -> np.ndarray:
    """Positive d that makes ‖diag(d) A diag(d)^-1‖₁ least: Osborne's iteration on off-diagonal sums."""
    off = np.abs(A) - np.diag(np.diag(np.abs(A)))
    d = np.ones(len(A))
    for _ in range(sweeps):
        for i in range(len(A)):
            row, column = d[i] * (off[i] / d).sum(), (off[:, i] * d).sum() / d[i]
            if row > 0 and column > 0:  # else the infimum is not attained: the scale would drift
                d[i] *= np.sqrt(column / row)
    return d / np.exp(np.log(d).mean())


def _block_eigenbasis(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and D = V^-1 A V, block diagonal with exact zeros: a 2 x 2 block a complex pair."""
    values, vectors = np.linalg.eig(A)
    V, D, k = np.zeros_like(A), np.zeros_like(A), 0
    for value, v in zip(values, vectors.T, strict=True):
        if abs(value.imag) <= 1e-10 * max(1.0, abs(value)):
            V[:, k], D[k, k] = v.real, value.real
            k += 1
        elif value.imag > 0:
            V[:, k], V[:, k + 1] = v.real, v.imag
            D[k : k + 2, k : k + 2] = [[value.real, value.imag], [-value.imag, value.real]]
            k += 2
    return V, D
