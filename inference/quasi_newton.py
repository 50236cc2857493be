"""Quasi-Newton steps on the penalised log-likelihood, which finish what EM is slow to finish.

By Fisher's identity the exact gradient costs about one E-step. Steps are scipy's L-BFGS-B, monotone, in coordinates
where the information of the complete data is near the identity. A stays within the orthant that it starts in, where
the Laplace penalty is linear: bounds make its exact zeros, and the next EM step may choose another orthant.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize

from ..models import LDSParams, Prepared, Prior, jitted_statistics, total
from .mstep import Floors, Spec

_MEMORY = 100  # pairs kept by L-BFGS-B
_CLEAR = 2.0  # a covariance moves if it is above this many times its floor


class Frame(NamedTuple):
    """Coordinates around a point: x = 0 but for A, which is x · signs / scale."""

    origin: LDSParams
    signs: Array  # (l, l), the orthant of A
    A: Array  # (l, l), scales: square roots of the complete data's information
    C: Array  # (d, l)
    factors: Floors  # lower Cholesky factors of the covariances less their floors
    floors: Floors
    counts: Floors  # how many terms each covariance is the mean of


def quasi_newton(
    params: LDSParams,
    data: Prepared,
    prior: Prior,
    floors: Floors,
    spec: Spec,
    max_iter: int,
    tol: float,
    stepped: Callable[[float], None],
    arrived: Callable[[LDSParams], None],
) -> int:
    """Up to max_iter steps, fewer if the gradient is within a tenth of what EM calls optimal; how many were taken.

    `stepped` is told the objective before each step, and `arrived` the last point, also where an interruption ends it.
    """
    stats = jitted_statistics(params, data)
    gradient = jnp.linalg.solve(params.Q, stats.S10 - params.A @ stats.S00)
    moving = tuple(k for k in LDSParams._fields if spec.free(k) and _clear(k, params, floors))
    if not moving:
        return 0
    frame, bounds = _frame(params, stats, gradient, prior, floors)
    chart = {"frame": frame, "moving": moving, "diagonal": spec.diagonal, "unit_Q": spec.unit_Q}
    x0, lower, upper = _flat_start(frame, moving, spec, bounds)
    # the prior's constant; within the orthant the rest is the function minimised
    constant = float(prior.log_prob(params.A) + _penalty(frame, prior, params.A))

    def f(x):
        value, g = _evaluate(jnp.asarray(x, params.A.dtype), data, prior, **chart)
        value, g = float(value), np.where(lower < upper, np.asarray(g, float), 0.0)
        finite = np.isfinite(value) and np.isfinite(g).all()
        return (value, g) if finite else (1e300, np.zeros_like(g))

    reached, last = [f(x0)[0]], x0

    def accept(intermediate_result):
        nonlocal last
        value = float(intermediate_result.fun)
        if value > reached[-1]:  # rounding, at the end
            raise StopIteration
        last = np.array(intermediate_result.x)
        stepped(constant - reached[-1])
        reached.append(value)
        if len(reached) > max_iter:
            raise StopIteration

    try:
        if reached[0] < 1e300:
            minimize(
                f,
                x0,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([lower, upper], axis=1),
                callback=accept,
                options={
                    "maxiter": max_iter,
                    "maxfun": 4 * max_iter + 20,
                    "maxcor": _MEMORY,
                    "ftol": 1e-15,
                    "gtol": 0.1 * tol * float(jnp.sqrt(stats.n_sequences)),
                },
            )
    finally:
        if len(reached) > 1:
            arrived(_params(jnp.asarray(last, params.A.dtype), **chart))
    return len(reached) - 1


def _clear(name: str, params: LDSParams, floors: Floors) -> bool:
    """A covariance at its floor is left to EM, which knows how to stay there."""
    if name not in Floors._fields:
        return True
    S, F = np.asarray(getattr(params, name)), np.asarray(getattr(floors, name))
    return bool(np.linalg.eigvalsh(S - _CLEAR * F)[0] > 0)


def _frame(params, stats, gradient, prior, floors):
    """Coordinates at a point, and the bounds of A in them; entries that stay zero have both at 0."""
    A, C, Q, R, _, V1 = params

    def information(S, M):
        return jnp.sqrt(jnp.outer(jnp.diagonal(jnp.linalg.inv(S)), jnp.diagonal(M)))

    signs = jnp.where(A != 0, jnp.sign(A), jnp.where(gradient >= 0, 1.0, -1.0)).astype(A.dtype)
    factors = Floors(*(jnp.linalg.cholesky(S - F) for S, F in zip((Q, R, V1), floors, strict=True)))
    counts = Floors(stats.n_transitions, stats.n_emissions, stats.n_sequences)
    shape = A.shape
    beta = np.broadcast_to(np.asarray(prior.beta), shape)
    if prior._axis is None:
        fixed = np.isinf(beta)
        lower = np.where(beta > 0, 0.0, -np.inf)
    else:  # a group of zeros is left to EM; within the others the penalty is smooth
        fixed = np.broadcast_to(~np.asarray(A != 0).any(prior._axis, keepdims=True), shape)
        lower = np.full(shape, -np.inf)
    lower, upper = np.where(fixed, 0.0, lower), np.where(fixed, 0.0, np.inf)
    scale_A, scale_C = information(Q, stats.S00), information(R, stats.Szz)
    frame = Frame(params, signs, scale_A, scale_C, factors, floors, counts)
    return frame, (lower, upper)


def _flat_start(frame: Frame, moving, spec: Spec, bounds):
    l, d = frame.origin.A.shape[0], frame.origin.C.shape[0]
    size = spec.sizes(l, d)
    n = sum(size[name] for name in moving)
    x, lower, upper = np.zeros(n), np.full(n, -np.inf), np.full(n, np.inf)
    if "A" in moving:
        x[: l * l] = np.asarray(frame.origin.A * frame.signs * frame.A).ravel()
        lower[: l * l], upper[: l * l] = (b.ravel() for b in bounds)
    return x, lower, upper


def _unpack(
    x: Array, frame: Frame, moving: tuple[str, ...], diagonal: tuple[str, ...], unit_Q: bool
):
    """Parameters at x."""
    origin, new, at = frame.origin, {}, 0

    def take(n):
        nonlocal at
        at += n
        return x[at - n : at]

    for name in moving:
        now = getattr(origin, name)
        if name == "A":
            new[name] = take(now.size).reshape(now.shape) * frame.signs / frame.A
        elif name == "C":
            new[name] = now + take(now.size).reshape(now.shape) / frame.C
        elif name == "pi1":
            chol = jnp.linalg.cholesky(origin.V1)
            new[name] = now + chol @ take(now.size) / jnp.sqrt(frame.counts.V1)
        else:
            k, n = len(now), getattr(frame.counts, name)
            factor, floor = getattr(frame.factors, name), getattr(frame.floors, name)
            if name in diagonal:
                logs, below = take(k), jnp.zeros((k, k), x.dtype)
            else:
                entries = take(k * (k + 1) // 2)
                logs = entries[:k]
                below = jnp.zeros((k, k), x.dtype).at[jnp.tril_indices(k, -1)].set(entries[k:])
            M = jnp.diag(jnp.exp(logs / jnp.sqrt(2 * n))) + below / jnp.sqrt(n)
            L = factor @ M
            S = L @ L.T + floor
            if name == "Q" and unit_Q:
                scale = jnp.sqrt(jnp.diagonal(S))
                S = S / jnp.outer(scale, scale)
            new[name] = S
    return origin._replace(**new)


def _penalty(frame: Frame, prior: Prior, A: Array) -> Array:
    if prior._axis is None:
        beta = jnp.where(jnp.isfinite(prior.beta), prior.beta, 0.0)
        return jnp.sum(beta * frame.signs * A)
    return prior.value(A)


_static = ("moving", "diagonal", "unit_Q")


@partial(jax.jit, static_argnames=_static)
def _evaluate(x: Array, data: Prepared, prior: Prior, *, frame: Frame, **how):
    def f(x):
        params = _unpack(x, frame, **how)
        return _penalty(frame, prior, params.A) - total(params, data)

    return jax.value_and_grad(f)(x)


@partial(jax.jit, static_argnames=_static)
def _params(x: Array, *, frame: Frame, **how) -> LDSParams:
    params = _unpack(x, frame, **how)
    return params._replace(A=jnp.where(params.A == 0, 0.0, params.A))  # no -0.0
