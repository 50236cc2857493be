"""The density that is sampled: `lds_model` of a cohort with some parameters free and the others held."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from ...models import Cohort, LDSParams, Prepared, Prior, lds_model
from ...models.basis import moved
from ...models.numpyro_model import sample_params
from ...models.params import PARAMETERS
from ...models.priors import InputSpikes
from . import frame as frames


class Target(NamedTuple):
    """The arguments of the model that is sampled: a pytree, so that targets of one size share their programs."""

    cohort: Cohort  # gives default priors the scale of each channel
    prepared: Prepared
    prior: Prior
    priors: dict[str, Any]
    params: LDSParams  # the fit: the values of the parameters held
    given: dict[
        str, Array
    ] = {}  # what a sweep draws, not NUTS: γ and ω of `SpikeSlab`, or W of a frame
    frame: frames.Frame | None = None  # in which A and C are, where rotations are drawn apart


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
    with handlers.substitute(data=target.given):
        lds_model(*arguments, **options, prepared=target.prepared)


def prior_model(free: Free, target: Target) -> None:
    """Sample the parameters of `model`, without its likelihood."""
    arguments, options = model_arguments(free, target)
    with handlers.substitute(data=target.given):
        sample_params(*arguments, **options)


def model_arguments(free: Free, target: Target) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments and options of `lds_model` for a target."""
    cohort, _, prior, priors, params, *_ = target
    l = params.n_states
    if free.forced:  # under jit the prior's beta is traced, and does not show them
        fixed = np.full(l * l, np.nan)
        fixed[list(free.forced)] = free.values
        priors = {"A": prior.distribution(l, fixed.reshape(l, l)), **priors}
    held = {k: v for k, v in params._asdict().items() if k not in free.names}
    return (cohort, l, prior), {"priors": priors, "held": held}


@partial(jax.jit, static_argnames="free")
def potential(z: dict[str, Array], target: Target, free: Free) -> Any:
    """Return -log density of the model at unconstrained values; with a frame, given the rotation W."""
    if target.frame is None:
        return potential_energy(partial(model, free), (target,), {}, z)
    here, W = frames.out_of_frame(target.frame, z), target.given[frames.SITE]
    turn = frames.tilt(z, W, target.frame, target.prior) + target.prior.log_prob(here["A"])
    own = potential_energy(partial(model, free), (target,), {}, here)
    return own + turn - frames.log_volume(target.frame, here["A"], here["C"])


@partial(jax.jit, static_argnames="free")
def start(target: Target, free: Free) -> dict[str, Array]:
    """Return unconstrained values of the sites at `target.params`."""
    values = {k: v for k, v in target.params._asdict().items() if k in free.names}
    if "A" in values and "A" not in target.priors:
        values |= target.prior.start(values.pop("A"))
    if isinstance(target.priors.get("B"), InputSpikes) and "B" in values:
        values |= target.priors["B"].start(values.pop("B"))
    values = {k: v for k, v in values.items() if k not in target.given}
    z = unconstrain_fn(partial(prior_model, free), (target,), {}, values)
    return z if target.frame is None else frames.into_frame(target.frame, z)


def constrained(
    z: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray], target: Target, free: Free
) -> dict[str, np.ndarray]:
    """Return the values of all sites, deterministic ones among them; parameters held are left out."""
    shape = next(iter(z.values())).shape[:2]
    flat = jax.tree.map(lambda x: jnp.asarray(x).reshape(-1, *x.shape[2:]), (dict(z), dict(given)))
    return {
        k: np.asarray(x).reshape(*shape, *x.shape[1:])
        for k, x in _sites(*flat, target, free).items()
    }


@partial(jax.jit, static_argnames="free")
def _sites(flat, given, target, free):
    """Return the values of all sites of every draw (n, ...)."""

    def one(z, given):
        here = target._replace(given=given)
        if target.frame is not None:
            z = frames.out_of_frame(target.frame, z)
        values = constrain_fn(partial(prior_model, free), (here,), {}, z, return_deterministic=True)
        if target.frame is not None:
            full = LDSParams(*(values[name] for name in LDSParams._fields))
            values |= moved(full, given[frames.SITE], jnp)._asdict()
        values |= {k: v for k, v in given.items() if k != frames.SITE}
        return {k: v for k, v in values.items() if k in free.names or k not in PARAMETERS}

    return jax.vmap(one)(flat, given)
