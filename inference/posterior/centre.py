"""The centre of a posterior: a normal approximation, from which chains start and which gives them their first masses.

A penalty has kinks, where curvature has no meaning: a normal prior of the same variances stands in for it. The mode of
what is then smooth is nearer to the bulk of the posterior than the MAP, whose R, say, may be close to singular.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from ...models.linalg import sym
from ...models.priors import NormalPrior
from .target import Free, Target, potential, start

_STEPS = 30  # Newton steps at most


class Centre(NamedTuple):
    """A normal approximation of a posterior in its unconstrained coordinates."""

    z: dict[str, Array]
    covariance: (
        np.ndarray
    )  # the inverse of the curvature of all coordinates, made positive definite


def find_centre(target: Target, free: Free) -> Centre:
    """Return the mode of the smooth stand-in of a target, from the fit by damped Newton steps, and the curvature there.

    Where the prior on A is the user's own site, or has sites of its own without a stand-in, the fit itself is taken.
    """
    z = start(target, free)
    smooth = _smooth(target)
    if smooth is None:
        H = sym(np.asarray(_derivatives(z, target, free)[2], float))
        return Centre(z, _inverse(H, target))
    flat, unravel = ravel_pytree(z)
    x = np.asarray(flat, float)

    def derivatives(x):
        value, g, H = _derivatives(unravel(jnp.asarray(x, flat.dtype)), smooth, free)
        return float(value), np.asarray(g, float), sym(np.asarray(H, float))

    value, g, H = derivatives(x)
    for _ in range(_STEPS):
        step = -_inverse(H, target) @ g
        length = 1.0
        while length > 1e-3:
            new = float(
                potential(unravel(jnp.asarray(x + length * step, flat.dtype)), smooth, free)
            )
            if new < value:
                break
            length /= 2
        else:
            break
        gain, x = value - new, x + length * step
        value, g, H = derivatives(x)
        if gain < 1e-3:
            break
    return Centre(unravel(jnp.asarray(x, flat.dtype)), _inverse(H, target))


def jittered(key: Array, centre: Centre, target: Target, free: Free) -> Any:
    """Draw from the normal approximation, nearer to its centre if the density is not finite there."""
    flat, unravel = ravel_pytree(centre.z)
    factor = jnp.asarray(np.linalg.cholesky(centre.covariance), flat.dtype)
    noise = factor @ jax.random.normal(key, flat.shape, flat.dtype)
    for shrink in (1.0, 0.3, 0.1, 0.01, 0.0):
        near = unravel(flat + shrink * noise)
        if np.isfinite(float(potential(near, target, free))):
            return near
    raise ValueError("the density is not finite where the chains would start, near the fit")


def _smooth(target: Target) -> Target | None:
    """Return the target with a prior on A that has no kinks; None if there is none to stand in."""
    if target.given:
        return target  # with γ given, spike and slab is normal
    if "A" in target.priors:
        return None
    stand_in = NormalPrior.like(target.prior, np.asarray(target.params.A, float))
    return None if stand_in is None else target._replace(prior=stand_in)


@partial(jax.jit, static_argnames="free")
def _derivatives(z: dict[str, Array], target: Target, free: Free) -> tuple[Array, Array, Array]:
    """Return the potential at z, its gradient and its Hessian, of all coordinates as one vector."""
    flat, unravel = ravel_pytree(z)

    def f(x):
        return potential(unravel(x), target, free)

    return *jax.value_and_grad(f)(flat), jax.hessian(f)(flat)


def _inverse(H: np.ndarray, target: Target) -> np.ndarray:
    """Return the inverse of a Hessian, with its eigenvalues made positive and kept away from 0."""
    values, vectors = np.linalg.eigh(H)
    size = np.abs(values)
    least = 1e3 * float(jnp.finfo(target.params.A.dtype).eps)
    size = np.maximum(size, max(least * size.max(initial=0.0), least))
    return (vectors / size) @ vectors.T
