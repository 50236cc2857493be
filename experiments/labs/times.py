"""Times of lab results, timestamps or numbers, converted to hours on one clock and back."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .durations import unit_hours, unit_name

_NUMERIC_DATE = r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d{2,4}\b"  # as 31/01/2023
_ZONE = r"\d:\d{2}.*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\s*$"  # as 12:30+01:00


class Clock(NamedTuple):
    """The way in which the times of a table are written, as far as the rows read so far show it."""

    kind: str | None = None  # "timestamps" or "numbers"; None before the first time
    day_first: bool | None = None  # in dates such as 31/01/2023; None while there were none
    unit: str = "h"  # what numbers count; see `durations`
    zone: Any = None  # of timestamps; None where they have none

    @property
    def unit_name(self) -> str:
        """What numbers count, such as "days"; empty for timestamps."""
        return "" if self.kind == "timestamps" else unit_name(self.unit)

    def time(self, hours: float) -> Any:
        """Return the time that is `hours` on this clock, as the user would write it: a Timestamp or a number."""
        if self.kind != "timestamps":
            return round(float(hours) / unit_hours(self.unit), 9)  # 9 digits: 0.1 d is 2.4000…04 h
        stamp: Any = pd.Timestamp(round(3.6e6 * float(hours)), unit="ms")
        return stamp if self.zone is None else stamp.tz_localize("UTC").tz_convert(self.zone)

    def length(self, hours: float) -> Any:
        """Return a length of time of `hours`, as the difference of two times: a Timedelta or a number."""
        if self.kind != "timestamps":
            return float(hours) / unit_hours(self.unit)
        return pd.Timedelta(round(3.6e6 * float(hours)), unit="ms")


def to_hours(times: pd.Series, clock: Clock) -> tuple[np.ndarray, Clock]:
    """Convert `times` (n,) to hours (n,), NaN where a time is missing, and return the clock they are on.

    Times that are all numbers count the clock's unit; others are timestamps, and count from 1970 (UTC). Raise for a
    time that is neither, and unless all rows, those that `clock` was learned from included, are of the same kind.
    """
    given = times.notna()
    is_stamp = pd.api.types.is_datetime64_any_dtype(times)
    number: Any = None if is_stamp else pd.to_numeric(times, errors="coerce")
    if number is not None and number[given].notna().all():
        kind, hours = "numbers", number.to_numpy(float) * unit_hours(clock.unit)
    else:
        stamp: Any
        if is_stamp:
            stamp = pd.to_datetime(times, utc=True)
            clock = clock._replace(zone=times.dt.tz or clock.zone)
        else:
            stamp, clock = _parse_timestamps(times, clock)
        bad = given & stamp.isna()
        if bad.any():
            raise ValueError(
                f"time {times.loc[bad].iloc[0]!r} is neither a timestamp nor a number of {unit_name(clock.unit)}"
            )
        since = (stamp - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(hours=1)
        kind, hours = "timestamps", since.to_numpy(float)
    if given.any():
        if clock.kind not in (None, kind):
            raise ValueError("times are timestamps in some rows and numbers in others")
        clock = clock._replace(kind=kind)
    return hours, clock


def _parse_timestamps(times: pd.Series, clock: Clock) -> tuple[pd.Series, Clock]:
    """Parse text to timestamps, NaT where that fails, and return the clock with the order of day and month."""
    if times.dropna().iloc[:1].astype(str).str.contains(_ZONE).any():
        clock = clock._replace(zone="UTC")
    stamp: Any = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
    rest = times.notna() & stamp.isna()
    if (
        rest.any()
    ):  # these alone: with the day first, pandas would turn 2023-02-03 into the 2nd of March
        clock = clock._replace(day_first=_day_first(times, clock.day_first))
        stamp[rest] = pd.to_datetime(
            times[rest], errors="coerce", utc=True, format="mixed", dayfirst=bool(clock.day_first)
        )
    return stamp, clock


def _day_first(times: pd.Series, known: bool | None) -> bool | None:
    """Tell whether dates such as 31/01/2023 have the day first; None if no time is written so.

    05/01/2023 may be in January or in May. A number above 12 in another row shows which; `known` is the order that
    earlier rows showed. Raise if no row shows the order, or if rows contradict each other.
    """
    fields: Any = times.astype(str).str.extract(_NUMERIC_DATE).dropna().astype(int)
    if not len(fields):
        return known
    first, second = (bool(fields[k].max() > 12) for k in (0, 1))
    if (first and second) or ((first or second) and known not in (None, first)):
        raise ValueError(
            "dates have the day first in some rows and the month first in others; write them as 2023-01-31"
        )
    if first or second:
        return first
    if known is None:
        example = times.loc[fields.index[:1]].iloc[0]
        raise ValueError(
            f"time {example!r} may have the day first or the month first, and no row tells; write dates as "
            "2023-01-31"
        )
    return known
