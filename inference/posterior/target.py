"""The density that NUTS samples: `lds_model` of a cohort with some parameters free and the others held."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from ...models import Cohort, LDSParams, Prepared, Prior, lds_model
from ...models.linalg import sym
from ...models.numpyro_model import sample_params


class Target(NamedTuple):
    """The arguments of the model that is sampled: a pytree, so that targets of one size share their programs."""

    cohort: Cohort  # gives default priors the scale of each channel
    prepared: Prepared
    prior: Prior
    priors: dict[str, Any]
    params: LDSParams  # where the chains start, and the values of the parameters held


class Free(NamedTuple):
    """The free parameters, and the entries of A that are forced: hashable, so that they are static under jit."""

    names: tuple[str, ...]
    forced: tuple[
        int, ...
    ] = ()  # entries of A that the prior forces to be at its centre, counted by rows
    values: tuple[float, ...] = ()  # and where that is


def moving(free: tuple[str, ...], target: Target) -> Free:
    """Return the free parameters, with the entries of A that its prior forces to be at its centre."""
    if "A" not in free or "A" in target.priors:
        return Free(free)
    fixed = target.prior.fixed(target.params.n_states).ravel()
    at = np.flatnonzero(~np.isnan(fixed))
    return Free(free, tuple(at.tolist()), tuple(fixed[at].tolist()))


def model(free: Free, target: Target) -> None:
    """Run `lds_model` with all parameters held but the free ones."""
    arguments, options = model_arguments(free, target)
    lds_model(*arguments, **options, prepared=target.prepared)


def prior_model(free: Free, target: Target) -> None:
    """Sample the parameters of `model`, without its likelihood."""
    arguments, options = model_arguments(free, target)
    sample_params(*arguments, **options)


def model_arguments(free: Free, target: Target) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments and options of `lds_model` for a target."""
    cohort, _, prior, priors, params = target
    l = params.n_states
    if free.forced:  # under jit the prior's beta is traced, and does not show them
        fixed = np.full(l * l, np.nan)
        fixed[list(free.forced)] = free.values
        priors = {"A": prior.distribution(l, fixed.reshape(l, l)), **priors}
    held = {k: v for k, v in params._asdict().items() if k not in free.names}
    return (cohort, l, prior), {"priors": priors, "held": held}


@partial(jax.jit, static_argnames="free")
def potential(z: dict[str, Array], target: Target, free: Free) -> Any:
    """Return -log density of the model at unconstrained values."""
    return potential_energy(partial(model, free), (target,), {}, z)


@partial(jax.jit, static_argnames="free")
def start(target: Target, free: Free) -> dict[str, Array]:
    """Return unconstrained values of the sites at `target.params`."""
    values = {k: v for k, v in target.params._asdict().items() if k in free.names}
    if "A" in values and "A" not in target.priors:
        values |= target.prior.start(values.pop("A"))
    return unconstrain_fn(partial(prior_model, free), (target,), {}, values)


@partial(jax.jit, static_argnames="free")
def _hessian(z: dict[str, Array], target: Target, free: Free) -> Array:
    """Return the Hessian of the potential at z, as one matrix."""
    flat, unravel = ravel_pytree(z)
    return jax.hessian(lambda x: potential(unravel(x), target, free))(flat)


def kinks_of(target: Target) -> np.ndarray | None:
    """Return what kinks of the prior on A add to a mass matrix, (l, l); None if unknown, as for a user's own site A."""
    return None if "A" in target.priors else target.prior.curvature(target.params.n_states)


def inverse_mass(z: dict[str, Array], target: Target, free: Free) -> Array:
    """Return the inverse of the curvature of the potential at z, made positive definite.

    A penalty has no curvature at a kink: `Prior.curvature` takes its place.
    """
    H = np.array(_hessian(z, target, free), float)
    kinks = kinks_of(target)
    if "A" in z and kinks is not None:
        # forced entries have no coordinates
        kinks = np.delete(kinks.ravel(), np.array(free.forced, int))
        at = ravel_pytree({name: jnp.full_like(x, name == "A") for name, x in z.items()})[0]
        H[np.diag(np.asarray(at, bool))] += kinks
    values, vectors = np.linalg.eigh(sym(H))
    size = np.abs(values)
    dtype = target.params.A.dtype
    least = 1e3 * float(jnp.finfo(dtype).eps)
    size = np.maximum(size, max(least * size.max(initial=0.0), least))
    return jnp.asarray((vectors / size) @ vectors.T, dtype)


def jittered(key: Array, z: Any, scale: Array, target: Target, free: Free) -> Any:
    """Draw from the normal approximation at z, nearer to z if the density is not finite there."""
    flat, unravel = ravel_pytree(z)
    noise = jnp.linalg.cholesky(scale) @ jax.random.normal(key, flat.shape, flat.dtype)
    for shrink in (1.0, 0.3, 0.1, 0.01, 0.0):
        near = unravel(flat + shrink * noise) if shrink else z
        if np.isfinite(float(potential(near, target, free))):
            return near
    raise ValueError("the density is not finite where the chains would start, at the fit")


def constrained(z: Mapping[str, np.ndarray], target: Target, free) -> dict[str, np.ndarray]:
    """Return the values of all sites, deterministic ones among them; parameters held are left out."""
    flat = {k: jnp.asarray(x).reshape(-1, *x.shape[2:]) for k, x in z.items()}
    shape = next(iter(z.values())).shape[:2]
    return {
        k: np.asarray(x).reshape(*shape, *x.shape[1:])
        for k, x in _sites(flat, target, free).items()
    }


@partial(jax.jit, static_argnames="free")
def _sites(flat, target, free):
    """Return the values of all sites of every draw (n, ...)."""

    def one(z):
        values = constrain_fn(
            partial(prior_model, free), (target,), {}, z, return_deterministic=True
        )
        return {k: v for k, v in values.items() if k in free.names or k not in LDSParams._fields}

    return jax.vmap(one)(flat)
