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
from .inputs import INTERCEPT
from .kalman.smoother import before_input
from .linalg import sym_last
from .params import LDSParams


class MissingInputError(ValueError):
    """A forecast needs an input of a step to come that is not known."""


class Forecast(NamedTuple):
    """Mean and covariance of y_{ψ+h} | y_{1:ψ}, h = 1..horizon, in the cohort's units (see `Cohort.to_units`)."""

    mean: Real[Array, "N horizon d"]
    cov: Real[Array, "N horizon d d"]


def forecast(
    params: LDSParams,
    cohort: Cohort,
    horizon: int,
    given: ArrayLike | None = None,
    *,
    inputs: ArrayLike | None = None,
) -> Forecast:
    """Forecast `horizon` steps after the first `given` steps of each sequence (all by default).

    E[y_{ψ+h}] = C A^h z_{ψ|ψ}. `given` is one ψ or one for each sequence, from 0 (the prior alone) to T_n.
    A model with inputs takes those of the forecast steps from the cohort, or other ones from `inputs`, (N, horizon, p)
    or (horizon, p) for all sequences.
    """
    psi = check_request(cohort, horizon, given)
    u = forecast_inputs(cohort, psi, int(horizon), inputs)
    start = before_input(params, cohort, psi)
    return _extrapolate(params, *start, int(horizon), u)


def forecast_inputs(
    cohort: Cohort, psi: Array, horizon: int, inputs: ArrayLike | None
) -> Array | None:
    """Return the inputs of the steps after the first ψ, (N, horizon, p), or None; raise where they are not known.

    `inputs` replace those of the cohort; an intercept need not be among them.
    """
    N, p = cohort.n_sequences, cohort.n_inputs
    if p == 0:
        if inputs is not None:
            raise ValueError("inputs are given, and the cohort has none")
        return None
    if inputs is None:
        ahead = cohort.inputs_ahead(horizon, jnp)
        at = psi[:, None] + jnp.arange(horizon)
        u = jnp.take_along_axis(ahead, at[..., None], axis=1)
    else:
        u = jnp.asarray(inputs)
        if INTERCEPT in cohort.inputs and u.shape[-1:] == (p - 1,):
            u = jnp.insert(u, cohort.inputs.index(INTERCEPT), 1.0, axis=-1)
        if u.shape not in ((N, horizon, p), (horizon, p)):
            raise ValueError(
                f"inputs has shape {jnp.shape(inputs)}; give {(N, horizon, p)}, or {(horizon, p)} for all sequences "
                f"(inputs: {', '.join(cohort.inputs)})"
            )
        u = jnp.broadcast_to(u, (N, horizon, p))
    if not_jax_tracer(u):
        for n, h, j in np.argwhere(~np.isfinite(np.asarray(u))):
            raise MissingInputError(
                f"a forecast of step {int(psi[n]) + h} of sequence {cohort.ids[n]!r} needs its input "
                f"{cohort.inputs[j]!r}, which is not known: give inputs= to the forecast, or a cohort whose inputs go "
                "on past the last observation"
            )
    return u


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
def _extrapolate(
    params: LDSParams, m: Array, P: Array, horizon: int, u: Array | None = None
) -> Forecast:
    A, C, Q, R, _, _, B, D = jax.tree.map(jnp.asarray, params).eight

    def step(carry, u):
        m, P = carry
        m = m if u is None else m + u @ B.T
        y, S = m @ C.T if u is None else m @ C.T + u @ D.T, C @ P @ C.T
        return (m @ A.T, sym_last(A @ P @ A.T) + Q), (y, sym_last(S) + R)

    xs = None if u is None else jnp.swapaxes(u.astype(A.dtype), 0, 1)
    _, (mean, cov) = lax.scan(step, (m, P), xs, length=horizon)
    return Forecast(jnp.swapaxes(mean, 0, 1), jnp.swapaxes(cov, 0, 1))
