"""Forecasts that carry the uncertainty of the parameters: every posterior draw simulates its own future."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from ...models import Cohort, kalman_filter
from ...models.forecasting import check_request
from ...models.simulation import sample_paths
from . import arviz_compat as az
from .dataset import each_draw, posterior_params


class PosteriorForecast(NamedTuple):
    """Draws of y_{ψ+h} | y_{1:ψ}, h = 1..horizon, in the cohort's units (see `Cohort.to_units`)."""

    draws: np.ndarray  # (S, N, horizon, d), each a path of its own
    given: np.ndarray  # (N,), ψ
    mean: np.ndarray  # (N, horizon, d), of the means given each draw of the parameters

    def interval(self, prob: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed, two arrays (N, horizon, d)."""
        if not 0 < prob < 1:
            raise ValueError(f"prob is {prob}; it must be between 0 and 1")
        low, high = np.quantile(self.draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        return low, high

    def coverage(self, cohort: Cohort, prob: float = 0.9) -> np.ndarray:
        """The share of observed values within the intervals, (horizon, d); NaN where none was observed."""
        horizon = self.draws.shape[2]
        at = self.given[:, None] + np.arange(horizon)  # (N, horizon)
        inside = at < np.asarray(cohort.lengths)[:, None]
        rows, at = np.arange(len(at))[:, None], np.minimum(at, cohort.n_steps - 1)
        seen = np.asarray(cohort.mask)[rows, at] & inside[..., None]
        y = np.asarray(cohort.y)[rows, at]
        low, high = self.interval(prob)
        hits = ((low <= y) & (y <= high) & seen).sum(0)
        n = seen.sum(0)
        return np.where(n > 0, hits / np.maximum(n, 1), np.nan)


def posterior_forecast(
    key: Array,
    posterior: Any,
    cohort: Cohort,
    horizon: int,
    given: ArrayLike | None = None,
    *,
    num_draws: int = 400,
) -> PosteriorForecast:
    """Paths of `horizon` steps after the first `given` steps of each sequence (all by default).

    `cohort` may be another one than that the posterior was sampled on, with the same channels in the same units.
    """
    d = az.group(posterior, "observed_data").sizes["channel"]
    if cohort.n_channels != d:
        raise ValueError(f"the posterior is of {d} channels, the cohort has {cohort.n_channels}")
    if int(num_draws) != num_draws or num_draws < 1:
        raise ValueError(f"num_draws is {num_draws}; it must be a whole number, at least 1")
    psi = check_request(cohort, horizon, given)
    full, free = posterior_params(posterior, num_draws)
    keys = jax.random.split(key, len(full[free[0]]))
    paths, means = _paths(keys, full, cohort, psi, free, int(horizon))
    return PosteriorForecast(np.asarray(paths), np.asarray(psi), np.asarray(means).mean(0))


@partial(jax.jit, static_argnames=("free", "horizon"))
def _paths(keys, full, cohort: Cohort, psi, free, horizon):
    n = jnp.arange(cohort.n_sequences)

    def one(params, key):
        filtered = kalman_filter(params, cohort)
        m, P = filtered.predicted_mean[n, psi], filtered.predicted_cov[n, psi]

        def path(key, m, P):
            return sample_paths(key, params._replace(pi1=m, V1=P), (), horizon)[1]

        def step(m, _):
            return m @ params.A.T, m @ params.C.T

        means = lax.scan(step, m, length=horizon)[1]  # (horizon, N, d)
        paths = jax.vmap(path)(jax.random.split(key, len(m)), m, P)
        return paths, jnp.swapaxes(means, 0, 1)

    return each_draw(one, full, free, keys)
