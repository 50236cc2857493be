"""The table of forecasts: quantiles in units by the formulas of scipy, times by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm, norm

from sparse_lds.experiments.app import forecasts
from sparse_lds.experiments.labs import Binned, bin_labs, labs_from_frame
from sparse_lds.inference.posterior.forecast import PosteriorForecast
from sparse_lds.models import Cohort, LDSParams, forecast

FIT: Any = SimpleNamespace(
    params=LDSParams(
        np.array([[0.9, 0.1], [0.0, 0.5]]),
        np.eye(2),
        0.3 * np.eye(2),
        0.2 * np.eye(2),
        np.zeros(2),
        np.eye(2),
    )
)
FIRST = {"a": 0, "b": 40, "c": 7}  # days
LENGTH = {"a": 5, "b": 3, "c": 8}


def binned(times="days", logs=("CREA",), step="10d", seed=0) -> Binned:
    """Three patients with a value of two tests each 10 days, from different days on."""
    rng = np.random.default_rng(seed)
    rows = [
        (name, FIRST[name] + 10 * t, test, rng.lognormal(0, 1.2))
        for name in FIRST
        for t in range(LENGTH[name])
        for test in ("CREA", "K")
    ]
    frame = pd.DataFrame(rows, columns=["id", "time", "test", "value"])
    if times == "dates":
        frame["time"] = pd.Timestamp("2024-02-01") + pd.to_timedelta(frame["time"], unit="D")
    found = bin_labs(labs_from_frame(frame, time_unit="d"), step=step, min_panels=1)
    return found._replace(cohort=found.cohort.log(list(logs)).standardize())


def test_intervals_are_those_of_a_lognormal_and_of_a_normal():
    data = binned()
    table = forecasts.forecast_table(data, FIT, None, 4, 0.8, 0)
    ahead = forecast(FIT.params, data.cohort, 4)
    mean, var = np.asarray(ahead.mean), np.diagonal(np.asarray(ahead.cov), axis1=-2, axis2=-1)
    (m0, m1), (s0, s1) = data.cohort.labels.shift, data.cohort.labels.scale
    for column, q in (("median", 0.5), ("low", 0.1), ("high", 0.9)):
        found = table[column].to_numpy().reshape(3, 4, 2)
        crea = lognorm.ppf(q, s0 * np.sqrt(var[..., 0]), scale=np.exp(m0 + s0 * mean[..., 0]))
        potassium = norm.ppf(q, m1 + s1 * mean[..., 1], s1 * np.sqrt(var[..., 1]))
        np.testing.assert_allclose(found, np.stack([crea, potassium], -1), rtol=1e-5)
        assert all(float(f"{x:.6g}") == x for x in found.ravel())


def test_intervals_of_draws_are_quantiles_in_units(monkeypatch):
    data = binned(logs=("K",))
    draws = np.random.default_rng(3).normal(size=(301, 3, 2, 2))
    made = PosteriorForecast(draws, np.array([5, 3, 8]), draws.mean(0))
    monkeypatch.setattr(forecasts, "posterior_forecast", lambda *args, **kwargs: made)
    table = forecasts.forecast_table(data, FIT, object(), 2, 0.5, 0)
    (m0, m1), (s0, s1) = data.cohort.labels.shift, data.cohort.labels.scale
    units = np.stack([m0 + s0 * draws[..., 0], np.exp(m1 + s1 * draws[..., 1])], -1)
    order = np.sort(units, axis=0)  # 301 draws: quartiles are draws, and nothing is interpolated
    for column, k in (("low", 75), ("median", 150), ("high", 225)):
        np.testing.assert_allclose(table[column], order[k].ravel(), rtol=1e-5)


@pytest.mark.parametrize("times", ["days", "dates"])
def test_forecasts_have_their_times(times, tmp_path):
    """The last bin of a patient, and the bins after it, in the file as in memory."""
    table = forecasts.forecast_table(binned(times), FIT, None, 3, 0.9, 0)
    table.to_csv(tmp_path / "forecast.csv")
    read = pd.read_csv(tmp_path / "forecast.csv")
    assert (read["hours_ahead"] == 240 * read["steps_ahead"]).all()
    for _, row in read.iterrows():
        last = FIRST[row["id"]] + 10 * (LENGTH[row["id"]] - 1)
        for column, day in (("last_time", last), ("time", last + 10 * row["steps_ahead"])):
            date = str((pd.Timestamp("2024-02-01") + pd.Timedelta(days=day)).date())
            assert row[column] == (date if times == "dates" else day)


def test_the_last_time_is_of_the_last_value_and_not_of_a_gap():
    data = binned()
    cohort = data.cohort
    y = np.where(cohort.mask, cohort.y, np.nan)
    y[0, 3:] = np.nan  # patient a ends with two steps that nobody measured
    gappy = Cohort.from_array(y, lengths=np.asarray(cohort.lengths), ids=cohort.ids)
    gappy = replace(gappy, labels=replace(gappy.labels, starts=(0.0, 40.0, 7.0), step=10.0))
    table = forecasts.forecast_table(data._replace(cohort=gappy), FIT, None, 1, 0.9, 0)
    assert table.loc["a", "last_time"].unique() == [20] and table.loc["a", "time"].unique() == [50]
