"""NumPyro's NUTS kernel as two compiled programs that take the data as arguments.

Runs of the same size do not compile again, and a chain can stop at any chunk.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer.hmc import hmc
from numpyro.infer.util import potential_energy

from .target import Free, Target, kinks_of, model

CHUNK = 50  # draws in one compiled run; then progress is shown, Ctrl-C seen and the chain saved
FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob", "diverging")


class Settings(NamedTuple):
    """Settings that a sampler is compiled for: hashable."""

    free: Free
    num_warmup: int
    target_accept: float
    max_tree_depth: int
    adapt_mass: bool


def adapts_mass(free: tuple[str, ...], target: Target) -> bool:
    """Tell whether the mass matrix is to be adapted, as the curvature at the start is not enough."""
    return free != ("A",) or kinks_of(target) is None


class Sampler(NamedTuple):
    """Two compiled programs for targets of one size."""

    init: Callable[..., Any]  # (key, z, inverse_mass, target) -> state
    advance: Callable[..., Any]  # (state, n, target) -> state, draws of n <= CHUNK steps


@lru_cache(maxsize=32)
def sampler(settings: Settings) -> Sampler:
    """Return the compiled programs for given settings."""
    free, num_warmup, target_accept, max_tree_depth, adapt_mass = settings

    def potential_of(target):
        return lambda z: potential_energy(partial(model, free), (target,), {}, z)

    init_kernel, sample_kernel = hmc(potential_fn_gen=potential_of, algo="NUTS")

    @jax.jit
    def init(key, z, inverse_mass, target):
        return init_kernel(
            z,
            num_warmup,
            step_size=0.5,
            inverse_mass_matrix=inverse_mass,
            adapt_mass_matrix=adapt_mass,
            dense_mass=True,
            target_accept_prob=target_accept,
            max_tree_depth=max_tree_depth,
            model_args=(target,),
            rng_key=key,
        )

    @jax.jit
    def advance(state, n, target):
        def record(state):
            return state.z, {name: getattr(state, name) for name in FIELDS}

        def body(i, carry):
            state, trace = carry
            state = sample_kernel(state, (target,))
            return state, jax.tree.map(lambda t, x: t.at[i].set(x), trace, record(state))

        empty = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), record(state))
        return jax.lax.fori_loop(0, n, body, (state, empty))

    return Sampler(init, advance)
