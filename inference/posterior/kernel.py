"""One step of a chain as two compiled programs that take the data as arguments: NumPyro's NUTS, after a sweep if any.

Runs of the same size do not compile again, and a chain can stop at any chunk.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc import hmc

from . import frame as frames
from .sweep import GIVEN, Model, sweep, widths
from .target import Free, Target, potential

CHUNK = 50  # draws in one compiled run; then progress is shown, Ctrl-C seen and the chain saved
_SWEEPS = 3  # before each step of NUTS: together they cost about as much as it does
FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob", "diverging")


class Settings(NamedTuple):
    """Settings that a sampler is compiled for: hashable."""

    free: Free
    num_warmup: int  # of each of two stages: the second has masses from the draws of the first
    target_accept: float
    max_tree_depth: int
    adapt_mass: bool


class State(NamedTuple):
    """The state of a chain."""

    nuts: Any  # NumPyro's
    given: dict[str, Array]  # γ and ω of spike and slab, or the rotation W
    sweeping: Array  # whether these are drawn; before that every entry is included, and W = I
    precision: Array  # of the normal approximation that has every entry included, (n, n)
    model: Model | None  # of spike and slab, by which γ is drawn


class Sampler(NamedTuple):
    """Two compiled programs for targets of one size."""

    init: Callable[..., State]  # (key, z, covariance, sweeping, model, target) -> state
    advance: Callable[..., Any]  # (state, n, target) -> state, draws of n <= CHUNK steps


def record(state: State) -> tuple[Any, Any, Any]:
    """Return what is kept of a state: coordinates, given sites, statistics."""
    return state.nuts.z, state.given, {name: getattr(state.nuts, name) for name in FIELDS}


@lru_cache(maxsize=32)
def sampler(settings: Settings) -> Sampler:
    """Return the compiled programs for given settings."""
    free, num_warmup, target_accept, max_tree_depth, _ = settings

    def potential_of(target):
        return lambda z: potential(z, target, free)

    init_kernel, sample_kernel = hmc(potential_fn_gen=potential_of, algo="NUTS")

    @jax.jit
    def init(key, z, covariance, sweeping, quadratic, target):
        nuts = init_kernel(
            z,
            num_warmup,
            step_size=0.5,
            inverse_mass_matrix=covariance,
            adapt_mass_matrix=False,
            dense_mass=True,
            target_accept_prob=target_accept,
            max_tree_depth=max_tree_depth,
            model_args=(target,),
            rng_key=key,
        )
        precision = jnp.linalg.inv(covariance)
        return State(nuts, target.given, jnp.asarray(sweeping), precision, quadratic)

    def swept(state: State, target: Target) -> State:
        """Draw γ and ω, and give NUTS the masses of the entries that are included."""
        assert state.model is not None
        quadratic, nuts = state.model, state.nuts
        key, *own = random.split(nuts.rng_key, 1 + _SWEEPS)

        def again(carry, key):
            z, given = carry
            return sweep(key, z, target._replace(given=given), free, quadratic), None

        (z, given), _ = lax.scan(again, (nuts.z, target.given), jnp.stack(own))
        energy, gradient = jax.value_and_grad(potential)(z, target._replace(given=given), free)
        slabs = widths(target, z)
        everything = {name: jnp.ones_like(x) for name, x in z.items()}
        own = {site: given[GIVEN[site][0]] for site in slabs}
        kept = ravel_pytree({**everything, **own})[0] > 0
        outside = jnp.where(kept, 0.0, ravel_pytree({**everything, **slabs})[0] ** -2)
        precision = jnp.where(kept[:, None] & kept, state.precision, 0.0) + jnp.diag(outside)
        root = jnp.linalg.cholesky(precision)
        inverse_root = jax.scipy.linalg.solve_triangular(
            root, jnp.eye(len(root), dtype=root.dtype), lower=True
        )
        masses = nuts.adapt_state._replace(
            inverse_mass_matrix=inverse_root.T @ inverse_root,
            mass_matrix_sqrt=root,
            mass_matrix_sqrt_inv=inverse_root,
        )
        nuts = nuts._replace(
            z=z, potential_energy=energy, z_grad=gradient, adapt_state=masses, rng_key=key
        )
        return state._replace(nuts=nuts, given=given)

    def rotated(state: State, target: Target) -> State:
        """Draw the rotation, and give NUTS the energy under it: the likelihood is the same."""
        frame, prior, nuts, W = target.frame, target.prior, state.nuts, state.given[frames.SITE]
        assert frame is not None
        key, own = random.split(nuts.rng_key)
        new = frames.turned(own, frames.out_of_frame(frame, nuts.z)["A"], W, prior)

        def change(z):
            return frames.tilt(z, new, frame, prior) - frames.tilt(z, W, frame, prior)

        more, slope = jax.value_and_grad(change)(nuts.z)
        nuts = nuts._replace(
            potential_energy=nuts.potential_energy + more,
            z_grad=jax.tree.map(jnp.add, nuts.z_grad, slope),
            rng_key=key,
        )
        return state._replace(nuts=nuts, given={frames.SITE: new})

    @jax.jit
    def advance(state, n, target):
        between = rotated if target.frame is not None else swept

        def body(i, carry):
            state, trace = carry
            if target.given:
                state = lax.cond(
                    state.sweeping,
                    lambda s: between(s, target._replace(given=s.given)),
                    lambda s: s,
                    state,
                )
            nuts = sample_kernel(state.nuts, (target._replace(given=state.given),))
            state = state._replace(nuts=nuts)
            return state, jax.tree.map(lambda t, x: t.at[i].set(x), trace, record(state))

        empty = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), record(state))
        return jax.lax.fori_loop(0, n, body, (state, empty))

    return Sampler(init, advance)


def shrunk_covariance(draws: Any, covariance: np.ndarray) -> np.ndarray:
    """Return the covariance of draws, drawn to the one that they were made with as if by as many draws as dimensions.

    The covariance of a few hundred draws in 50 dimensions is far too narrow in some directions, and NUTS would take
    many small steps.
    """
    x = np.asarray(jax.vmap(lambda z: ravel_pytree(z)[0])(draws), float)
    n, k = x.shape
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, (x - x.mean(0)).T)
    S = (white @ white.T + k * np.eye(k)) / (n + k)
    return factor @ S @ factor.T
