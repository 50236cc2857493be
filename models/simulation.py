"""Simulation: cohorts drawn from the model."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from .cohort import Cohort
from .params import LDSParams


class Simulation(NamedTuple):
    """A simulated cohort and its states, which go on past the end of a sequence."""

    cohort: Cohort
    states: Real[Array, "N T l"]


def simulate(
    key: Array, params: LDSParams, lengths: Sequence[int] | np.ndarray, *, channels=None
) -> Simulation:
    """Draw one sequence for each length: z_1 ~ N(π1, V1), z_t = A z_{t-1} + e_t, y_t = C z_t + v_t."""
    lengths = np.atleast_1d(np.asarray(lengths))
    if lengths.size == 0 or lengths.dtype.kind not in "iu" or lengths.min() < 1:
        raise ValueError(f"lengths is {lengths}; give one whole number, at least 1, a sequence")
    z, y = sample_paths(key, params, (len(lengths),), int(lengths.max()))
    cohort = Cohort.from_array(np.asarray(y), lengths=lengths, channels=channels)
    return Simulation(cohort, z)


@functools.partial(jax.jit, static_argnames=("shape", "n_steps"))
def sample_paths(
    key: Array, params: LDSParams, shape: tuple[int, ...], n_steps: int
) -> tuple[Array, Array]:
    """Draw states (*shape, T, l) and observations (*shape, T, d)."""
    A, C, Q, R, pi1, V1 = (jnp.asarray(x) for x in params)
    key_z, key_y = jax.random.split(key)
    noise = jax.random.normal(key_z, (n_steps, *shape, A.shape[0]), A.dtype)
    z1 = pi1 + noise[0] @ _factor(V1).T

    def step(z, e):
        z = z @ A.T + e
        return z, z

    _, rest = lax.scan(step, z1, noise[1:] @ _factor(Q).T)
    z = jnp.moveaxis(jnp.concatenate([z1[None], rest]), 0, -2)
    v = jax.random.normal(key_y, (*z.shape[:-1], C.shape[0]), A.dtype) @ _factor(R).T
    return z, z @ C.T + v


def _factor(S: Array) -> Array:
    """Return F with F F' = S, by eigenvalues, so that a singular covariance is allowed."""
    values, vectors = jnp.linalg.eigh(S)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))
