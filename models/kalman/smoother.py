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
from .input_means import deviations, input_means
from .likelihood import check_shapes


class Filtered(NamedTuple):
    """Means and covariances of z_t | y_{1:t} and z_t | y_{1:t-1}; past the end of a sequence both are forecasts.

    With inputs, means past the end are NaN from where inputs are not known.
    """

    mean: Real[Array, "N T l"]
    cov: Real[Array, "N T l l"]
    predicted_mean: Real[Array, "N T+1 l"]  # of steps 1..T + 1
    predicted_cov: Real[Array, "N T+1 l l"]
    log_likelihood: Real[Array, " N"]


class Smoothed(NamedTuple):
    """Means and covariances of z_t | y_{1:T_n}; past the end of a sequence they are forecasts.

    With inputs, means past the end are NaN from where inputs are not known.
    """

    mean: Real[Array, "N T l"]
    cov: Real[Array, "N T l l"]
    cross_cov: Real[Array, "N T-1 l l"]  # Cov[z_{t+1}, z_t | y]
    log_likelihood: Real[Array, " N"]


def kalman_filter(params: LDSParams, cohort: Cohort) -> Filtered:
    """Return p(z_t | y_{1:t}), p(z_t | y_{1:t-1}) and log p(y) of each sequence."""
    check_shapes(params, cohort)
    found = explain_breakdown(_filter(*deviations(params, cohort)), params, cohort)
    if cohort.u is None:
        return found
    z = _state_means(params, cohort)
    return found._replace(mean=found.mean + z[:, :-1], predicted_mean=found.predicted_mean + z)


def kalman_smoother(params: LDSParams, cohort: Cohort) -> Smoothed:
    """Return p(z_t | y_{1:T_n}) of each sequence, by the Rauch-Tung-Striebel recursion.

    With J_t = P_{t|t} A' P_{t+1|t}^-1 the covariance is written as a sum of squares, which stays definite:
    P_{t|T} = (I - J A) P_{t|t} (I - J A)' + J (Q + P_{t+1|T}) J'.
    """
    check_shapes(params, cohort)
    found = explain_breakdown(_smoother(*deviations(params, cohort)), params, cohort)
    if cohort.u is None:
        return found
    return found._replace(mean=found.mean + _state_means(params, cohort)[:, :-1])


def before_input(params: LDSParams, cohort: Cohort, psi: Array) -> tuple[Array, Array]:
    """Return mean (N, l) and covariance (N, l, l) of z_{ψ+1} - B u_{ψ+1} given y_{1:ψ}: π1 and V1 for ψ = 0."""
    check_shapes(params, cohort)
    found = explain_breakdown(_filter(*deviations(params, cohort)), params, cohort)
    n = jnp.arange(cohort.n_sequences)
    m, P = found.predicted_mean[n, psi], found.predicted_cov[n, psi]
    if cohort.u is not None:
        z = jnp.pad(_state_means(params, cohort), [(0, 0), (1, 0), (0, 0)])
        m = m + z[n, psi] @ jnp.asarray(params.A).T
    return m, P


@jax.jit
def _state_means(params: LDSParams, cohort: Cohort) -> Array:
    """Return z̄ of T + 1 steps, (N, T + 1, l): NaN past a sequence's end from where inputs are not known."""
    u = jnp.asarray(cohort.inputs_ahead(1, jnp), params.dtype)
    z, _ = input_means(jax.tree.map(jnp.asarray, params), jnp.moveaxis(u, 0, -1))
    return jnp.moveaxis(z, -1, 0)


@jax.jit
def _filter(params: LDSParams, cohort: Cohort) -> Filtered:
    params = jax.tree.map(jnp.asarray, params)
    A, Q = params.A, params.Q
    data = _with_missing_ends(cohort, params.dtype)
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
