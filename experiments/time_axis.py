"""The times of a sequence on the axis of a figure: dates, numbers of the user's unit, or steps."""

from typing import Any, NamedTuple

import matplotlib.dates as mdates
import numpy as np
import pandas as pd

from ..models import Cohort


class TimeAxis(NamedTuple):
    """The steps of one sequence as positions on an axis."""

    at: np.ndarray  # (T,) for matplotlib: numbers, or datetime64
    between: Any  # half a step
    label: str  # of the axis
    unit: str  # of a position in words, such as " days"

    def say(self, step: int) -> str:
        """Return the position of a step, counted from 0, as text."""
        x = self.at[step]
        if self.at.dtype.kind == "M":
            return str(pd.Timestamp(x).round("min").strftime("%Y-%m-%d %H:%M")).removesuffix(
                " 00:00"
            )
        return f"{round(float(x), 2):.9g}{self.unit}"

    def draw(self, axis: Any) -> None:
        """Label an axis of matplotlib; dates get short labels."""
        axis.set_xlabel(self.label)
        if self.at.dtype.kind == "M":
            locator = mdates.AutoDateLocator()
            axis.xaxis.set_major_locator(locator)
            axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))


def time_axis(cohort: Cohort, sequence: int, *, extra: int = 0) -> TimeAxis:
    """Return the axis of one sequence's steps: its times if the cohort has them, else steps counted from 1.

    `extra` steps past its end are for forecasts.
    """
    labels, length = cohort.labels, int(cohort.lengths[sequence]) + extra
    if labels.starts is None:
        return TimeAxis(np.arange(1, length + 1), 0.5, "step", "")
    times = [labels.time_of(sequence, t) for t in range(length)]
    if isinstance(times[0], pd.Timestamp):
        # of the user's clock: matplotlib would show a zone's times in UTC
        local = np.array([t.tz_localize(None).to_datetime64() for t in times])
        return TimeAxis(local.astype("M8[ms]"), (labels.step / 2).to_timedelta64(), "time", "")
    if isinstance(times[0], pd.Timedelta):
        hours = np.array([t / pd.Timedelta(hours=1) for t in times])
        return TimeAxis(hours, labels.step / pd.Timedelta(hours=2), "time (hours)", " hours")
    unit = labels.time_unit
    at, label = np.array(times, float), f"time ({unit})" if unit else "time"
    return TimeAxis(at, labels.step / 2, label, f" {unit}" if unit else "")
