"""The table of forecasts: for each patient, step ahead and test a median and an interval, with their times."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.stats import norm

from ...inference import FitResult, posterior_forecast
from ...models import Cohort, forecast
from ..labs import Binned
from ..labs.input_grid import known_ahead

_MOST_ROWS = 5_000_000  # of a table of forecasts
_DRAWS = 400  # of the posterior
_MOST_DRAWN = 1e9  # numbers in the draws of all forecasts: 8 GB


def forecast_table(
    binned: Binned,
    fit: FitResult,
    posterior: Any | None,
    horizon: int,
    prob: float,
    seed: int,
    what_if: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return medians and intervals of the next steps of all patients, in the units and times of their file.

    Without a posterior they are those of the fit's parameters. `last_time` is the begin of the last bin with a value,
    `time` that of the bin that is forecast. Inputs are those of the file past a patient's last value, but for what
    `what_if` sets.
    """
    cohort = binned.cohort
    u = known_ahead(cohort, horizon, binned.constants, dict(what_if or {}))
    _check_size(cohort, horizon, posterior is not None)
    tail = (1 - prob) / 2
    levels = np.array([0.5, tail, 1 - tail])
    if posterior is None:
        found = _quantiles_of_fit(fit, cohort, horizon, levels, u)
    else:
        found = _quantiles_of_draws(posterior, cohort, horizon, levels, seed, u)
    index = pd.MultiIndex.from_product(
        [cohort.ids, range(1, horizon + 1), cohort.channels], names=["id", "steps_ahead", "test"]
    )
    times = {"hours_ahead": binned.hours * index.get_level_values("steps_ahead")}
    times |= _times(cohort, horizon)
    values = {name: _rounded(x) for name, x in zip(("median", "low", "high"), found, strict=True)}
    return pd.DataFrame(times | values, index=index)


def _check_size(cohort: Cohort, horizon: int, drawn: bool) -> None:
    """Raise if the table of forecasts would be too large to be of use, or its draws too many for the memory."""
    a_step = len(cohort) * cohort.n_channels
    most = int(min(_MOST_ROWS, _MOST_DRAWN / _DRAWS if drawn else _MOST_ROWS)) // a_step
    if horizon > most:
        raise ValueError(
            f"horizon is {horizon}: the table would have {horizon * a_step:.3g} rows; give --horizon {max(most, 1)} at "
            f"most{'' if most else ', and fewer patients'}"
        )


def _quantiles_of_fit(
    fit: FitResult, cohort: Cohort, horizon: int, levels: np.ndarray, u: np.ndarray | None
) -> np.ndarray:
    """Return quantiles (levels, N, horizon, d) given the fit's parameters: those of a Gaussian, in units."""
    ahead = forecast(fit.params, cohort, horizon, inputs=u)
    sd = np.sqrt(np.diagonal(np.asarray(ahead.cov), axis1=-2, axis2=-1))
    z = norm.ppf(levels)[:, None, None, None]
    return np.asarray(cohort.to_units(np.asarray(ahead.mean) + z * sd))


def _quantiles_of_draws(
    posterior: Any,
    cohort: Cohort,
    horizon: int,
    levels: np.ndarray,
    seed: int,
    u: np.ndarray | None,
) -> np.ndarray:
    """Return quantiles (levels, N, horizon, d) of the posterior's draws in units."""
    key = jax.random.key(seed)
    ahead = posterior_forecast(key, posterior, cohort, horizon, num_draws=_DRAWS, inputs=u)
    return np.quantile(np.asarray(cohort.to_units(ahead.draws)), levels, axis=0)


def _times(cohort: Cohort, horizon: int) -> dict[str, Any]:
    """Return the columns `last_time` and `time`, a value for each patient, step ahead and test."""
    labels, inside = cohort.labels, [np.isfinite(x).any(1) for x in cohort.sequences()]
    last = [int(max(np.flatnonzero(seen), default=0)) for seen in inside]  # step with a value
    rows = [
        (labels.time_of(n, last[n]), labels.time_of(n, cohort.lengths[n] - 1 + ahead))
        for n in range(len(cohort))
        for ahead in range(1, horizon + 1)
    ]
    columns = {}
    for name, times in zip(("last_time", "time"), zip(*rows, strict=True), strict=True):
        column = pd.Series(times)
        if column.dtype.kind == "f":
            column = column.round(9)  # 0.1 + 0.2 is 0.30000000000000004
        columns[name] = column.repeat(cohort.n_channels).array
    return columns


def _rounded(values: np.ndarray) -> list[float]:
    """Return all values with six significant digits."""
    return [float(f"{x:.6g}") for x in np.ravel(values)]
