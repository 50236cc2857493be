"""Figures of forecasts: the fan of one sequence, and several sequences beside each other, over their dates."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from ...inference import FitResult, posterior_forecast
from ...inference.posterior.forecast import PosteriorForecast
from ...models import Cohort, Forecast, forecast
from ..time_axis import time_axis
from .style import MAP, POSTERIOR, bare, styled

_Z90 = 1.6448536269514722  # half the width of a 90% interval, in standard deviations


@styled
def plot_forecast_fan(
    key: Array,
    fit: FitResult,
    posterior: Any,
    cohort: Cohort,
    sequence: int,
    given: int,
    *,
    probs: Sequence[float] = (0.5, 0.9),
    measured: np.ndarray | None = None,
) -> Figure:
    """Draw forecasts of one sequence after its first `given` steps, by the MAP and by the posterior predictive.

    Medians and bands are in the user's units, over dates or times where the cohort has them, else over steps.
    `measured` (N, T, d) tells measurements from cells that were filled in, which are drawn hollow.
    """
    if not 0 <= sequence < len(cohort):
        raise ValueError(f"sequence is {sequence}; the cohort has {len(cohort)}, counted from 0")
    one = cohort.take([sequence])
    length = int(one.lengths[0])
    if not 0 <= given < length:
        raise ValueError(
            f"given is {given}; it must be from 0 to {length - 1}, the length less one"
        )
    horizon = length - given
    ahead = posterior_forecast(key, posterior, one, horizon, given)
    plug = forecast(fit.params, one, horizon, given)
    y = one.to_units(np.where(one.mask[0], one.y[0], np.nan))[:length]
    filled = np.zeros(y.shape, bool) if measured is None else ~measured[sequence, :length]
    figure, axes = plt.subplots(
        one.n_channels,
        1,
        sharex=True,
        figsize=(7, 1.2 + 1.7 * one.n_channels),
        layout="constrained",
        squeeze=False,
    )
    times = time_axis(one, 0)
    for j, axis in enumerate(axes[:, 0]):
        _draw_forecasts(axis, j, one, ahead, plug, times.at[given:], probs)
        _draw_values(axis, times.at, y[:, j], filled[:, j], bool((filled & np.isfinite(y)).any()))
        axis.axvline(times.at[given] - times.between, color="0.7", lw=0.8)
        axis.set_ylabel(str(one.channels[j]))
    times.draw(axes[-1, 0])
    after = f"step {given}" + (f" ({times.say(given - 1)})" if given and one.labels.starts else "")
    figure.suptitle(f"Sequence {one.ids[0]}, forecast after {after}", fontsize=10)
    axes[0, 0].legend(
        ncols=3, fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0)
    )
    return figure


def _draw_forecasts(
    axis: Any,
    j: int,
    one: Cohort,
    ahead: PosteriorForecast,
    plug: Forecast,
    future: np.ndarray,
    probs: Sequence[float],
) -> None:
    """Draw the forecasts of channel j by posterior and MAP at the `future` times: quantiles, in the user's units."""
    draws = np.asarray(one.to_units(ahead.draws))[:, 0, :, j]
    for prob in sorted(probs, reverse=True):
        low, high = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        axis.fill_between(
            future,
            low,
            high,
            color=POSTERIOR,
            alpha=0.12 + 0.4 * (1 - prob),
            lw=0,
            label=f"posterior predictive, {prob:.0%}",
        )
    middle = np.median(draws, axis=0)
    axis.plot(future, middle, color=POSTERIOR, lw=1.4, label="posterior median")
    mean, sd = np.asarray(plug.mean), np.sqrt(np.diagonal(plug.cov[0], axis1=-2, axis2=-1))
    for z, style, label in ((0, "--", "MAP, 90%"), (-_Z90, ":", None), (_Z90, ":", None)):
        line = np.asarray(one.to_units(mean + z * sd))[0, :, j]
        axis.plot(future, line, style, color=MAP, lw=1.2 if label else 1.1, label=label)


