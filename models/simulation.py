"""Simulation: cohorts drawn from the model."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from .cohort import Cohort
from .inputs import read_inputs
from .params import LDSParams, with_inputs


class Simulation(NamedTuple):
    """A simulated cohort and its states, which go on past the end of a sequence."""

    cohort: Cohort
    states: Real[Array, "N T l"]


def simulate(
    key: Array,
    params: LDSParams,
    lengths: Sequence[int] | np.ndarray,
    *,
    channels=None,
    inputs: Sequence[Any] | None = None,
    input_names=None,
) -> Simulation:
    """Draw one sequence for each length: z_1 ~ N(π1, V1), z_t = A z_{t-1} + e_t, y_t = C z_t + v_t.

    A model with inputs needs `inputs`, an array (T_n or more, p) for each sequence: z_t gets B u_t more, and y_t D u_t.
    """
    lengths = np.atleast_1d(np.asarray(lengths))
    if lengths.size == 0 or lengths.dtype.kind not in "iu" or lengths.min() < 1:
        raise ValueError(f"lengths is {lengths}; give one whole number, at least 1, a sequence")
    u, p = None, params.n_inputs
    if (inputs is None) != (p == 0):
        raise ValueError(f"params have {p} inputs, and inputs is {'None' if p else 'given'}")
    if inputs is not None:
        inputs = list(inputs)
        u = jnp.asarray(read_inputs(inputs, lengths, tuple(range(len(lengths))), None, None).u)
        if u.shape[2] != p:
            raise ValueError(f"params have {p} inputs, and inputs has {u.shape[2]}")
    params = with_inputs(params, p)
    z, y = sample_paths(key, params, (len(lengths),), int(lengths.max()), u)
    cohort = Cohort.from_array(
        np.asarray(y), lengths=lengths, channels=channels, inputs=inputs, input_names=input_names
    )
    return Simulation(cohort, z)


@functools.partial(jax.jit, static_argnames=("shape", "n_steps"))
def sample_paths(
    key: Array, params: LDSParams, shape: tuple[int, ...], n_steps: int, u: Array | None = None
) -> tuple[Array, Array]:
    """Draw states (*shape, T, l) and observations (*shape, T, d); with inputs u (..., T, p) that broadcast."""
    A, C, Q, R, pi1, V1, B, D = jax.tree.map(jnp.asarray, params).eight
    key_z, key_y = jax.random.split(key)
    noise = jax.random.normal(key_z, (n_steps, *shape, A.shape[0]), A.dtype)
    z1, moves = pi1 + noise[0] @ _factor(V1).T, noise[1:] @ _factor(Q).T
    if u is not None:
        Bu = jnp.moveaxis(u.astype(A.dtype) @ B.T, -2, 0)  # (T, ..., l)
        Bu = Bu.reshape(n_steps, *(1,) * (len(shape) + 2 - Bu.ndim), *Bu.shape[1:])
        z1, moves = z1 + Bu[0], moves + Bu[1:]

    def step(z, e):
        z = z @ A.T + e
        return z, z

    _, rest = lax.scan(step, z1, moves)
    z = jnp.moveaxis(jnp.concatenate([z1[None], rest]), 0, -2)
    v = jax.random.normal(key_y, (*z.shape[:-1], C.shape[0]), A.dtype) @ _factor(R).T
    y = z @ C.T + v
    return z, y if u is None else y + u.astype(A.dtype) @ D.T


def _factor(S: Array) -> Array:
    """Return F with F F' = S, by eigenvalues, so that a singular covariance is allowed."""
    values, vectors = jnp.linalg.eigh(S)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))
