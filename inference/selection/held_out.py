"""Scores of held-out sequences, and the rules that choose a model by them.

All models are judged on the same sequences, each of which was left out of the fit that it judges, so that what counts
between two models is the difference sequence by sequence: its standard error is far below that of either score.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Real

from ...models import Cohort, LDSParams, kalman_filter
from .forecast_error import errors_of_states


class HeldOut(NamedTuple):
    """Scores of k models on N sequences, each by a fit without that sequence."""

    density: Real[np.ndarray, "k N"]  # log p(y_n)
    error: Real[np.ndarray, "k N"]  # mean absolute error of all forecasts, standardised units
    cells: Real[np.ndarray, " N"]  # how many values a sequence has
    fold: Real[np.ndarray, " N"]

    def densities(self, which: Any = slice(None)) -> np.ndarray:
        """Return the log predictive density of each model for one value, (k,), over the sequences `which`."""
        return self.density[:, which].sum(1) / self.cells[which].sum()

    def errors(self, which: Any = slice(None)) -> np.ndarray:
        """Return the error of each model, (k,), the mean over the sequences `which`."""
        return np.nanmean(self.error[:, which], axis=1)

    def density_gaps(self, best: int, which: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each density is below that of model `best`, and the standard error of that, both (k,)."""
        gap = self.density[best, which] - self.density[:, which]
        cells, n = self.cells[which], gap.shape[1]
        mean = gap.sum(1) / cells.sum()
        rest = gap - mean[:, None] * cells
        return mean, np.sqrt((rest**2).sum(1) * n / max(n - 1, 1)) / cells.sum()

    def error_gaps(self, best: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each error is above that of model `best`, and the standard error of that, both (k,)."""
        gap = self.error - self.error[best]
        n = np.isfinite(gap).sum(1)
        return np.nanmean(gap, axis=1), np.nanstd(gap, axis=1, ddof=1) / np.sqrt(n)


def scores(
    params: LDSParams, cohort: Cohort, held: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(y_n) and the forecast error, in units of `scale` (d,), of the sequences held out.

    The filter runs over the whole cohort, whose shape is the same for every fold: nothing is compiled anew.
    """
    filtered = kalman_filter(params, cohort)
    predicted = np.asarray(filtered.predicted_mean)[held]
    y, mask = np.asarray(cohort.y)[held] / scale, np.asarray(cohort.mask)[held]
    C = np.asarray(params.C) / scale[:, None]
    error = errors_of_states(predicted, np.asarray(params.A), C, y, mask)
    return np.asarray(filtered.log_likelihood)[held], error


# ---- rules: each returns the row of the model that it chooses, judged by the sequences `which`


def best_density(table: pd.DataFrame, found: HeldOut, which: Any = slice(None)) -> int:
    """the largest held-out density: for prediction with its uncertainty"""
    return int(np.argmax(found.densities(which)))


def best_error(table: pd.DataFrame, found: HeldOut, which: Any = slice(None)) -> int:
    """the least held-out error of forecasts: for point forecasts"""
    return int(np.argmin(found.errors(which)))


def one_se(table: pd.DataFrame, found: HeldOut, which: Any = slice(None)) -> int:
    """the fewest nonzero entries within one standard error of the best density: for a sparse picture"""
    gap, se = found.density_gaps(best_density(table, found, which), which)
    near = np.flatnonzero(gap <= se)
    keys = (gap[near], table["n_states"].to_numpy()[near], table["nonzero"].to_numpy()[near])
    return int(near[np.lexsort(keys)[0]])


def best_bic(table: pd.DataFrame, found: HeldOut, which: Any = slice(None)) -> int:
    """the least BIC: no sequence is held out"""
    return int(table["bic"].to_numpy().argmin())


Rule = Callable[..., int]
RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (best_density, best_error, one_se, best_bic)
}


def rule_named(name: str) -> Rule:
    """Return a rule by its name, or raise an error that says what each is for."""
    if name not in RULES:
        known = "; ".join(f"{key!r}, {rule.__doc__}" for key, rule in RULES.items())
        raise ValueError(f"rule is {name!r}; it may be {known}")
    return RULES[name]
