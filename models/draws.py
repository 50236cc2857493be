"""Draws of Gamma variables and covariances on the host, where the key is known: JAX's own take seconds to compile."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.util import not_jax_tracer
from scipy.stats import invwishart


def on_host(*values: Any) -> bool:
    """Tell whether all values are known: none is traced by a compiled program."""
    return all(not_jax_tracer(x) for x in values)


def generator(key: Any) -> np.random.Generator:
    """Return numpy's generator, seeded by a JAX key of either kind."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return np.random.default_rng(np.asarray(jax.random.key_data(key) if typed else key).ravel())


def gamma(key: Any, shape: Any, size: tuple[int, ...], dtype: Any) -> Array:
    """Draw Gamma(shape, 1) variables, an array of the given size."""
    if not on_host(key, shape):
        return jax.random.gamma(key, shape, size, dtype)
    return jnp.asarray(generator(key).gamma(np.asarray(shape, float), size=size), dtype)


def inverse_wishart(key: Any, nu: Any, Psi: Any, sample_shape: tuple[int, ...]) -> np.ndarray:
    """Draw InverseWishart(ν, Ψ) matrices, sample_shape + (k, k), from a key, ν and Ψ that are known."""
    Psi, n = np.asarray(Psi, float), int(np.prod(sample_shape))
    draws: Any = invwishart.rvs(float(nu), Psi, size=n, random_state=generator(key))
    return np.reshape(draws, (*sample_shape, *Psi.shape))
