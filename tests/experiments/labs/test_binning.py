"""Bins of lab results, against pivot tables of pandas."""

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.labs import bin_labs, labs_from_frame


def by_pandas(frame, hours=8.0):
    """Bins by another road: a pivot table for each patient."""
    found = {}
    for name, part in frame.groupby("id"):
        at = np.floor((part["time"] - part["time"].min()) / hours).astype(int)
        wide = part.assign(at=at).pivot_table(
            index="at", columns="test", values="value", aggfunc="mean"
        )
        found[name] = wide[["MCH", "MCHC", "MCV"]]
    return found


@pytest.mark.parametrize("gaps", ["missing", "interpolate"])
def test_bins_agree_with_pandas(frame, gaps):
    binned = bin_labs(labs_from_frame(frame), gaps=gaps)
    cohort, wanted = binned.cohort, by_pandas(frame)
    assert cohort.channels == ("MCH", "MCHC", "MCV")
    assert set(cohort.ids) == {k for k, x in wanted.items() if x.notna().all(axis=1).sum() >= 10}
    for n, name in enumerate(cohort.ids):
        x = wanted[name]
        if gaps == "interpolate":
            x = x[x.notna().all(axis=1)]
        x = x.reindex(range(x.index[0], x.index[-1] + 1))
        if gaps == "interpolate":
            x = x.interpolate("linear")
        np.testing.assert_allclose(cohort.sequence(n), x.to_numpy(), rtol=1e-12)
        seen = x.notna().to_numpy()
        if gaps == "interpolate":  # only full panels are taken
            seen = seen & x.index.isin(wanted[name].dropna().index)[:, None]
        np.testing.assert_array_equal(binned.measured[n, : len(x)], seen)
        assert not binned.measured[n, len(x) :].any()
    assert cohort.complete == (gaps == "interpolate")
    assert "full panels" in str(binned) and f"{len(cohort)} of 6 ids" in str(binned)


def test_values_that_lines_replace_are_counted(frame):
    """By hand: values in bins without all tests, of the patients that are kept."""
    labs = labs_from_frame(frame)
    binned = bin_labs(labs)
    tables = by_pandas(frame)
    unused = sum(
        int(tables[i][tables[i].isna().any(axis=1)].notna().sum().sum()) for i in binned.cohort.ids
    )
    assert unused > 0 and f"{unused} values of bins without all tests are not used" in str(binned)
    assert "not used" not in str(bin_labs(labs, gaps="missing"))


def test_a_regular_grid_stays_one():
    """8.2 - 0.2 is a little less than 8 in floating point."""
    for first in np.arange(0, 8, 0.1).round(2):
        times = (first + 8 * np.arange(40)).round(2)
        frame = pd.DataFrame({"id": "a", "time": times, "test": "x", "value": np.arange(40.0)})
        cohort = bin_labs(labs_from_frame(frame)).cohort
        np.testing.assert_array_equal(cohort.sequence(0)[:, 0], np.arange(40.0))


def test_times_count_what_their_column_says(frame):
    """Numbers in a column `day` are days, unless it is said otherwise."""
    days = frame.rename(columns={"time": "day"}).assign(day=frame["time"] / 24)
    named = bin_labs(labs_from_frame(days, time="day")).cohort
    wanted = bin_labs(labs_from_frame(frame)).cohort
    np.testing.assert_allclose(named.y, wanted.y)
    assert named.labels.time_unit == "days"
    hours = labs_from_frame(days, time="day", time_unit="h")
    assert bin_labs(hours, min_panels=1).cohort.labels.time_unit == "hours"


def test_fewer_panels_are_advised_where_most_are_dropped():
    rows = [
        (f"p{n}", 8.0 * t, test, float(t))
        for n in range(9)
        for t in range(12 if n == 0 else 4)
        for test in ("a", "b")
    ]
    labs = labs_from_frame(pd.DataFrame(rows, columns=["id", "time", "test", "value"]))
    binned = bin_labs(labs)
    assert binned.dropped == 8 and "--panels 4 would keep 9" in str(binned)
    assert "would keep" not in str(bin_labs(labs, min_panels=4))
