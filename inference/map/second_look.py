"""A second look where a fit has settled: points with a higher objective to which no small step leads.

The optimality conditions hold at saddle points too, and all but hold where the likelihood is next to flat. Three kinds
are known, each with its remedy: states that explode are calmed; states whose noise has faded from the channels get
more of it; states that have faded from the channels altogether are woken.
"""

from collections.abc import Callable, Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np

from ...models import LDSParams, Penalty, fisher_score
from ...models.basis import moved
from ...models.linalg import sym
from ..constraints import Constraints
from .program import LONGEST, Problem, State, evaluate, run

_FADED = 0.1  # what adds less than this to every channel has faded, in sd of the measurement error
_SMALL, _SIZE = 1e-3, 0.7  # of loadings, likewise: to see where they would grow, and to start with
_DECAYS = (0.9, -0.7)  # of states that are woken: they persist, or alternate
_PRODUCTS = 8  # E-steps to find the loadings with which the residuals show a state most


def second_look(
    point: State, problem: Problem, constraints: Constraints, prior: Penalty, tol: float
) -> State | None:
    """Return a point whose objective is higher than that of `point` by more than the tolerance, or None."""
    least = float(point.objective) + tol * (1 + abs(float(point.objective)))

    def higher(found: State) -> bool:
        finite = all(np.isfinite(np.asarray(x)).all() for x in (*found.params, found.objective))
        return finite and float(found.objective) > least

    for params in _calmer(point.params, constraints, prior):
        there = evaluate(params, problem, constraints)
        if higher(there):
            return there
    for params in _wakened(point, problem, constraints, prior):
        start = evaluate(params, problem, constraints)
        there = run(start, problem, constraints, LONGEST, 0.0)[0]
        if higher(there):
            return there
    return None


def _calmer(params: LDSParams, constraints: Constraints, prior: Penalty) -> Iterator[LDSParams]:
    """Yield parameters with an A that is nearer to the prior's centre, if A is free and not stable.

    States that explode are known so well, given themselves, that neither EM nor quasi-Newton steps move A, even where
    they show in no channel and the penalty alone says where A belongs.
    """
    A = np.asarray(constraints.moving(params).A)
    if not constraints.free("A") or not np.abs(np.linalg.eigvals(A)).max() > 1:
        return
    center, k = prior.center_of(len(A)).astype(A.dtype), len(A)
    for share in (0.0, 0.5, 0.9):
        moved = jnp.asarray(params.A).at[:k, :k].set(center + share * (A - center))
        yield params._replace(A=moved)


def _wakened(
    point: State, problem: Problem, constraints: Constraints, prior: Penalty
) -> Iterator[LDSParams]:
    """Yield parameters in which states that have faded from the channels show in them again.

    EM moves the noise of a state by a share that falls with the square of what it adds to the channels. And where C is
    0 for a state, so is its gradient, whatever the state could explain. Of states that have faded altogether one is
    woken, since the others are no different.
    """
    params, l = _on_host(point.params), constraints.n_moving(point.params)
    at_once_or_next = np.maximum(np.abs(params.C), np.abs(params.C @ params.A))[:, :l]
    shown = (at_once_or_next / np.sqrt(np.diagonal(params.R))[:, None]).max(axis=0)  # of a unit
    steps = float(point.stats.n_sequences + point.stats.n_transitions)
    size = shown * np.sqrt(np.diagonal(point.stats.Szz)[:l] / steps)
    noise = shown * np.sqrt(np.diagonal(params.Q)[:l])
    quiet = (size >= _FADED) & (noise < _FADED)
    if quiet.any():
        factor = np.where(quiet, _SIZE / np.maximum(noise, _SMALL**3), 1.0)
        yield from _with_noise(point.params, factor, constraints, prior)
    if (size < _FADED).any() and constraints.free("C"):
        yield from _with_loadings(point.params, int(np.argmin(size)), problem, constraints, prior)


