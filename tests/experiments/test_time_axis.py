"""Forecasts are drawn over the user's times, in the user's units."""

from types import SimpleNamespace
from typing import Any

import jax
import matplotlib
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.figures import forecasts as figures
from sparse_lds.experiments.labs import bin_labs, labs_from_frame
from sparse_lds.experiments.time_axis import time_axis
from sparse_lds.inference.posterior.forecast import PosteriorForecast
from sparse_lds.models import Cohort, LDSParams

matplotlib.use("Agg")
one = np.eye(1)
FIT: Any = SimpleNamespace(params=LDSParams(0.9 * one, one, one, one, np.zeros(1), one))


def series(kind: str) -> Cohort:
    """Six weekly values from day 100 on, as a cohort with times of this kind."""
    days = 100 + 7 * np.arange(6)
    frame = pd.DataFrame(
        {"id": "p", "time": days, "test": "CRP", "value": 5.0 * 2.0 ** -(days % 4)}
    )
    if kind == "steps":
        return Cohort.from_sequences([frame[["value"]].to_numpy()], channels=["CRP"])
    if kind == "table":
        return Cohort.from_wide(frame.drop(columns="test"), step=7)
    if kind == "lengths":
        times = pd.to_timedelta(frame["time"], unit="h")
        return Cohort.from_wide(frame.drop(columns="test").assign(time=times), step="7h")
    if kind == "dates":
        frame["time"] = pd.Timestamp("2024-01-01", tz="Asia/Tokyo") + pd.to_timedelta(
            days, unit="D"
        )
    return bin_labs(labs_from_frame(frame, time_unit="d"), step="1w", min_panels=2).cohort


DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(100 + 7 * np.arange(6), unit="D")
KINDS = {  # kind: positions, label of the axis, the fourth step in words
    "steps": (np.arange(1, 7), "step", "4"),
    "table": (100 + 7 * np.arange(6), "time", "121"),
    "lengths": (100 + 7 * np.arange(6), "time (hours)", "121 hours"),
    "days": (100 + 7 * np.arange(6), "time (days)", "121 days"),
    "dates": (DAYS.to_numpy(), "time", "2024-05-01"),  # of the clock in Tokyo
}


@pytest.mark.parametrize("kind", KINDS)
def test_positions_and_words(kind):
    at, label, words = KINDS[kind]
    axis = time_axis(series(kind), 0)
    np.testing.assert_array_equal(axis.at, at)
    assert (axis.label, axis.say(3)) == (label, words)
    assert axis.at[1] - axis.between - axis.between == axis.at[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("log", [False, True])
def test_the_fan_is_drawn_at_its_times_in_units(kind, log, monkeypatch):
    raw = series(kind)
    cohort = (raw.log() if log else raw).standardize()
    draws = np.random.default_rng(0).normal(size=(201, 1, 2, 1))
    made = PosteriorForecast(draws, np.array([4]), draws.mean(0))
    monkeypatch.setattr(figures, "posterior_forecast", lambda *args: made)
    figure = figures.plot_forecast_fan(jax.random.key(0), FIT, None, cohort, 0, 4, probs=(0.5,))
    axis = figure.axes[0]
    at, label, words = KINDS[kind]
    at = mdates.date2num(at) if kind == "dates" else at
    lines = {str(line.get_label()): line for line in axis.get_lines()}
    measured = lines["measured"].get_xydata()
    assert measured is not None
    np.testing.assert_allclose(measured, np.stack([at, raw.sequence(0)[:, 0]], -1), rtol=1e-9)
    z = cohort.labels.shift[0] + cohort.labels.scale[0] * np.sort(draws[:, 0, :, 0], axis=0)
    units = np.exp(z) if log else z
    median = lines["posterior median"].get_xydata()
    assert median is not None
    np.testing.assert_allclose(median, np.stack([at[4:], units[100]], -1), rtol=1e-9)
    corners = axis.collections[0].get_paths()[0].vertices
    for quartile in (units[50], units[150]):
        for x, y in zip(at[4:], quartile, strict=True):
            assert np.isclose(corners, [x, y], rtol=1e-9).all(1).any()
    dotted = [x.get_ydata() for x in axis.get_lines() if x.get_linestyle() == ":"]
    dashed = np.asarray(lines["MAP, 90%"].get_ydata())
    assert len(dotted) == 2 and (dotted[0] < dashed).all() and (dashed < dotted[1]).all()
    inner = (
        np.log if log else np.asarray
    )  # the MAP's bounds are even around it where it is Gaussian
    np.testing.assert_allclose(inner(dotted[0]) + inner(dotted[1]), 2 * inner(dashed), rtol=1e-6)
    assert (dotted[0] > 0).all() if log else (dotted[0] < 0).any()
    assert axis.get_xlabel() == label
    title = figure.get_suptitle()
    assert title.endswith("after step 4" if kind == "steps" else f"after step 4 ({words})")
    figure.canvas.draw()
    plt.close(figure)
