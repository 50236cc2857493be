"""Layouts of a panel, sktime's among them, as cohorts, and forecasts in the same layout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from ..models import Cohort

_ID, _TIME = "the instance of a row", "the time of a row"  # no names of channels


def as_cohort(X: Any) -> Cohort:
    """Return a panel as a cohort.

    X is one of these; a missing cell is NaN:

    - a `Cohort`, or a list of arrays (T_n, d);
    - an array (N, d, T), sktime's numpy3D;
    - a table whose index has two levels, instance and time, and a column for each channel: sktime's pd-multiindex.
      Times are numbers, periods, dates or durations, on a grid of the smallest difference between two of them; a step
      without a row is missing.
    """
    if isinstance(X, Cohort):
        return X
    if isinstance(X, pd.DataFrame):
        return _from_table(X)
    if isinstance(X, np.ndarray):
        if X.ndim != 3:
            raise ValueError(f"X has shape {X.shape}; it must be (instances, channels, times)")
        return Cohort.from_sequences(list(np.swapaxes(np.asarray(X, float), 1, 2)))
    return Cohort.from_sequences(X)


def like_panel(X: Any) -> Callable[[np.ndarray, Cohort], Any]:
    """Return the function that puts forecasts (N, horizon, d) of a cohort into the layout of X.

    A table goes on after its last times; an array has (N, d, horizon); of anything else forecasts stay as they are.
    """
    if isinstance(X, pd.DataFrame):
        return _Table(list(X.columns), list(X.index.names), _frequency(X))
    return _swapped if isinstance(X, np.ndarray) else _plain


class _Table:
    """The layout of a table: a class, so that an estimator that keeps it can be pickled."""

    def __init__(self, columns: list, names: list, frequency: Any):
        self.columns, self.names, self.frequency = columns, names, frequency

    def __call__(self, mean: np.ndarray, cohort: Cohort) -> pd.DataFrame:
        N, horizon, d = mean.shape
        lengths = np.asarray(cohort.lengths)
        times = [cohort.labels.time_of(n, lengths[n] + h) for n in range(N) for h in range(horizon)]
        if self.frequency is not None:
            times = pd.PeriodIndex.from_ordinals(times, freq=self.frequency)
        index = pd.MultiIndex.from_arrays(
            [np.repeat(np.array(cohort.ids, dtype=object), horizon), times], names=self.names
        )
        index = index.set_levels(index.levels[0].infer_objects(), level=0)
        return pd.DataFrame(mean.reshape(-1, d), index, self.columns)


def _swapped(mean: np.ndarray, cohort: Cohort) -> np.ndarray:
    return np.swapaxes(mean, 1, 2)


def _plain(mean: np.ndarray, cohort: Cohort) -> np.ndarray:
    return mean


def _frequency(X: pd.DataFrame) -> Any:
    """Return the frequency of a table's periods, None if its times are no periods."""
    return (
        getattr(X.index.get_level_values(1).dtype, "freq", None) if X.index.nlevels == 2 else None
    )


def _from_table(X: pd.DataFrame) -> Cohort:
    """Return a table with an index of instance and time as a cohort."""
    if X.index.nlevels != 2:
        raise ValueError(
            f"X has an index of {X.index.nlevels} levels; it must be two, instance and time"
        )
    instance, time = (X.index.get_level_values(k) for k in (0, 1))
    if _frequency(X) is not None:
        time = pd.Index([period.ordinal for period in time])
    frame = X.set_axis([str(c) for c in X.columns], axis=1).reset_index(drop=True)
    frame.insert(0, _ID, instance.to_numpy())
    frame.insert(1, _TIME, time.to_numpy() if types.is_numeric_dtype(time) else pd.Series(time))
    return Cohort.from_wide(frame, id=_ID, time=_TIME, step=_step(frame))


def _step(frame: pd.DataFrame) -> Any:
    """Return the smallest difference between two times of an instance; of times that stand alone any will do."""
    times: Any = frame.sort_values([_ID, _TIME]).groupby(_ID)[_TIME].diff().dropna()
    whole = types.is_integer_dtype(frame[_TIME])
    if len(times):
        return int(times.min()) if whole else times.min()
    return 1 if whole else 1.0 if types.is_numeric_dtype(frame[_TIME]) else pd.Timedelta("1D")
