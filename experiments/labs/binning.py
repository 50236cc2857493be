"""Binning of lab results into the panels of a cohort on a regular grid of times.

The log of the result says how many patients and values were kept, and why the others were dropped.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...models import Cohort
from .durations import Duration, duration
from .gathering import Labs
from .input_grid import fills_of, parted, with_inputs
from .spacing import (
    advice_on_step,
    check_filled,
    check_length,
    check_size,
    share_filled,
    too_few_panels,
)


class TooFewPanels(ValueError):
    """No patient has enough panels."""


class Binned(NamedTuple):
    """A cohort on a regular grid of times, and how it came out of lab results."""

    cohort: Cohort  # in the units of the labs; its labels have the times
    measured: np.ndarray  # (N, T, d), False where a cell was filled in or is missing
    hours: float  # of a step
    log: tuple[str, ...]  # lines that say what was read, kept and dropped, and why
    step: str = ""  # for people, such as "8 hours" or "1 day"
    constants: tuple[str, ...] = ()  # inputs that never change within a patient
    dropped: int = 0  # ids with too few panels

    def __str__(self) -> str:
        return "\n".join(self.log)


def bin_labs(
    labs: Labs,
    *,
    step: Any = None,
    hours: float | None = None,
    min_panels: int = 10,
    gaps: str = "interpolate",
    any_times: bool = False,
    inputs: Sequence[str] = (),
    fill_inputs: str = "",
) -> Binned:
    """Bin lab results into panels on a regular grid, and keep the patients with enough of them.

    Bins of `step` start at each patient's first value; a cell is the mean of the values within its bin. A step is a
    duration such as "8h" (the default), "30min", "1d", "2w" or "1y", or a number of hours; `hours` is its old name.
    A panel is a bin with all tests, and a patient needs `min_panels` of them. `gaps="interpolate"` fills between the
    first and the last panel by straight lines, as the paper does; `gaps="missing"` leaves cells without a value
    missing, from the first value to the last. A grid of which less than a thousandth has a value is an error, unless
    `any_times`. The cohort's labels have the time of each sequence's first bin.

    `inputs` names tests that are known and not modelled (see input_grid.py); `fill_inputs` says what takes the place of
    a bin without one: "zero", "forward", "constant", or name=word for each, with commas.
    """
    fills = fills_of(fill_inputs, inputs)
    of_inputs = None
    if inputs:
        labs, of_inputs = parted(labs, inputs)
    if step is not None and hours is not None:
        raise ValueError(f"step is {step!r} and hours is {hours!r}: give one of them, step")
    width = duration("step", "8h" if step is None else step)
    if hours is not None:
        width = duration("hours", hours)
    if int(min_panels) != min_panels or min_panels < 1:
        raise ValueError(f"min_panels is {min_panels}; it must be a whole number, at least 1")
    if gaps not in ("interpolate", "missing"):
        raise ValueError(f"gaps is {gaps!r}; it must be 'interpolate' or 'missing'")
    bins = _bins_of_values(labs, width.hours)
    enough = _patients_with_panels(bins, labs, min_panels, width)
    kept = enough[bins.patient]
    check_size(bins.patient[kept], bins.at[kept], len(labs.tests), width, labs.clock)
    filled = share_filled(bins.patient[kept], bins.at[kept])
    if not any_times:
        check_filled(filled, bins.patient[kept], bins.at[kept], width, labs.clock)
    bounds = np.searchsorted(bins.patient, np.arange(len(labs.ids) + 1))
    sequences, measured, starts, begins = [], [], [], []
    for p in np.flatnonzero(enough):
        rows = slice(bounds[p], bounds[p + 1])
        begin, y, seen = _sequence(bins.at[rows], bins.mean[rows], gaps)
        sequences.append(y)
        measured.append(seen)
        begins.append(bins.first[p] + begin * width.hours)
        starts.append(labs.clock.time(begins[-1]))
    log = (
        f"bins of {width}: {len(labs.value)} values in {len(bins.at)} bins, "
        f"{int(bins.full.sum())} of them full panels",
        f"{int(enough.sum())} of {len(enough)} ids have at least {min_panels} panels; "
        f"{int((~enough).sum())} are dropped{_fewer_panels(bins, enough)}",
        f"{_percent(filled)} of the bins from a patient's first value to the last have a value",
        *_log_of_cells(bins, enough, measured, gaps),
        *_log_of_step(bins, enough, measured, width, labs),
    )
    ids = labs.ids[enough].tolist()
    cohort = Cohort.from_sequences(sequences, ids=ids, channels=list(labs.tests))
    if of_inputs is not None:
        cohort = with_inputs(
            cohort, of_inputs, np.flatnonzero(enough), np.array(begins), width.hours, fills
        )
        log = (*log, f"inputs: {_said(inputs, fills)}")
    times = {"starts": tuple(starts), "step": labs.clock.length(width.hours)}
    labels = replace(cohort.labels, **times, time_unit=labs.clock.unit_name)
    cohort = replace(cohort, labels=labels)
    padded = _padded(measured, cohort.y.shape)
    constants = tuple(name for name, how in fills.items() if how == "constant")
    dropped = int((~enough).sum())
    return Binned(cohort, padded, width.hours, (*labs.log, *log), str(width), constants, dropped)


class _Bins(NamedTuple):
    """All bins of all patients that hold a value, in the order of patients and times."""

    patient: np.ndarray  # (B,), index of the patient
    at: np.ndarray  # (B,), step of the patient's grid, counted from 0
    mean: np.ndarray  # (B, d), of the values of each test, NaN where there is none
    first: np.ndarray  # (P,), time of each patient's first value, in hours

    @property
    def full(self) -> Any:
        """Which bins have all tests, (B,)."""
        return ~np.isnan(self.mean).any(1)


def _bins_of_values(labs: Labs, hours: float) -> _Bins:
    """Return the mean of the values within every bin, test by test."""
    first = np.full(len(labs.ids), np.inf)
    np.minimum.at(first, labs.patient, labs.hours)
    with np.errstate(over="ignore"):
        since = (labs.hours - first[labs.patient]) / hours
    check_length(float(since.max()), hours, labs.clock)
    at = np.floor(since + 1e-9).astype(np.int64)  # 8.2 - 0.2 is 7.999…
    order = np.lexsort((at, labs.patient))
    patient, at = labs.patient[order], at[order]
    new = np.ones(len(at), bool)  # True for the first value of a bin
    new[1:] = (patient[1:] != patient[:-1]) | (at[1:] != at[:-1])
    bin_of = np.cumsum(new) - 1
    total, count = np.zeros((2, bin_of[-1] + 1, len(labs.tests)))
    np.add.at(total, (bin_of, labs.test[order]), labs.value[order])
    np.add.at(count, (bin_of, labs.test[order]), 1)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return _Bins(patient[new], at[new], mean, first)


def _patients_with_panels(bins: _Bins, labs: Labs, min_panels: int, width: Duration) -> Any:
    """Tell which patients have at least `min_panels` panels, (P,); raise if there are none."""
    n_panels = np.bincount(bins.patient, bins.full, minlength=len(labs.ids))
    enough = n_panels >= min_panels
    if not enough.any():
        dropped = [line.strip() for line in labs.log if line.startswith("  dropped")]
        told = f" (while reading: {'; '.join(dropped)})" if dropped else ""
        seen = dict(zip(labs.tests, np.isfinite(bins.mean).mean(0), strict=True))
        raise TooFewPanels(too_few_panels(n_panels, min_panels, seen, width) + told)
    return enough


def _fewer_panels(bins: _Bins, enough: Any) -> str:
    """Return the advice to ask for fewer panels, where most ids with two or more are dropped; else nothing."""
    n_panels = np.bincount(bins.patient, bins.full, minlength=len(enough)).astype(int)
    several = n_panels[n_panels >= 2]
    if 2 * int(enough.sum()) >= len(several):
        return ""
    fewer = int(np.median(several))
    return f"; --panels {fewer} would keep {int((n_panels >= fewer).sum())}"


def _sequence(at: np.ndarray, mean: np.ndarray, gaps: str) -> tuple[int, np.ndarray, np.ndarray]:
    """Put one patient's bins on a regular grid: its first bin, y (T, d), and which cells are measured (T, d).

    `at` (B,) are the steps of the bins and `mean` (B, d) their values.
    """
    if gaps == "interpolate":  # only bins with all tests are used
        full = ~np.isnan(mean).any(1)
        at, mean = at[full], mean[full]
    grid = np.arange(at[0], at[-1] + 1)
    y = np.full((len(grid), mean.shape[1]), np.nan)
    y[at - at[0]] = mean
    measured = np.isfinite(y)
    if gaps == "interpolate":
        y = np.stack([np.interp(grid, at, x) for x in mean.T], axis=1)
    return int(at[0]), y, measured


def _log_of_cells(
    bins: _Bins, enough: np.ndarray, measured: list[np.ndarray], gaps: str
) -> list[str]:
    """Return lines on how many cells of the grid are not measured, and how many values the grid does not use."""
    steps = sum(map(len, measured))
    n_measured = int(sum(x.sum() for x in measured))
    share = _share_not_measured(measured)
    if gaps == "interpolate":
        log = [f"{steps} steps in all; {share:.0%} of the cells are filled by straight lines"]
        unused = int((~np.isnan(bins.mean[enough[bins.patient]])).sum()) - n_measured
        if unused:
            log.append(
                f"  {unused} values of bins without all tests are not used; gaps='missing' would use them"
            )
    else:
        log = [f"{steps} steps in all; {share:.0%} of the cells are empty, and left missing"]
    return log


def _log_of_step(
    bins: _Bins, enough: np.ndarray, measured: list[np.ndarray], width: Duration, labs: Labs
) -> list[str]:
    """Return a line with a better step, where most cells of the grid are not measured."""
    panels = bins.full & enough[bins.patient]
    if _share_not_measured(measured) <= 0.8:
        return []
    return advice_on_step(bins.patient[panels], bins.at[panels], width, labs.clock)


def _said(inputs: Sequence[str], fills: dict[str, str]) -> str:
    """Return the inputs with what fills their gaps, as text."""
    words = {"zero": "0 in gaps", "forward": "carried forward", "constant": "constant"}
    return ", ".join(f"{x} ({words[fills[x]]})" if x in fills else x for x in inputs)


def _percent(share: float) -> str:
    """Return a share as text, with more digits where it is small."""
    return f"{share:.0%}" if share > 0.1 else f"{100 * share:.2g}%"


def _share_not_measured(measured: list[np.ndarray]) -> float:
    """Return the share of the cells of the grid that are not measured."""
    return 1 - sum(x.sum() for x in measured) / sum(x.size for x in measured)


def _padded(measured: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Put the sequences' arrays (T_n, d) into one of this shape (N, T, d), with False behind their ends."""
    padded = np.zeros(shape, bool)
    for n, x in enumerate(measured):
        padded[n, : len(x)] = x
    return padded
