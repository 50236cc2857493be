"""Forecasts: the predictive distribution of the next steps of each sequence."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Real
from numpyro.util import not_jax_tracer

from .arguments import whole
from .cohort import Cohort
from .kalman.smoother import kalman_filter
from .linalg import sym_last
from .params import LDSParams


class Forecast(NamedTuple):
    """Mean and covariance of y_{ψ+h} | y_{1:ψ}, h = 1..horizon, in the cohort's units (see `Cohort.to_units`)."""

    mean: Real[Array, "N horizon d"]
    cov: Real[Array, "N horizon d d"]


def forecast(
    params: LDSParams, cohort: Cohort, horizon: int, given: ArrayLike | None = None
) -> Forecast:
    """Forecast `horizon` steps after the first `given` steps of each sequence (all by default).

    E[y_{ψ+h}] = C A^h z_{ψ|ψ}. `given` is one ψ or one for each sequence, from 0 (the prior alone) to T_n.
    """
    psi = check_request(cohort, horizon, given)
    filtered = kalman_filter(params, cohort)
    n = jnp.arange(cohort.n_sequences)
    start = filtered.predicted_mean[n, psi], filtered.predicted_cov[n, psi]
    return _extrapolate(params, *start, int(horizon))


def check_request(cohort: Cohort, horizon: int, given: ArrayLike | None) -> Array:
    """Return ψ of each sequence, (N,); raise unless `horizon` and `given` are whole numbers in their ranges."""
    whole("horizon", horizon)
    given = cohort.lengths if given is None else given
    if not_jax_tracer(given) and not_jax_tracer(cohort.lengths):
        psi = np.broadcast_to(np.asarray(given), (cohort.n_sequences,))
        lengths = np.asarray(cohort.lengths)
        bad = np.flatnonzero((psi < 0) | (psi > lengths) | (psi != np.round(psi)))
        if bad.size:
            n = bad[0]
            raise ValueError(
                f"given is {psi[n]} for sequence {cohort.ids[n]!r} of length {lengths[n]}; "
                "it must be a whole number from 0 to the length"
            )
    return jnp.broadcast_to(jnp.asarray(given, int), (cohort.n_sequences,))


@functools.partial(jax.jit, static_argnames="horizon")
def _extrapolate(params: LDSParams, m: Array, P: Array, horizon: int) -> Forecast:
    A, C, Q, R, _, _ = (jnp.asarray(x) for x in params)

    def step(carry, _):
        m, P = carry
        y, S = m @ C.T, C @ P @ C.T
        return (m @ A.T, sym_last(A @ P @ A.T) + Q), (y, sym_last(S) + R)

    _, (mean, cov) = lax.scan(step, (m, P), length=horizon)
    return Forecast(jnp.swapaxes(mean, 0, 1), jnp.swapaxes(cov, 0, 1))