def _draw_values(
    axis: Any, at: np.ndarray, y: np.ndarray, filled: np.ndarray, any_filled: bool
) -> None:
    """Draw the values y (T,) of a channel at times `at` (T,), hollow where they were filled in."""
    axis.plot(at, np.where(filled, np.nan, y), "k.", ms=5, label="measured")
    if any_filled:
        shown = np.where(filled, y, np.nan)
        axis.plot(at, shown, "o", color="0.5", ms=3, mfc="none", label="filled in")


@styled
def plot_forecasts(
    key: Array,
    posterior: Any,
    cohort: Cohort,
    sequences: Sequence[int],
    *,
    given: int | None = None,
    horizon: int | None = None,
    prob: float = 0.9,
    channels: Sequence[str] | None = None,
) -> Figure:
    """Draw forecasts of several sequences, a column each, over their own dates: what was seen, medians, bands.

    Each is forecast after its first `given` steps (half of them, at least one) to its end, or for `horizon` steps from
    there; values after the line were not used for the forecast.
    """
    wanted = [str(c) for c in (cohort.channels if channels is None else channels)]
    rows = [list(map(str, cohort.channels)).index(c) for c in wanted]
    figure, axes = plt.subplots(
        len(rows), len(sequences), figsize=(1.0 + 3.0 * len(sequences), 0.9 + 1.35 * len(rows)),
        layout="constrained", squeeze=False, sharex="col", sharey="row",
    )  # fmt: skip
    for column, n in enumerate(sequences):
        one = cohort.take([n])
        length = int(one.lengths[0])
        seen = max(length // 2, 1) if given is None else min(given, length)
        steps = max(length - seen, 1) if horizon is None else horizon
        ahead = posterior_forecast(key, posterior, one, steps, seen)
        draws = np.asarray(one.to_units(ahead.draws))[:, 0]
        times = time_axis(one, 0, extra=max(seen + steps - length, 0))
        y = one.to_units(np.where(one.mask[0], one.y[0], np.nan))[:length]
        future = times.at[seen : seen + steps]
        for axis, j in zip(axes[:, column], rows, strict=True):
            low, middle, high = np.quantile(
                draws[..., j], [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0
            )
            axis.fill_between(
                future, low, high, color=POSTERIOR, alpha=0.22, lw=0, label=f"{prob:.0%} interval"
            )
            axis.plot(future, middle, color=POSTERIOR, lw=1.4, label="posterior median")
            axis.plot(times.at[:length], y[:, j], "k.", ms=4, label="measured")
            axis.axvline(times.at[seen] - times.between, color="0.6", lw=0.8)
            bare(axis)
            if not column:
                axis.set_ylabel(str(one.channels[j]), fontsize=8)
            axis.tick_params(labelsize=7)
        axes[0, column].set_title(str(one.ids[0]), fontsize=9)
        times.draw(axes[-1, column])
    handles, words = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


@styled
def plot_series(cohort: Cohort, sequences: Sequence[int], measured: Any = None) -> Figure:
    """Draw the values of several sequences as they are, a column each: gaps are gaps, filled-in values are hollow.

    `measured` (N, T, d) tells measurements from cells that were filled in.
    """
    figure, axes = plt.subplots(
        cohort.n_channels, len(sequences), figsize=(1.0 + 2.4 * len(sequences), 0.9 + 1.1 * cohort.n_channels),
        layout="constrained", squeeze=False, sharex="col", sharey="row",
    )  # fmt: skip
    for column, n in enumerate(sequences):
        one = cohort.take([n])
        times, length = time_axis(one, 0), int(one.lengths[0])
        y = one.to_units(np.where(one.mask[0], one.y[0], np.nan))[:length]
        filled = np.zeros(y.shape, bool) if measured is None else ~measured[n, :length]
        filled = filled & np.isfinite(y)
        for j, axis in enumerate(axes[:, column]):
            axis.plot(times.at, y[:, j], color=POSTERIOR, lw=0.7, alpha=0.6)
            _draw_values(axis, times.at, y[:, j], filled[:, j], bool(filled.any()))
            bare(axis)
            axis.tick_params(labelsize=7)
            if not column:
                axis.set_ylabel(str(one.channels[j]), fontsize=8)
        axes[0, column].set_title(str(one.ids[0]), fontsize=9)
        times.draw(axes[-1, column])
    return figure
