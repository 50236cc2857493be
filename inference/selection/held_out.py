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
from ...models.kalman.input_means import deviations
from .forecast_error import errors_of_states

_NEAR = 0.25  # standard errors of a paired difference within which a simpler structure is taken


class HeldOut(NamedTuple):
    """Scores of k models on N sequences, each by a fit without that sequence."""

    density: Real[np.ndarray, "k N"]  # log p(y_n)
    error: Real[np.ndarray, "k N"]  # mean absolute error of all forecasts, standardised units
    cells: Real[np.ndarray, " N"]  # how many values a sequence has
    fold: Real[np.ndarray, " N"]

    def densities(self) -> np.ndarray:
        """Return the log predictive density of each model for one value, (k,)."""
        return self.density.sum(1) / self.cells.sum()

    def errors(self) -> np.ndarray:
        """Return the error of each model, (k,), the mean over the sequences."""
        return np.nanmean(self.error, axis=1)

    def density_gaps(self, best: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each density is below that of model `best`, and the standard error of that, both (k,)."""
        gap, n = self.density[best] - self.density, self.density.shape[1]
        mean = gap.sum(1) / self.cells.sum()
        rest = gap - mean[:, None] * self.cells
        return mean, np.sqrt((rest**2).sum(1) * n / max(n - 1, 1)) / self.cells.sum()

    def error_gaps(self, best: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each error is above that of model `best`, and the standard error of that, both (k,)."""
        with np.errstate(invalid="ignore"):  # ∞ - ∞, of models whose forecasts are not finite
            gap = self.error - self.error[best]
        seen = ~np.isnan(gap)
        n = np.maximum(seen.sum(1), 1)
        mean = np.where(seen, gap, 0.0).sum(1) / n
        rest = np.where(
            seen & np.isfinite(gap), gap - np.where(np.isfinite(mean), mean, 0)[:, None], 0.0
        )
        return mean, np.sqrt((rest**2).sum(1) / np.maximum(n - 1, 1) / n)


def scores(
    params: LDSParams, cohort: Cohort, held: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(y_n) and the forecast error, in units of `scale` (d,), of the sequences held out.

    The filter runs over the whole cohort, whose shape is the same for every fold: nothing is compiled anew.
    """
    params, cohort = deviations(params, cohort)
    filtered = kalman_filter(params, cohort)
    predicted = np.asarray(filtered.predicted_mean)[held]
    y, mask = np.asarray(cohort.y)[held] / scale, np.asarray(cohort.mask)[held]
    C = np.asarray(params.C) / scale[:, None]
    error = errors_of_states(predicted, np.asarray(params.A), C, y, mask)
    return np.asarray(filtered.log_likelihood)[held], error


def choose(rule: str, table: pd.DataFrame, found: HeldOut, which: Any = slice(None)) -> int:
    """Return the row of the model that a rule chooses, judged by the sequences `which`.

    Models that explode (column `explodes`) are left out, unless all do: their forecasts of sequences longer than
    those held out would be absurd.
    """
    rows = np.flatnonzero(~table["explodes"].to_numpy(bool))
    rows = rows if rows.size else np.arange(len(table))
    density, error = found.density[rows][:, which], found.error[rows][:, which]
    error = np.where(np.isfinite(error).any(0) & ~np.isfinite(error), np.inf, error)
    density = np.where(np.isfinite(density), density, -np.inf)
    few = HeldOut(density, error, found.cells[which], found.fold[which])
    return int(rows[rule_named(rule)(table.iloc[rows], few)])


# ---- rules: each returns the row that it chooses


def best_density(table: pd.DataFrame, found: HeldOut) -> int:
    """the largest held-out density: for prediction with its uncertainty"""
    return int(np.argmax(found.densities()))


def best_error(table: pd.DataFrame, found: HeldOut) -> int:
    """the least held-out error of forecasts, of the first structure within a quarter of a standard error of the best"""
    errors = found.errors()
    best = int(np.argmin(errors))
    gap, se = found.error_gaps(best)
    structure = table["candidate"].to_numpy()
    for name in dict.fromkeys(
        structure
    ):  # in the order in which they were given, the simplest first
        rows = np.flatnonzero(structure == name)
        row = int(rows[np.argmin(errors[rows])])
        if gap[row] <= _NEAR * se[row]:
            return row
    return best


def one_se(table: pd.DataFrame, found: HeldOut) -> int:
    """the fewest nonzero entries within one standard error of the best density: for a sparse picture"""
    gap, se = found.density_gaps(best_density(table, found))
    near = np.flatnonzero(gap <= se)
    nonzero = table["nonzero"].to_numpy()
    if "nonzero_B" in table:  # of [A B] together, where there are inputs
        nonzero = nonzero + table["nonzero_B"].to_numpy()
    keys = (gap[near], table["n_states"].to_numpy()[near], nonzero[near])
    return int(near[np.lexsort(keys)[0]])


def best_bic(table: pd.DataFrame, found: HeldOut) -> int:
    """the least BIC: no sequence is held out"""
    return int(table["bic"].to_numpy().argmin())


Rule = Callable[[pd.DataFrame, HeldOut], int]
RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (best_density, best_error, one_se, best_bic)
}


def rule_named(name: str) -> Rule:
    """Return a rule by its name, or raise an error that says what each is for."""
    if name not in RULES:
        known = "; ".join(f"{key!r}, {rule.__doc__}" for key, rule in RULES.items())
        raise ValueError(f"rule is {name!r}; it may be {known}")
    return RULES[name]
