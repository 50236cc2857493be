"""Times go through: the bins of a cohort start when pandas says, in the user's own units or dates."""

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.labs.spacing import usual_step
from sparse_lds.experiments.labs.times import Clock
from sparse_lds.models import Cohort

EPOCH = pd.Timestamp("2040-03-24 01:30")


def dated(frame, zone=None):
    """The table with timestamps, which cross the change to summer time."""
    minutes = pd.to_timedelta((60 * frame["time"]).round(), unit="min")
    return frame.assign(time=EPOCH.tz_localize(zone) + minutes)


@pytest.mark.parametrize("step", ["8h", "24h", "90min"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_bins_start_when_pandas_says(frame, step, zone):
    """By `resample`, which knows nothing of hours since 1970."""
    table = dated(frame, zone)
    cohort = bin_labs(labs_from_frame(table), step=step, gaps="missing", min_panels=5).cohort
    assert cohort.labels.step == pd.Timedelta(step)
    found = cohort.to_dataframe().set_index("time")
    for name in cohort.ids:
        own = table[table["id"] == name].pivot_table(index="time", columns="test", values="value")
        long = table[table["id"] == name].set_index("time")
        wanted = pd.DataFrame(
            {
                test: long[long["test"] == test]["value"]
                .resample(step, origin=own.index[0])
                .mean()
                .reindex(pd.date_range(own.index[0], own.index[-1], freq=step))
                for test in cohort.channels
            }
        )
        mine = found[found["id"] == name][list(cohort.channels)]
        pd.testing.assert_frame_equal(
            mine, wanted, check_freq=False, check_names=False, check_index_type=False
        )


@pytest.mark.parametrize("gaps", ["missing", "interpolate"])
@pytest.mark.parametrize(
    ("unit", "hours", "name"),
    [("min", 1 / 60, "minutes"), ("d", 24, "days"), ("w", 168, "weeks"), ("y", 8766, "years")],
)
def test_numbers_of_any_unit_give_the_same_cohort(frame, tmp_path, unit, hours, name, gaps):
    wanted = bin_labs(labs_from_frame(frame), gaps=gaps).cohort
    table, file = frame.assign(time=frame["time"] / hours), tmp_path / "labs.csv"
    table.to_csv(file, index=False)
    labs = read_labs(file, time_unit=name)
    assert f"times are numbers of {name}" in str(labs)
    for found in (
        bin_labs(labs, step="8h", gaps=gaps).cohort,
        bin_labs(labs_from_frame(table, time_unit=unit), step=f"{8 / 24}d", gaps=gaps).cohort,
    ):
        np.testing.assert_allclose(found.y, wanted.y, rtol=1e-12)
        np.testing.assert_array_equal(found.mask, wanted.mask)
        assert found.labels.time_unit == name and wanted.labels.time_unit == "hours"
        np.testing.assert_allclose(found.labels.step, 8 / hours, rtol=1e-12)
        np.testing.assert_allclose(
            np.array(found.labels.starts) * hours, wanted.labels.starts, atol=1e-5
        )
    first = frame.groupby("id")["time"].min()
    late = np.array(wanted.labels.starts) - first[list(wanted.ids)]
    late = late if gaps == "missing" else np.abs(late - 8 * np.rint(late / 8))
    np.testing.assert_allclose(late, 0, atol=1e-8)


def test_a_sequence_of_lines_starts_at_its_first_panel():
    """By hand: CREA alone on two days, then panels; the first of them is the start."""
    rows = [("a", day, "CREA", 1.0) for day in range(6)] + [("a", d, "K", 4.0) for d in (2, 3, 5)]
    table = pd.DataFrame(rows, columns=["id", "time", "test", "value"]).assign(
        time=lambda t: pd.Timestamp("2024-02-27") + pd.to_timedelta(t["time"], unit="D")
    )
    for gaps, day in (("interpolate", "2024-02-29"), ("missing", "2024-02-27")):
        cohort = bin_labs(labs_from_frame(table), step="1d", min_panels=3, gaps=gaps).cohort
        assert cohort.labels.starts == (pd.Timestamp(day),)
        assert cohort.labels.time_of(0, 3) == pd.Timestamp(day) + pd.Timedelta("3D")


@pytest.mark.parametrize("kind", ["days", "dates", "zoned"])
def test_a_binned_cohort_goes_through_a_table(frame, kind):
    """`to_dataframe` and `from_wide` with the cohort's own step: the same values at the same times."""
    table = frame.assign(time=frame["time"] / 24)
    table = table if kind == "days" else dated(frame, "Asia/Kolkata" if kind == "zoned" else None)
    cohort = bin_labs(labs_from_frame(table, time_unit="d"), step="12h", gaps="missing").cohort
    back = Cohort.from_wide(cohort.to_dataframe(), step=cohort.labels.step)
    np.testing.assert_array_equal(back.y, cohort.y)
    assert (back.ids, back.labels.step) == (cohort.ids, cohort.labels.step)
    assert back.labels.starts == cohort.labels.starts
    assert all(
        (getattr(t, "tz", None) is not None) == (kind == "zoned") for t in back.labels.starts
    )


def test_zones_of_text_are_kept(frame, tmp_path):
    """Text with offsets is in UTC, text without has none, in every chunk."""
    file = tmp_path / "labs.csv"
    for zone, wanted in ((None, None), ("Asia/Tokyo", "UTC")):
        dated(frame, zone).to_csv(file, index=False)
        cohort = bin_labs(read_labs(file, chunk=50)).cohort
        kept = dated(frame, zone).groupby("id")["time"].min()[cohort.ids[0]]
        start = cohort.labels.starts[0]
        assert str(start.tz) == str(wanted)
        assert start - kept in pd.to_timedelta(8 * np.arange(9), unit="h")
    said = str(read_labs(file, time_unit="d"))
    assert "times are timestamps, and not in days" in said


def spaced(gaps, n=4):
    """Panels of two tests of n patients, with these times between them."""
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    rows = [(f"p{k}", t, test, t + k) for k in range(n) for t in times for test in ("CREA", "K")]
    return pd.DataFrame(rows, columns=["id", "time", "test", "value"])


def test_a_step_that_is_too_short_is_told_a_better_one():
    days = spaced([180, 170, 200, 180, 160, 200, 180, 181, 175, 190])
    dates = days.assign(time=pd.Timestamp("2011-05-01") + pd.to_timedelta(days["time"], unit="D"))
    better = "the median time between two panels is 180 days: try --step 180d"
    for labs in (labs_from_frame(days, time_unit="d"), labs_from_frame(dates)):
        for gaps in ("missing", "interpolate"):
            said = str(bin_labs(labs, step="1d", gaps=gaps))
            assert "bins of 1 day:" in said and better in said and "hours" not in said
            again = bin_labs(labs, step="180d", gaps=gaps, min_panels=3)
            assert "try" not in str(again) and again.step == "180 days"
            assert again.hours == 180 * 24
    years = str(bin_labs(labs_from_frame(days.assign(time=days["time"] / 365.25), time_unit="y")))
    assert "between two panels is 0.493 years: try --step 0.493y" in years
    bursts = str(bin_labs(labs_from_frame(spaced([8] * 9 + [8 * 120])), gaps="missing"))
    assert "in bursts, 8 hours apart in the median and 103 hours in the mean" in bursts
    assert "most of them" not in str(bin_labs(labs_from_frame(spaced([8] * 12))))


def test_too_few_panels_are_counted():
    """Of 4 patients with 6, 4, 3 and 1 panels."""
    table = spaced([24] * 5)
    last = {"p0": 120, "p1": 72, "p2": 48, "p3": 0}
    labs = labs_from_frame(table[table["time"] <= table["id"].map(last)])
    with pytest.raises(ValueError, match="no patient has 10 panels, bins of 1 day with") as error:
        bin_labs(labs, step="1d")
    said = str(error.value)
    assert "the most is 6 (of 4 patients 75% have at least 3, 25% at least 5)" in said
    assert said.endswith(": lower --panels (min_panels), or widen --step")
    assert len(bin_labs(labs, step="1d", min_panels=4).cohort) == 2
    apart = table[(table["test"] == "K") == (table["time"] % 48 == 0)]
    with pytest.raises(ValueError, match="the most is 0: widen --step, or choose --tests"):
        bin_labs(labs_from_frame(apart))


def test_steps_and_times_that_do_not_fit_are_refused(frame):
    labs = labs_from_frame(frame)
    with pytest.raises(ValueError, match="step is '8h' and hours is 8: give one"):
        bin_labs(labs, step="8h", hours=8)
    with pytest.raises(ValueError, match="step is '8x'; its unit must be"):
        bin_labs(labs, step="8x")
    with pytest.raises(ValueError, match="time_unit is 'parsec'; its unit"):
        labs_from_frame(frame, time_unit="parsec")
    seconds = spaced([7.2e6] * 12, n=300)
    with pytest.raises(ValueError, match="time 86400000 as a number of hours is .* --any-times"):
        labs_from_frame(seconds)
    with pytest.raises(ValueError, match=r"longest patient .* cells in all; .*--time-unit h\)"):
        bin_labs(labs_from_frame(seconds, any_times=True), any_times=True)
    assert len(bin_labs(labs_from_frame(seconds, time_unit="s"), step="90d", min_panels=5).cohort)


def test_the_usual_step_is_the_median_time_between_measurements():
    """Of each patient apart; values of one time are one measurement; short times are left to the default."""
    patient = np.repeat([0, 0, 1, 1], [3, 5, 4, 2])
    hours = 24.0 * np.array([0, 0, 7, 14, 14, 21, 28, 28, 900, 907, 914, 921, 921, 928])
    order = np.random.default_rng(0).permutation(len(hours))
    found = usual_step(patient[order], hours[order], 8.0, Clock("timestamps"))
    assert found is not None and found.hours == 7 * 24 and found.short == "7d"
    weeks = usual_step(patient, hours, 8.0, Clock("numbers", unit="w"))
    assert weeks is not None and weeks.short == "1w"
    assert usual_step(patient, hours / 14, 8.0, Clock("timestamps")) is None  # 12 hours
    assert usual_step(np.arange(3), np.arange(3.0), 8.0, Clock("timestamps")) is None
