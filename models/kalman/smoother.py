"""The Kalman filter and smoother, with a mean and a covariance for every sequence and step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Real

from ..cohort import Cohort
from ..linalg import sym_last
from ..params import LDSParams
from . import gappy
from .breakdown import explain_breakdown
from .likelihood import check_shapes


class Filtered(NamedTuple):
    """Means and covariances of z_t | y_{1:t} and z_t | y_{1:t-1}; past the end of a sequence both are forecasts."""

    mean: Real[Array, "N T l"]
    cov: Real[Array, "N T l l"]
    predicted_mean: Real[Array, "N T+1 l"]  # of steps 1..T + 1
    predicted_cov: Real[Array, "N T+1 l l"]
    log_likelihood: Real[Array, " N"]


class Smoothed(NamedTuple):
    """Means and covariances of z_t | y_{1:T_n}; past the end of a sequence they are forecasts."""

    mean: Real[Array, "N T l"]
    cov: Real[Array, "N T l l"]
    cross_cov: Real[Array, "N T-1 l l"]  # Cov[z_{t+1}, z_t | y]
    log_likelihood: Real[Array, " N"]


def kalman_filter(params: LDSParams, cohort: Cohort) -> Filtered:
    """Return p(z_t | y_{1:t}), p(z_t | y_{1:t-1}) and log p(y) of each sequence."""
    check_shapes(params, cohort)
    return explain_breakdown(_filter(params, cohort), params, cohort)


def kalman_smoother(params: LDSParams, cohort: Cohort) -> Smoothed:
    """Return p(z_t | y_{1:T_n}) of each sequence, by the Rauch-Tung-Striebel recursion.

    With J_t = P_{t|t} A' P_{t+1|t}^-1 the covariance is written as a sum of squares, which stays definite:
    P_{t|T} = (I - J A) P_{t|t} (I - J A)' + J (Q + P_{t+1|T}) J'.
    """
    check_shapes(params, cohort)
    return explain_breakdown(_smoother(params, cohort), params, cohort)


@jax.jit
def _filter(params: LDSParams, cohort: Cohort) -> Filtered:
    params = LDSParams(*(jnp.asarray(x) for x in params))
    A, Q = params.A, params.Q
    data = _with_missing_ends(cohort, jnp.result_type(*params))
    fwd = gappy.forward(params, data)
    mean, cov = jnp.moveaxis(fwd.mf, -1, 0), jnp.moveaxis(fwd.Pf, -1, 0)
    N = mean.shape[0]
    first_mean = jnp.broadcast_to(params.pi1, (N, 1, *params.pi1.shape))
    first_cov = jnp.broadcast_to(params.V1, (N, 1, *params.V1.shape))
    predicted_cov = sym_last(A @ cov @ A.T) + Q
    return Filtered(
        mean,
        cov,
        jnp.concatenate([first_mean, mean @ A.T], axis=1),
        jnp.concatenate([first_cov, predicted_cov], axis=1),
        gappy.loglik(data, fwd),
    )


def _with_missing_ends(cohort: Cohort, dtype) -> gappy.Gappy:
    """Arrange a cohort with nothing observed past a sequence's end, so that filter and smoother forecast there."""
    y, mask = (jnp.moveaxis(jnp.asarray(x), 0, -1).astype(dtype) for x in (cohort.y, cohort.mask))
    inside = jnp.arange(y.shape[0])[:, None] < jnp.asarray(cohort.lengths)
    return gappy.Gappy(y, inside.astype(dtype), mask, jnp.ones(y.shape[-1], dtype))


@jax.jit
def _smoother(params: LDSParams, cohort: Cohort) -> Smoothed:
    A, Q = jnp.asarray(params.A), jnp.asarray(params.Q)
    filtered = _filter(params, cohort)

    def step(carry, x):
        z, P = carry
        mf, Pf, m_next, P_next = x
        J = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(P_next), True), A @ Pf).mT
        F = jnp.eye(A.shape[0], dtype=A.dtype) - J @ A
        cross = P @ J.mT
        P = sym_last(F @ Pf @ F.mT + J @ (Q + P) @ J.mT)
        z = mf + (J @ (z - m_next)[..., None])[..., 0]
        return (z, P), (z, P, cross)

    def time_first(x):
        return jnp.swapaxes(x, 0, 1)

    xs = (
        filtered.mean[:, :-1],
        filtered.cov[:, :-1],
        filtered.predicted_mean[:, 1:-1],
        filtered.predicted_cov[:, 1:-1],
    )
    end = filtered.mean[:, -1], filtered.cov[:, -1]
    _, (z, P, cross) = lax.scan(step, end, jax.tree.map(time_first, xs), reverse=True)
    return Smoothed(
        jnp.concatenate([time_first(z), end[0][:, None]], axis=1),
        jnp.concatenate([time_first(P), end[1][:, None]], axis=1),
        time_first(cross),
        filtered.log_likelihood,
    )
