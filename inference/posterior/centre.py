"""The centre of a posterior: a normal approximation, from which chains start and which gives them their first masses.

A penalty has kinks, where curvature has no meaning: a normal prior of the same variances stands in for it. The mode of
what is then smooth is nearer to the bulk of the posterior than the MAP, whose R, say, may be close to singular. Its
curvature is taken by differences of the exact gradient: a program for second derivatives takes longer to compile than
all of these differences.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from ...models.linalg import sym
from ...models.priors import NormalPrior
from .sweep import spike_slab
from .target import Free, Target, potential, start

_STEPS = 100  # quasi-Newton steps at most
_SLOPE = 0.03  # at which these end, in nats for one standard deviation of the first approximation

Energy = Callable[[np.ndarray], tuple[float, np.ndarray]]  # -log density, and its gradient


class Centre(NamedTuple):
    """A normal approximation of a posterior in its unconstrained coordinates."""

    z: dict[str, Array]
    covariance: (
        np.ndarray
    )  # the inverse of the curvature of all coordinates, made positive definite


def find_centre(target: Target, free: Free) -> Centre:
    """Return the mode of the smooth stand-in of a target, from the fit by quasi-Newton steps, and the curvature there.

    Where the prior on A is the user's own site, or has sites of its own without a stand-in, the fit itself is taken.
    """
    z = start(target, free)
    smooth = _smooth(target)
    flat, unravel = ravel_pytree(z)
    dtype = flat.dtype

    def energy(x):
        value, g = _energy(jnp.asarray(x, dtype), z, smooth or target, free)
        return float(value), np.asarray(g, float)

    x = np.asarray(flat, float)
    covariance = _inverse(_curvature(energy, x, dtype), dtype)
    if smooth is not None:
        x = _mode(energy, x, np.linalg.cholesky(covariance))
        covariance = _inverse(_curvature(energy, x, dtype), dtype)
    return Centre(unravel(jnp.asarray(x, dtype)), covariance)


def jittered(key: Array, centre: Centre, shrink: float) -> Any:
    """Draw from the normal approximation, its standard deviations multiplied by `shrink`."""
    flat, unravel = ravel_pytree(centre.z)
    factor = jnp.asarray(np.linalg.cholesky(centre.covariance), flat.dtype)
    return unravel(flat + shrink * (factor @ jax.random.normal(key, flat.shape, flat.dtype)))


def _mode(energy: Energy, x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return where the energy is least, from x on, in coordinates in which its curvature is about the identity."""

    def white(w):
        value, g = energy(x + factor @ w)
        if not np.isfinite(value) or not np.isfinite(g).all():
            return 1e100, np.zeros_like(w)  # the line search comes back
        return value, factor.T @ g

    with np.errstate(all="ignore"):
        options = {"gtol": _SLOPE, "maxiter": _STEPS}
        found = minimize(white, np.zeros_like(x), jac=True, method="BFGS", options=options)
    return x + factor @ found.x


def _curvature(energy: Energy, x: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the Hessian of the energy at x, by central differences of its gradient."""
    H, step = np.zeros((len(x), len(x))), float(jnp.finfo(dtype).eps) ** (1 / 3)
    for i, length in enumerate(step * np.maximum(1.0, np.abs(x))):
        move = length * np.eye(1, len(x), i)[0]
        H[i] = (energy(x + move)[1] - energy(x - move)[1]) / (2 * length)
    return sym(H)


def _smooth(target: Target) -> Target | None:
    """Return the target with a prior on A that has no kinks; None if there is none to stand in."""
    if spike_slab(target) is not None:
        return target  # with γ given, spike and slab is normal
    if "A" in target.priors:
        return None
    stand_in = NormalPrior.like(target.prior, np.asarray(target.params.A, float))
    return None if stand_in is None else target._replace(prior=stand_in)


@partial(jax.jit, static_argnames="free")
def _energy(x: Array, like: dict[str, Array], target: Target, free: Free) -> tuple[Array, Array]:
    """Return the potential, and its gradient, at coordinates x as one vector, which is that of a z `like` this."""
    unravel = ravel_pytree(like)[1]
    return jax.value_and_grad(lambda x: potential(unravel(x), target, free))(x)


def _inverse(H: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the inverse of a Hessian, with its eigenvalues made positive and kept away from 0."""
    values, vectors = np.linalg.eigh(H)
    size = np.abs(values)
    least = 1e3 * float(jnp.finfo(dtype).eps)
    size = np.maximum(size, max(least * size.max(initial=0.0), least))
    return (vectors / size) @ vectors.T
