"""The coverage of forecasts: where later values fall among the draws that were made without them."""

from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Real

from ..inference import posterior_forecast
from ..models import Cohort


class Coverage(NamedTuple):
    """Places of later values among the draws of their forecasts, 0 to 1; NaN where nothing was measured."""

    ranks: Real[np.ndarray, "N horizon d"]

    def within(self, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of values inside central intervals of these probabilities, and its standard error.

        Values of one sequence are not independent: the error is over sequences.
        """
        far = np.abs(2 * self.ranks - 1).reshape(len(self.ranks), -1)  # (N, values)
        seen = np.isfinite(far)
        n = seen.sum(1)
        hits = ((far[..., None] <= probs) & seen[..., None]).sum(1)  # (N, probs)
        share = hits.sum(0) / max(n.sum(), 1)
        rest = hits - share * n[:, None]
        N = max(int((n > 0).sum()), 1)
        return share, np.sqrt((rest**2).sum(0) * N / max(N - 1, 1)) / max(n.sum(), 1)

    def by_channel(self, prob: float = 0.9) -> np.ndarray:
        """Return the share inside the interval for each channel, (d,)."""
        far = np.abs(2 * self.ranks - 1)
        n = np.isfinite(far).sum((0, 1))
        return np.where(n > 0, (far <= prob).sum((0, 1)) / np.maximum(n, 1), np.nan)


def forecast_coverage(
    key: Array, posterior: Any, cohort: Cohort, *, horizon: int = 3, num_draws: int = 200
) -> Coverage:
    """Forecast the steps after the first half of each sequence, and return where the values then measured fall.

    Sequences that the posterior was sampled from have had a part in its parameters; others are a harder test.
    """
    lengths = np.asarray(cohort.lengths)
    given = np.minimum(np.maximum(lengths // 2, 1), lengths)
    ahead = posterior_forecast(key, posterior, cohort, horizon, given, num_draws=num_draws)
    at = given[:, None] + np.arange(horizon)
    y = np.asarray(cohort.values_at(np.arange(len(lengths))[:, None], at))
    below = (ahead.draws < y).sum(0) + 0.5 * (ahead.draws == y).sum(0)
    return Coverage(np.where(np.isfinite(y), (below + 0.5) / (len(ahead.draws) + 1), np.nan))
