"""Times and numbers that may mean something else: what was understood is said, what cannot be right is refused."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.labs.numbers import Marks


def table(times, tests=("CREA", "K")):
    """Two patients with these times, and a value of each test at each."""
    rows = [
        (i, t, test, 1.0 + k) for i in ("a", "b") for k, t in enumerate(times) for test in tests
    ]
    return pd.DataFrame(rows, columns=["id", "time", "test", "value"])


STAMPS = pd.date_range("2023-01-05", periods=12, freq="8h")


@pytest.mark.parametrize(
    ("times", "hint"),
    [
        (STAMPS.astype("datetime64[s]").astype("int64"), "unix seconds"),
        (STAMPS.astype("datetime64[ms]").astype("int64"), "unix milliseconds"),
        (STAMPS.strftime("%Y%m%d%H%M").astype(int), "a date"),
        (STAMPS.strftime("%Y%m%d").astype(int), "a date"),
        ([*range(11), 1e15], "1e[+]15|1000000000000000"),
        ([*range(11), 1e300], "1e[+]300"),
        ([*STAMPS[:-1], pd.Timestamp("2923-01-01")], "span of 900 years"),
        (["1823-01-05 00:00", *STAMPS.astype(str)[:-1]], "span of 200 years"),
    ],
)
def test_times_beyond_reason_are_refused_and_can_be_allowed(times, hint):
    frame = table(times)
    with pytest.raises(ValueError, match=f"{hint}.*--any-times"):
        labs_from_frame(frame)
    labs = labs_from_frame(frame, any_times=True)
    assert "times are from" in str(labs)
    try:  # then a grid of them either is small enough, or is refused at once
        bin_labs(labs, any_times=True, min_panels=1)
    except ValueError as error:
        assert "widen --step" in str(error)


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("s", STAMPS.astype("datetime64[s]").astype("int64")),
        ("y", 2019 + np.arange(12) / 3),
        ("d", 45000 + np.arange(12)),
        ("h", np.arange(-6, 6)),
    ],
)
def test_times_within_reason_are_taken(unit, times):
    labs = labs_from_frame(table(times), time_unit=unit)
    assert len(bin_labs(labs, step="0.5y" if unit == "y" else "1d", min_panels=1).cohort) == 2


@pytest.mark.parametrize(
    "text", ["today", "now", "10:30", "23-01-05", "05.01.23", "5 Jan 23", "Jan"]
)
def test_dates_without_a_year_are_refused(text):
    with pytest.raises(ValueError, match=f"time '{text}' is neither.*2023-01-31"):
        labs_from_frame(table([text, *STAMPS.astype(str)]))


def test_zones_are_all_or_none(tmp_path):
    """In one chunk, and in two; of text, and of a column of timestamps that have one."""
    plain, zoned = list(STAMPS.astype(str)), [f"{t}+02:00" for t in STAMPS.astype(str)]
    file = tmp_path / "labs.csv"
    for times in ([*plain, *zoned], [*zoned, "2023-02-01"]):
        table(times).to_csv(file, index=False)
        for chunk in (7, 10_000):
            with pytest.raises(ValueError, match="some times have a zone"):
                read_labs(file, chunk=chunk)
    for times, said in (
        (plain, "2023-01-05 00:00 to 2023-01-08 16:00,"),
        (zoned, "2023-01-04 22:00"),
    ):
        labs = labs_from_frame(table(times))
        assert said in str(labs) and ("(UTC)" in str(labs)) == (times is zoned)


def test_a_column_named_twice_is_refused(tmp_path):
    file = tmp_path / "labs.csv"
    for head in ("id,time,test,value,time", "id,time,K,CREA,K"):
        file.write_text(f"{head}\na,1,2,3,4\n")
        with pytest.raises(ValueError, match="has 2 columns named '(time|K)'"):
            read_labs(file)
    frame = table(range(12))
    frame.columns = ["id", "time", "test", "time"]
    with pytest.raises(ValueError, match="has 2 columns named 'time'"):
        labs_from_frame(frame)
    table(range(12)).to_csv(file, index=False)
    with pytest.raises(ValueError, match="what is read of labs.csv has 2 columns named 'time'"):
        read_labs(file, id="time")


def test_an_empty_grid_is_refused_and_what_is_filled_is_said():
    labs = labs_from_frame(table(np.arange(12.0)), time_unit="y")
    with pytest.raises(ValueError, match="only 0.001 of the bins .*try --step 1y.*--any-times"):
        bin_labs(labs, min_panels=2)
    said = str(bin_labs(labs, min_panels=2, any_times=True))
    assert (
        "0.1% of the bins" in said or "0.099% of the bins" in said or "0.091% of the bins" in said
    )
    assert "times are from 0 to 11 years, a span of 11 years" in said
    half = str(bin_labs(labs_from_frame(table(16 * np.arange(12))), min_panels=2))
    assert "52% of the bins from a patient's first value to the last have a value" in half
    with pytest.raises(ValueError, match="longest patient has 1.* widen --step"):
        bin_labs(labs_from_frame(table([0, 1.0])), step=1e-300, min_panels=1, any_times=True)


def test_what_was_dropped_is_told_when_the_rest_is_not_enough(tmp_path):
    frame = table(8 * np.arange(12)).astype({"value": object})
    frame.loc[frame.index % 5 < 2, "value"] = "haemolysed"
    file = tmp_path / "labs.csv"
    frame.to_csv(file, index=False)
    with pytest.raises(
        ValueError, match="no patient has 10 panels.*dropped 20 values that are not"
    ):
        bin_labs(read_labs(file))
    result = CliRunner().invoke(app, ["fit", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "dropped 20 values that are not numbers" in result.output
    assert "rows read as long" in result.output and not (tmp_path / "out").exists()


def written(frame, file, mark, decimal, thousands):
    """Write the table with other marks."""

    def number(x):
        whole, rest = f"{x:,.3f}".split(".")
        return whole.replace(",", thousands) + decimal + rest

    frame.assign(value=frame["value"].map(number)).to_csv(file, index=False, sep=mark)


@pytest.mark.parametrize(
    ("mark", "decimal", "thousands"),
    [
        (";", ",", "."),
        (";", ",", ""),
        (",", ",", "."),
        ("\t", ".", ","),
        ("|", ".", "'"),
        (";", ".", " "),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_other_marks_read_the_same(frame, tmp_path, mark, decimal, thousands, kind):
    frame = frame.assign(value=1000 * frame["value"].round(4))
    file = tmp_path / f"labs.{kind}"
    written(frame, file, mark, decimal, thousands)
    try:
        assert "--decimal" in str(read_labs(file)) or "--thousands" in str(read_labs(file))
    except ValueError as error:  # none of the values is a number
        assert "--decimal" in str(error) or "--thousands" in str(error)
    found = bin_labs(read_labs(file, decimal=decimal, thousands=thousands, chunk=50))
    wanted = bin_labs(labs_from_frame(frame)).cohort
    np.testing.assert_allclose(found.cohort.y, wanted.y, rtol=1e-12)
    assert (mark == ",") == ("columns end at" not in str(found))


@given(st.floats(-1e9, 1e9), st.sampled_from([".", ","]), st.sampled_from(["", "'", " ", ".", ","]))
def test_marks_read_what_was_written(x, decimal, thousands):
    if decimal == thousands:
        with pytest.raises(ValueError, match="thousands is"):
            Marks(decimal, thousands).check()
        return
    text = f"{x:,.4f}".replace(",", "_").replace(".", decimal).replace("_", thousands)
    found = Marks(decimal, thousands).check().numbers(pd.Series([text, "x", None], dtype=object))
    assert found.isna().tolist() == [False, True, True]
    assert found[0] == float(f"{x:.4f}")


def test_true_is_no_number(tmp_path):
    file = tmp_path / "labs.csv"
    table(8 * np.arange(12)).assign(value=True).to_csv(file, index=False)
    with pytest.raises(ValueError, match="nothing is left"):
        read_labs(file)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00a", b"", b"\x1f\x8b\x08\x00abc", b'id,time\n"a,1\n']
)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_damaged_files_are_named(tmp_path, content, suffix):
    file = tmp_path / f"labs.{suffix}"
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["fit", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_cut_short_is_damaged(tmp_path):
    file = tmp_path / "labs.csv.gz"
    whole = gzip.compress(table(range(3000)).to_csv(index=False).encode())
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="labs.csv.gz is damaged, or not whole"):
        read_labs(file)
