"""Times of lab results, timestamps or numbers, converted to hours on one clock and back."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .durations import in_unit, unit_hours, unit_name
from .numbers import PLAIN, Marks

_NUMERIC_DATE = r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d{2,4}\b"  # as 31/01/2023
_ZONE = r"\d:\d{2}.*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\s*$"  # as 12:30+01:00
_YEAR = r"(?<!\d)\d{4}(?!\d)"  # a year of four digits
_HOURS_OF_A_YEAR = unit_hours("y")
_MOST_YEARS = 150  # between the first and the last time of a table
_FROM_ZERO = (
    200  # years that numbers may count from 0; dates written as numbers of years may be 3000
)


class Clock(NamedTuple):
    """The way in which the times of a table are written, as far as the rows read so far show it."""

    kind: str | None = None  # "timestamps" or "numbers"; None before the first time
    day_first: bool | None = None  # in dates such as 31/01/2023; None while there were none
    unit: str = "h"  # what numbers count; see `durations`
    zone: Any = None  # of timestamps; None where they have none
    zoned: bool | None = None  # whether timestamps have a zone; None while there were none

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


def to_hours(times: pd.Series, clock: Clock, marks: Marks = PLAIN) -> tuple[np.ndarray, Clock]:
    """Convert `times` (n,) to hours (n,), NaN where a time is missing, and return the clock they are on.

    Times that are all numbers count the clock's unit; others are timestamps, and count from 1970 (UTC). Raise for a
    time that is neither, and unless all rows, those that `clock` was learned from included, are of the same kind.
    """
    given = times.notna()
    is_stamp = pd.api.types.is_datetime64_any_dtype(times)
    number: Any = None if is_stamp else _numbers(times, marks)
    if number is not None and number[given].notna().all():
        kind, hours = "numbers", number.to_numpy(float) * unit_hours(clock.unit)
    else:
        stamp: Any
        if is_stamp:
            stamp = pd.to_datetime(times, utc=True)
            if given.any():
                clock = _zoned(clock, times.dt.tz is not None)
            clock = clock._replace(zone=times.dt.tz or clock.zone)
        else:
            stamp, clock = _parse_timestamps(times, clock)
        bad = given & stamp.isna()
        if bad.any():
            raise ValueError(
                f"time {times.loc[bad].iloc[0]!r} is neither a timestamp nor a number of {unit_name(clock.unit)}"
            )
        since = (stamp - pd.Timestamp("1970-01-01", tz="UTC").as_unit("s")) / pd.Timedelta(hours=1)
        kind, hours = "timestamps", since.to_numpy(float)
    if given.any():
        if clock.kind not in (None, kind):
            raise ValueError("times are timestamps in some rows and numbers in others")
        clock = clock._replace(kind=kind)
    return hours, clock


def _numbers(times: pd.Series, marks: Marks) -> Any:
    """Return times as numbers: with the file's mark before decimals, or all with a point; none has thousands."""
    found = marks._replace(thousands="").numbers(times)
    return found if found[times.notna()].notna().all() else Marks().numbers(times)


def _parse_timestamps(times: pd.Series, clock: Clock) -> tuple[pd.Series, Clock]:
    """Parse text to timestamps, NaT where that fails, and return the clock with the order of day and month."""
    text = times.dropna().astype(str)
    zoned = text.str.contains(_ZONE)
    for has in zoned.unique():
        clock = _zoned(clock, bool(has))
    if zoned.any():
        clock = clock._replace(zone="UTC")
    _check_years(text[~text.str.contains(r"\d")])  # "today" is ISO to pandas
    stamp: Any = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
    rest = times.notna() & stamp.isna()
    if (
        rest.any()
    ):  # these alone: with the day first, pandas would turn 2023-02-03 into the 2nd of March
        _check_years(text[rest[text.index]])
        clock = clock._replace(day_first=_day_first(times, clock.day_first))
        stamp[rest] = pd.to_datetime(
            times[rest], errors="coerce", utc=True, format="mixed", dayfirst=bool(clock.day_first)
        )
    return stamp, clock


def _zoned(clock: Clock, zoned: bool) -> Clock:
    """Return the clock of timestamps with a zone or without; raise if earlier ones were otherwise."""
    if clock.zoned not in (None, zoned):
        raise ValueError(
            "some times have a zone (as 12:30+01:00) and others have none: which time they mean is not known; write "
            "all of them with a zone, or none"
        )
    return clock._replace(zoned=zoned)


def _check_years(text: Any) -> None:
    """Raise for a date without a year of four digits: today, 10:30, 23-01-05, which pandas would guess at."""
    bare = text[~text.str.contains(_YEAR)]
    if len(bare):
        why = "" if not bare.iloc[0][:1].isdigit() else ", with a year of four digits"
        raise ValueError(
            f"time {bare.iloc[0]!r} is neither a timestamp nor a number; write dates as 2023-01-31{why}"
        )


def understood(hours: np.ndarray, clock: Clock) -> str:
    """Return what was understood of all times, as a line: the first, the last, and the time between them."""
    first, last = float(hours.min()), float(hours.max())
    unit = "" if clock.kind == "timestamps" else f" {clock.unit_name}"
    if clock.zoned:
        unit = f" ({clock.zone})"
    span = in_unit(last - first, "y" if last - first > 2 * _HOURS_OF_A_YEAR else None)
    ends = (_written(clock.time(x)) for x in (first, last))
    return f"times are from {' to '.join(ends)}{unit}, a span of {span._replace(number=float(f'{span.number:.3g}'))}"


def check_times(hours: np.ndarray, clock: Clock) -> None:
    """Raise if times are too far apart, or numbers too far from 0, to be right."""
    said = understood(np.clip(hours, -1e12, 1e12), clock._replace(kind=clock.kind or "numbers"))
    if (np.ptp(hours) > _MOST_YEARS * _HOURS_OF_A_YEAR) and clock.kind == "timestamps":
        raise ValueError(f"{said}; mend the times, or allow them with --any-times")
    most = (3000 if clock.unit == "y" else _FROM_ZERO) * _HOURS_OF_A_YEAR
    if clock.kind == "numbers" and np.abs(hours).max() > most:
        largest = np.abs(hours).max() / unit_hours(clock.unit)
        raise ValueError(
            f"time {largest:.15g} as a number of {clock.unit_name} is {np.abs(hours).max() / _HOURS_OF_A_YEAR:.3g} "
            f"years{_meant(largest)}; mend the times, give another --time-unit, or allow them with --any-times"
        )


def _meant(largest: float) -> str:
    """Return what a number that is too large may have been meant to be."""
    digits = f"{largest:.0f}"
    if digits[:2] in ("19", "20", "21") and len(digits) in (8, 10, 12, 14):
        month, day = int(digits[4:6]), int(digits[6:8])
        if 1 <= month <= 12 and 1 <= day <= 31:
            return " (a date? write 2023-01-31 12:30)"
    if 1e8 < largest < 1e10:
        return " (unix seconds? --time-unit s)"
    if 1e11 < largest < 1e14:
        return " (unix milliseconds? divide by 1000, and give --time-unit s)"
    return ""


def _written(time: Any) -> str:
    """Return a time as a short text."""
    if isinstance(time, pd.Timestamp):
        return time.strftime("%Y-%m-%d %H:%M")
    return f"{time:.10g}"


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