def _with_noise(
    params: LDSParams, factor: np.ndarray, constraints: Constraints, prior: Penalty
) -> Iterator[LDSParams]:
    """Yield parameters with more noise, by a factor of its sd a moving state; if Q is fixed, less of the rest."""
    l, W = len(factor), np.eye(params.n_states)
    W[range(l), range(l)] = factor
    if constraints.free("Q") and constraints.Q != "unit diagonal":
        yield _like(params, _on_host(params)._replace(Q=W @ np.asarray(params.Q, float) @ W))
    elif all(map(constraints.free, ("A", "C", "pi1", "V1"))):
        new = moved(_on_host(params), np.linalg.inv(W))
        A = np.array(new.A)
        A[:l, :l] = np.where(prior.forced(l), prior.center_of(l), A[:l, :l])
        yield _like(params, new._replace(A=A, Q=params.Q))


def _with_loadings(
    params: LDSParams, k: int, problem: Problem, constraints: Constraints, prior: Penalty
) -> Iterator[LDSParams]:
    """Yield parameters in which state k, apart from the others, decays at a given rate and shows in the channels.

    It does so in the direction in which the residuals follow it most: at small C the gradient is H C, the largest along
    the leading eigenvector of H.
    """
    l, error = constraints.n_moving(params), np.linalg.cholesky(np.asarray(params.R, float))
    fixed = not constraints.free("A") or prior.forced(l)[k, k]

    def with_loadings(decay: float, direction: np.ndarray, size: float) -> LDSParams:
        host = _on_host(params)
        A, C, Q, _, pi1, V1 = host[:6]
        if constraints.free("A"):
            A[k, :l], A[:l, k] = prior.center_of(l)[k], prior.center_of(l)[:, k]
        if not fixed:
            A[k, k] = decay
        noise = Q[k, k]
        variance = noise / (1 - min(A[k, k] ** 2, 0.9))
        for name, S, own in (("Q", Q, noise), ("V1", V1, variance)):
            if constraints.free(name):
                S[k], S[:, k] = 0.0, 0.0
                S[k, k] = own
        if constraints.free("pi1"):
            pi1[k] = 0.0
        if host.B is not None and constraints.free("B"):
            host.B[k] = 0.0
        C[:, k] = size / np.sqrt(variance) * error @ direction
        return _like(params, host)

    def gradient(decay: float, direction: np.ndarray) -> np.ndarray:
        at = with_loadings(decay, direction, _SMALL)
        return error.T @ fisher_score(at, evaluate(at, problem, constraints).stats).C[:, k]

    center = float(prior.center_of(l)[k, k])
    decays = (*_DECAYS, center) if center else _DECAYS
    for decay in (float(params.A[k, k]),) if fixed else decays:
        u = _leading(partial(gradient, decay), len(error))
        yield with_loadings(decay, u, _SIZE)


def _leading(H: Callable[[np.ndarray], np.ndarray], d: int) -> np.ndarray:
    """Return the eigenvector of the largest eigenvalue of a symmetric H (d, d), in a few products (Lanczos)."""
    V, HV = np.zeros((d, 0)), np.zeros((d, 0))
    v = np.random.default_rng(0).normal(size=d)
    while V.shape[1] < min(d, _PRODUCTS) and np.isfinite(v).all() and v.any():
        V = np.linalg.qr(np.column_stack([V, v]))[0]
        v = H(V[:, -1])
        HV = np.column_stack([HV, v])
    ritz = sym(V.T @ HV)
    return V @ np.linalg.eigh(ritz)[1][:, -1] if np.isfinite(ritz).all() else V[:, 0]


def _on_host(params: LDSParams) -> LDSParams:
    """Return a copy in numpy, of 64 bits."""
    return LDSParams(*(np.array(x, float) for x in params))


def _like(params: LDSParams, new: LDSParams) -> LDSParams:
    """Return new parameters in the type of the others."""
    return LDSParams(*(jnp.asarray(x, params.A.dtype) for x in new))
