"""Durations are read as pandas reads them, and are said as people say them."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_lds.experiments.labs.durations import duration, in_unit, time_unit


@given(st.integers(1, 4000), st.sampled_from(["s", "min", "h", "D", "W"]))
def test_texts_mean_what_they_mean_to_pandas(number, unit):
    for text in (f"{number}{unit}", f" {number / 8} {unit} "):
        wanted = pd.Timedelta(text.strip())
        found = duration("step", text)
        assert found.hours == pytest.approx(wanted / pd.Timedelta("1h"), rel=1e-8)
        assert duration("step", wanted).hours == pytest.approx(found.hours, rel=1e-8)
        assert duration("step", found.short).hours == pytest.approx(found.hours, rel=1e-5)
        assert duration("step", str(found)).hours == pytest.approx(found.hours, rel=1e-5)


def test_what_people_write_and_read():
    said = {
        "1y": "1 year", "0.5 yrs": "0.5 years", "90d": "90 days", "1 Day": "1 day", "2w": "2 weeks", "1mo": "1 month",
        "30min": "30 minutes", "8": "8 hours", 1: "1 hour", 0.25: "0.25 hours", timedelta(days=2): "2 days",
        np.timedelta64(90, "m"): "1.5 hours",
    }  # fmt: skip
    assert {given: str(duration("step", given)) for given in said} == said
    assert duration("step", "1y").hours == 365.25 * 24 == 12 * duration("step", "1mo").hours
    assert str(in_unit(180 * 24, None)) == "180 days" and in_unit(180 * 24, "w").number == 180 / 7
    assert time_unit("time_unit", "Years") == "y"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("soon", "step is 'soon'; give a number and a unit"),
        ("1.2.3h", "step is '1.2.3h'; give"),
        ("8 fortnights", "step is '8 fortnights'; its unit must be one of s, min, h, d, w, mo, y"),
        ("5m", "step is '5m'; write min for minutes, mo for months"),
        ("0d", "step is '0d'; it must be positive"),
        ("-1d", "step is '-1d'; it must be positive"),
        (float("nan"), "step is nan; it must be positive"),
        (float("inf"), "must be positive and finite"),
        (True, "step is True; give"),
        (None, "step is None; give"),
    ],
)  # fmt: skip
def test_errors_name_what_was_given(given, message):
    with pytest.raises(ValueError, match=message):
        duration("step", given)
