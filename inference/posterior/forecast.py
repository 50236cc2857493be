"""Forecasts that include the uncertainty of the parameters: every posterior draw simulates its own future."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Real

from ...models import Cohort
from ...models.arguments import probability, whole
from ...models.forecasting import check_request, forecast_inputs
from ...models.kalman.smoother import before_input
from ...models.simulation import sample_paths
from . import arviz_compat as az
from .dataset import each_draw, posterior_params


class PosteriorForecast(NamedTuple):
    """Draws of y_{ψ+h} | y_{1:ψ}, h = 1..horizon, in the cohort's units (see `Cohort.to_units`)."""

    draws: Real[np.ndarray, "S N horizon d"]  # each a path of its own
    given: Real[np.ndarray, " N"]  # ψ
    mean: Real[np.ndarray, "N horizon d"]  # of the means given each draw of the parameters

    def interval(self, prob: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return equal-tailed intervals, two arrays (N, horizon, d)."""
        prob = probability("prob", prob)
        low, high = np.quantile(self.draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        return low, high

    def coverage(self, cohort: Cohort, prob: float = 0.9) -> np.ndarray:
        """Return the share of observed values within the intervals, (horizon, d); NaN where none was observed."""
        horizon = self.draws.shape[2]
        ahead = self.given[:, None] + np.arange(horizon)  # (N, horizon)
        y = cohort.values_at(np.arange(len(ahead))[:, None], ahead)
        low, high = self.interval(prob)
        hits = ((low <= y) & (y <= high)).sum(0)
        n = np.isfinite(y).sum(0)
        return np.where(n > 0, hits / np.maximum(n, 1), np.nan)


def posterior_forecast(
    key: Array,
    posterior: Any,
    cohort: Cohort,
    horizon: int,
    given: ArrayLike | None = None,
    *,
    inputs: ArrayLike | None = None,
    num_draws: int = 400,
) -> PosteriorForecast:
    """Draw paths of `horizon` steps after the first `given` steps of each sequence (all by default).

    `cohort` may differ from the one that the posterior was sampled on, with the same channels in the same units.
    `inputs` replace those that the cohort has for the steps that are forecast, as in `forecast`.
    """
    d = az.group(posterior, "observed_data").sizes["channel"]
    if cohort.n_channels != d:
        raise ValueError(f"the posterior is of {d} channels, the cohort has {cohort.n_channels}")
    num_draws = whole("num_draws", num_draws)
    psi = check_request(cohort, horizon, given)
    full, free = posterior_params(posterior, num_draws)
    p = 0 if "B" not in full else full["B"].shape[-1]
    if cohort.n_inputs != p:
        raise ValueError(f"the posterior is of {p} inputs, the cohort has {cohort.n_inputs}")
    u = forecast_inputs(cohort, psi, int(horizon), inputs)
    keys = jax.random.split(key, len(full[free[0]]))
    paths, means = _paths(keys, full, cohort, psi, free, int(horizon), u)
    return PosteriorForecast(np.asarray(paths), np.asarray(psi), np.asarray(means).mean(0))


@partial(jax.jit, static_argnames=("free", "horizon"))
def _paths(keys, full, cohort: Cohort, psi, free, horizon, u=None):
    """Draw a path for every draw and sequence, and return the means, both (S, N, horizon, d)."""

    def one(params, key):
        m, P = before_input(params, cohort, psi)

        def path(key, m, P, u):
            return sample_paths(key, params._replace(pi1=m, V1=P), (), horizon, u)[1]

        def step(m, u):
            if u is None:
                return m @ params.A.T, m @ params.C.T
            m = m + u @ params.B.T
            return m @ params.A.T, m @ params.C.T + u @ params.D.T

        by_step = None if u is None else jnp.swapaxes(u.astype(m.dtype), 0, 1)
        means = lax.scan(step, m, by_step, length=horizon)[1]  # (horizon, N, d)
        paths = jax.vmap(path)(jax.random.split(key, len(m)), m, P, u)
        return paths, jnp.swapaxes(means, 0, 1)

    return each_draw(one, full, free, keys)
