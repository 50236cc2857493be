"""Durations as people write them (8h, 1d, 0.5y) and read them (8 hours, 1 day, 0.5 years)."""

import re
from datetime import timedelta
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

# unit -> its hours, its name, and other ways to write it; a year is 365.25 days
_UNITS = {
    "s": (1 / 3600, "second", ("sec",)),
    "min": (1 / 60, "minute", ()),
    "h": (1.0, "hour", ("hr",)),
    "d": (24.0, "day", ()),
    "w": (168.0, "week", ("wk",)),
    "mo": (730.5, "month", ()),
    "y": (8766.0, "year", ("yr",)),
}
_WRITTEN = {
    text: unit
    for unit, (_, name, others) in _UNITS.items()
    for text in (unit, name, f"{name}s", *others, *(f"{x}s" for x in others))
}
_CHOICES = ", ".join(_UNITS)


class Duration(NamedTuple):
    """A number of units of time.

    >>> print(duration("step", "90d"), duration("step", "1 year"), duration("step", 8), sep=", ")
    90 days, 1 year, 8 hours
    """

    number: float
    unit: str  # one of s, min, h, d, w, mo, y

    @property
    def hours(self) -> float:
        """The duration in hours."""
        return self.number * _UNITS[self.unit][0]

    @property
    def short(self) -> str:
        """The duration as an argument, such as 90d."""
        return f"{self.number:.6g}{self.unit}"

    def __str__(self) -> str:
        return f"{self.number:.6g} {unit_name(self.unit, self.number)}"


def duration(argument: str, given: Any) -> Duration:
    """Read a duration: a text such as 8h, a number of hours, or a timedelta; `argument` names it in errors."""
    hint = f"give a number and a unit ({_CHOICES}), such as 8h, 1d or 0.5y"
    if isinstance(given, timedelta | np.timedelta64):
        found = in_unit(float(np.timedelta64(given) / np.timedelta64(1, "h")), None)
    elif isinstance(given, Real) and not isinstance(given, bool):
        found = Duration(float(given), "h")
    else:
        match = re.fullmatch(r"\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([a-z]*)\s*", str(given).lower())
        try:
            number, unit = float(match[1]), match[2]  # type: ignore[index]
        except (TypeError, ValueError):
            raise ValueError(f"{argument} is {given!r}; {hint}") from None
        found = Duration(number, time_unit(argument, given, unit) if unit else "h")
    if not 0 < found.hours < np.inf:
        raise ValueError(f"{argument} is {given!r}; it must be positive and finite")
    return found


def time_unit(argument: str, given: Any, unit: str | None = None) -> str:
    """Return a unit of time that is written in any of its ways as one of s, min, h, d, w, mo, y.

    An error says that `argument` is `given`, which may be longer than its `unit`.
    """
    text = str(given if unit is None else unit).strip().lower()
    if text == "m":
        raise ValueError(f"{argument} is {given!r}; write min for minutes, mo for months")
    if text not in _WRITTEN:
        raise ValueError(f"{argument} is {given!r}; its unit must be one of {_CHOICES}")
    return _WRITTEN[text]


def unit_of_times(given: str, column: str) -> str:
    """Return what times count that are numbers: as it is given, or as the name of their column says, or hours.

    >>> unit_of_times("", "day"), unit_of_times("", "Years"), unit_of_times("", "t"), unit_of_times("min", "day")
    ('d', 'y', 'h', 'min')
    """
    if given:
        return time_unit("time_unit", given)
    name = column.strip().lower()
    return _WRITTEN.get(name, "h") if len(name) > 3 or name == "day" else "h"


def unit_hours(unit: str) -> float:
    """Return the hours of a unit."""
    return _UNITS[unit][0]


def unit_name(unit: str, number: float = 2) -> str:
    """Return the name of a unit as it follows a number: hour after 1, else hours."""
    return _UNITS[unit][1] + "s" * (number != 1)


def in_unit(hours: float, unit: str | None) -> Duration:
    """Return hours as a duration in a unit; for None in minutes, hours or days, whichever reads well."""
    if unit is None:
        unit = "min" if hours < 1 else "h" if hours < 48 else "d"
    return Duration(hours / unit_hours(unit), unit)
