"""Exact basis steps: z → Wz leaves the likelihood unchanged, so any W that lowers the penalty raises the objective."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.linalg import schur

from ....models import LDSParams, Penalty, change_basis

_MAX_CONDITION = 1e4  # of W: a nearly degenerate basis gains little and costs precision


def basis_step(
    params: LDSParams, prior: Penalty, rotations: bool = False
) -> tuple[LDSParams, Array, float]:
    """Return the parameters in the best of a few bases, its W, and how much it lowers the penalty (0: no change).

    Candidates: the states rescaled one by one (ℓ1 matrix balancing), and the real block-diagonal eigenbasis of A, where
    ‖A‖₁ is near its infimum Σ |λ_i| over all bases. With `rotations` W is orthogonal, which keeps Q = I: turns of A
    as it is and of its Schur form, plane by plane.
    """
    A = np.asarray(params.A, float)
    best, best_W, gain = params, jnp.asarray(np.eye(len(A)), params.A.dtype), 0.0
    before = float(prior.value(A))
    uniform = prior.symmetry == "signed permutations"
    for W, A_new in _rotations(A, uniform) if rotations else _candidates(A, uniform):
        condition = np.linalg.cond(W)
        lower = before - float(prior.value(A_new))
        if condition < _MAX_CONDITION and lower > max(gain, 1e-9 * (1 + before)):
            best_W = jnp.asarray(W, params.A.dtype)
            moved = change_basis(params, best_W)
            if rotations:
                moved = moved._replace(Q=params.Q)  # I but for rounding
            best, gain = moved._replace(A=jnp.asarray(A_new, params.A.dtype)), lower
    return best, best_W, gain


Basis = tuple[np.ndarray, np.ndarray]  # W, and W A W^-1


def _candidates(A: np.ndarray, uniform: bool) -> Iterator[Basis]:
    """Yield bases that rescale the states, or make A block diagonal."""
    d = _balance(A)
    yield np.diag(d), A * d[:, None] / d
    if uniform:  # a penalty that differs between entries need not gain from a diagonal A
        V, D = _block_eigenbasis(A)
        if np.isfinite(V).all() and np.linalg.cond(V) < _MAX_CONDITION:
            yield np.linalg.inv(V), D


def _rotations(A: np.ndarray, uniform: bool) -> Iterator[Basis]:
    """Yield orthogonal bases."""
    if uniform:
        yield _turn(A, np.eye(len(A)))
        T, U = schur(A, output="real")[:2]
        yield _turn(T, U.T)


def _turn(A: np.ndarray, W: np.ndarray, sweeps: int = 20) -> Basis:
    """Lower ‖W A W'‖₁ by turns in the planes of two states, each to an angle at which an entry is zero.

    An entry outside of the plane's 2 x 2 block is a cos θ + b sin θ; where none is zero the sum of their magnitudes is
    concave in θ, so its minima have a zero. Entries of the block are e + f cos 2θ + g sin 2θ.
    """
    A, l = A.copy(), len(A)
    for _ in range(sweeps):
        before = np.abs(A).sum()
        for i in range(l):
            for j in range(i):
                plane, rest = np.ix_((i, j), (i, j)), np.setdiff1d(range(l), (i, j))
                a, b = (np.append(A[k, rest], A[rest, k]) for k in (i, j))
                angles = [np.arctan2(-a, b), _block_angles(A[plane]), [0.0]]
                theta = np.concatenate(angles)
                turns = np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]])
                outside = np.abs(np.einsum("pqk,qm->kpm", turns, np.array([a, b]))).sum((1, 2))
                block = np.einsum("pqk,qr,srk->kps", turns, A[plane], turns)
                penalty = outside + np.abs(block).sum((1, 2))
                k = int(np.argmin(penalty))
                if penalty[k] < penalty[-1] * (1 - 1e-12):
                    U = np.eye(l)
                    U[plane] = turns[:, :, k]
                    A, W = U @ A @ U.T, U @ W
        if np.abs(A).sum() > before * (1 - 1e-9):
            break
    A[np.abs(A) < 1e-13 * np.abs(A).max(initial=0.0)] = 0.0
    return W, A


def _block_angles(B: np.ndarray) -> np.ndarray:
    """Return the angles at which an entry of the turned 2 x 2 block is zero, and those of its symmetric part's axes."""
    trace, skew = (B[0, 0] + B[1, 1]) / 2, (B[0, 1] - B[1, 0]) / 2
    half, cross = (B[0, 0] - B[1, 1]) / 2, (B[0, 1] + B[1, 0]) / 2
    size, phase = np.hypot(half, cross), np.arctan2(cross, half)
    found = [0.25 * np.pi + 0.5 * phase, 0.5 * phase]  # where the block is nearest to its average
    # diagonal: trace ± size cos(2θ - phase); off-diagonal: ± skew - size sin(2θ - phase)
    if size > abs(trace):
        found += [0.5 * (phase + s * np.arccos(t / size)) for t in (trace, -trace) for s in (1, -1)]
    if size > abs(skew):
        x = np.arcsin(skew / size)
        found += [0.5 * (phase + y) for y in (x, -x, np.pi - x, np.pi + x)]
    return np.array(found)


def _balance(A: np.ndarray, sweeps: int = 50) -> np.ndarray:
    """Return the positive d with the least ‖diag(d) A diag(d)^-1‖₁, by Osborne's iteration on off-diagonal sums."""
    off = np.abs(A) - np.diag(np.diag(np.abs(A)))
    d = np.ones(len(A))
    for _ in range(sweeps):
        for i in range(len(A)):
            row, column = d[i] * (off[i] / d).sum(), (off[:, i] * d).sum() / d[i]
            if row > 0 and column > 0:  # otherwise there is no minimum, and the scale drifts
                d[i] *= np.sqrt(column / row)
    return d / np.exp(np.log(d).mean())


def _block_eigenbasis(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return V and D = V^-1 A V, block diagonal with exact zeros: a 2 x 2 block for each complex pair."""
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
