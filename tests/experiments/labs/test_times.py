"""Dates as text are read in one order of day and month, or refused."""

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.labs import labs_from_frame


def dated(frame, style):
    """The table with dates as text."""
    stamp = pd.Timestamp("2023-01-29") + pd.to_timedelta(frame["time"], unit="h")
    return frame.assign(time=stamp.dt.strftime(style))


@pytest.mark.parametrize("style", ["%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S"])
def test_dates_are_read_in_one_order_or_refused(frame, style):
    """From January into February: read row by row, 05/02 would be in May for some and in February for others."""
    wanted = labs_from_frame(dated(frame, "%Y-%m-%dT%H:%M:%S"))
    labs = labs_from_frame(dated(frame, style))
    np.testing.assert_array_equal(labs.hours, wanted.hours)
    assert f"the {'day' if style.startswith('%d') else 'month'} first" in str(labs)
    few = frame[frame["time"].between(80, 200)]  # 1 to 6 February
    with pytest.raises(ValueError, match="may have the day first or the month first"):
        labs_from_frame(dated(few, style))
    both = pd.concat([dated(frame, "%d/%m/%Y %H:%M:%S"), dated(frame, "%m/%d/%Y %H:%M:%S")])
    with pytest.raises(ValueError, match="in some rows"):
        labs_from_frame(both)


def test_iso_dates_stay_as_they_are_beside_others(frame):
    """2023-02-03 is in February, whatever order the other rows have."""
    iso, other = dated(frame, "%Y-%m-%d %H:%M:%S"), dated(frame, "%d/%m/%Y %H:%M:%S")
    even = np.arange(len(frame)) % 2 == 0
    mixed = frame.assign(time=np.where(even, iso["time"], other["time"]))
    np.testing.assert_array_equal(labs_from_frame(mixed).hours, labs_from_frame(iso).hours)
