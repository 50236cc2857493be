"""What the times between panels say of a grid: whether its step suits them, and which one would."""

from collections.abc import Mapping

import numpy as np

from .durations import Duration, in_unit
from .times import Clock

_LEAST_FILLED = 1e-3  # of the bins between a patient's first and last value
_RARE = 0.25  # of the bins that the most frequent test has: a test with fewer keeps bins from being panels
_MOST_CELLS = 2e8  # of a cohort, which is one padded array: 1.6 GB


def advice_on_step(patient: np.ndarray, at: np.ndarray, width: Duration, clock: Clock) -> list[str]:
    """Return lines of advice on a grid that is mostly empty, by the times between consecutive panels of a patient.

    `patient` (B,) and `at` (B,) are the patients and the steps of all panels, in order; a step is as long as `width`.
    """
    gaps = np.diff(at)[np.diff(patient) == 0] * width.hours
    if not len(gaps):
        return []
    middle, mean = (_readable(float(f(gaps)), clock) for f in (np.median, np.mean))
    # days that were taken for hours look like this, too
    doubt = "; if times do not count hours, give --time-unit" if clock == Clock("numbers") else ""
    if middle.hours > 1.5 * width.hours:
        text = f"the median time between two panels is {middle}: try --step {middle.short}"
    else:
        text = (
            f"panels come in bursts, {middle} apart in the median and {mean} in the mean; are the times right? "
            f"If so, try --step {mean.short}"
        )
    return [f"  that is most of them: {text}{doubt}"]


def usual_step(
    patient: np.ndarray, hours: np.ndarray, least: float, clock: Clock
) -> Duration | None:
    """Return the median time between a patient's measurements, where it is well above `least` hours; else None.

    `patient` (n,) and `hours` (n,) are of all values; values of one time are one measurement.
    """
    at = np.unique(np.stack([patient, hours], axis=1), axis=0)
    gaps = np.diff(at[:, 1])[np.diff(at[:, 0]) == 0]
    if not len(gaps) or not np.median(gaps) > 1.5 * least:
        return None
    return _readable(float(np.median(gaps)), clock)


def too_few_panels(
    n_panels: np.ndarray, min_panels: int, seen: Mapping[str, float], width: Duration
) -> str:
    """Return the error for a grid on which no patient has `min_panels` panels; `n_panels` (P,) is what they have.

    `seen` has for each test the share of bins with a value.
    """
    most, names = int(n_panels.max()), ", ".join(seen)
    text = f"no patient has {min_panels} panels, bins of {width} with all of {names}; the most is {most}"
    rare = [
        f"{name} ({share:.0%})"
        for name, share in seen.items()
        if share < _RARE * max(seen.values())
    ]
    if rare:
        few = f"few bins have {', '.join(rare)}"
        return f"{text}; {few}: leave such tests out (--tests), or lower --panels (min_panels)"
    if most == 0:
        return f"{text}: widen --step, or choose --tests that are taken together"
    shares = [f"{np.mean(n_panels >= k):.0%}" for k in (3, 5)]
    if 5 < min_panels:
        text += (
            f" (of {len(n_panels)} patients {shares[0]} have at least 3, {shares[1]} at least 5)"
        )
    return f"{text}: lower --panels (min_panels), or widen --step"


def check_size(
    patient: np.ndarray, at: np.ndarray, n_tests: int, width: Duration, clock: Clock
) -> None:
    """Raise if the grid would not fit into memory: `at` (B,) are the steps of the bins that hold a value."""
    longest = int(at.max()) + 1
    cells = len(np.unique(patient)) * longest * n_tests
    if cells > _MOST_CELLS:
        span = _readable(longest * width.hours, clock)
        wrong = "" if clock.kind == "timestamps" else f" (--time-unit {clock.unit})"
        raise ValueError(
            f"step is {width}, and the longest patient has {longest} of them, {span}: a grid of {cells:.2g} cells in "
            f"all; are the times right{wrong}? If so, widen --step"
        )


def check_length(longest: float, hours: float, clock: Clock) -> None:
    """Raise if a patient has more bins of `hours` than memory could hold."""
    if not longest < _MOST_CELLS:
        raise ValueError(
            f"step is {in_unit(hours, None)}, and the longest patient has {longest:.3g} of them, more than "
            f"{_MOST_CELLS:.0e}; are the times right? If so, widen --step"
        )


def share_filled(patient: np.ndarray, at: np.ndarray) -> float:
    """Return the share of bins that hold a value; `patient` (B,) and `at` (B,) are those that do, in order."""
    last = np.append(np.diff(patient) != 0, True)
    first = np.append(True, last[:-1])
    return len(at) / float((at[last] - at[first] + 1).sum())


def check_filled(
    share: float, patient: np.ndarray, at: np.ndarray, width: Duration, clock: Clock
) -> None:
    """Raise if next to no bin of the grid holds a value, which no model could learn from."""
    if share < _LEAST_FILLED:
        lines = advice_on_step(patient, at, width, clock)
        advice = lines[0].partition(": ")[2] if lines else "widen --step"
        raise ValueError(
            f"step is {width}, and only {share:.2g} of the bins have a value; {advice}; or allow it with --any-times"
        )


def _readable(hours: float, clock: Clock) -> Duration:
    """Return a time in the unit of the clock, rounded to three digits."""
    found = in_unit(hours, clock.unit if clock.kind == "numbers" else None)
    return found._replace(number=float(f"{found.number:.3g}"))
