"""What inputs add to states and observations before any data: means that no covariance knows of.

With z̄_1 = B u_1, z̄_t = A z̄_{t-1} + B u_t and ȳ_t = C z̄_t + D u_t, the deviations z - z̄ and y - ȳ follow the same model
without inputs. So every computation of the model without inputs gives, on y - ȳ, that of the model with them.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from ..cohort import Cohort
from ..params import LDSParams


def input_means(params: LDSParams, u: Array) -> tuple[Array, Array]:
    """Return z̄ (T, l, N) and ȳ (T, d, N) for inputs u (T, p, N)."""
    A, C, B, D = params.A, params.C, params.B, params.D

    def step(z, Bu):
        z = A @ z + Bu
        return z, z

    _, z = lax.scan(step, jnp.zeros((A.shape[0], u.shape[2]), A.dtype), B @ u)
    return z, C @ z + D @ u


def without_inputs(params: LDSParams) -> LDSParams:
    """Return the model that the deviations follow."""
    return params._replace(B=None, D=None)


def deviations(params: LDSParams, cohort: Cohort) -> tuple[LDSParams, Cohort]:
    """Return the model without inputs, and a cohort without them, of y - ȳ: the same likelihoods.

    Works under jit, where it may be differentiated in params and y.
    """
    if cohort.u is None:
        return params, cohort
    u = jnp.moveaxis(jnp.asarray(cohort.u, params.dtype), 0, -1)
    _, mean = input_means(params, u)
    y = jnp.asarray(cohort.y, params.dtype) - jnp.moveaxis(mean, -1, 0)
    y = jnp.where(cohort.mask, y, 0.0)
    return without_inputs(params), replace(cohort, y=y, u=None, ahead=None)
