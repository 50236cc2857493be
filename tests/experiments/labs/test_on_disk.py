"""Lab files binned bucket by bucket give the cohort that binning in memory gives."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.labs import bin_labs, bin_to_disk, on_disk, read_labs
from sparse_lds.models import open_cohort


def labs(n_patients=60, seed=0, dates=False, text=False) -> pd.DataFrame:
    """Values of patients in no order, some of them empty, or of few panels."""
    rng = np.random.default_rng(seed)
    n = rng.integers(3, 60, n_patients)
    patient = np.repeat(np.arange(n_patients), n)
    frame = pd.DataFrame(
        {
            "id": [f"p{i:03d}" for i in patient] if text else patient,
            "time": rng.uniform(0, 60, len(patient)) + 100.0 * patient,
            "test": rng.choice(["HB", "CREA"], len(patient)),
            "value": rng.normal(size=len(patient)).round(3),
        }
    )
    if dates:
        hours = pd.to_timedelta((3600 * frame["time"]).round(), unit="s")
        frame["time"] = pd.Timestamp("2020-03-01", tz="UTC") + hours
    frame.loc[::37, "value"] = np.nan
    return frame.sample(frac=1.0, random_state=seed)


def same(found, wanted):
    """Assert that two cohorts have the same sequences, in whatever order."""
    assert sorted(found.ids) == sorted(wanted.ids) and found.channels == wanted.channels
    order = [found.ids.index(i) for i in wanted.ids]
    for name in ("y", "mask", "lengths"):
        np.testing.assert_array_equal(getattr(found, name)[order], getattr(wanted, name))
    starts = [found.labels.starts[i] for i in order]
    assert starts == list(wanted.labels.starts)
    assert found.labels.step == wanted.labels.step
    assert found.labels.time_unit == wanted.labels.time_unit


@pytest.mark.parametrize("gaps", ["missing", "interpolate"])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("dates", [False, True])
def test_same_cohort_as_in_memory(tmp_path, monkeypatch, gaps, suffix, dates):
    monkeypatch.setattr(on_disk, "_CHUNK", 171)
    frame = labs(dates=dates, text=suffix != "parquet")
    file = tmp_path / f"labs.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False)
    options = {"step": "6h", "min_panels": 2, "gaps": gaps}
    wanted = bin_labs(read_labs(file), **options).cohort
    assert 1 < len(wanted) < 60
    made = bin_to_disk(file, tmp_path / "cohort", n_buckets=7, **options)
    assert made.n_sequences == len(wanted)
    same(open_cohort(tmp_path / "cohort").sample, wanted)


def test_files_of_a_folder_are_one_table(tmp_path):
    frame = labs()
    frame.to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "labs" / "more").mkdir(parents=True)
    frame.iloc[:500].to_csv(tmp_path / "labs" / "a.csv", index=False)
    frame.iloc[500:].to_csv(tmp_path / "labs" / "more" / "b.csv.gz", index=False)
    wanted = bin_labs(read_labs(tmp_path / "all.csv"), step="6h", min_panels=2, gaps="missing")
    bin_to_disk(tmp_path / "labs", tmp_path / "x", step="6h", min_panels=2, n_buckets=3)
    same(open_cohort(tmp_path / "x").sample, wanted.cohort)


def test_wide_and_mimic_tables(tmp_path):
    frame = labs()
    wide = frame.pivot_table(index=["id", "time"], columns="test", values="value").reset_index()
    wide.to_csv(tmp_path / "wide.csv", index=False)
    options = {"step": "6h", "min_panels": 1, "gaps": "missing"}
    tests = ["CREA", "HB"]
    wanted = bin_labs(read_labs(tmp_path / "wide.csv", tests=tests), **options).cohort
    bin_to_disk(tmp_path / "wide.csv", tmp_path / "w", tests=tests, n_buckets=4, **options)
    same(open_cohort(tmp_path / "w").sample, wanted)
    with pytest.raises(ValueError, match="wide table; name the columns to take in tests"):
        bin_to_disk(tmp_path / "wide.csv", tmp_path / "v", **options)
    assert not (tmp_path / "v").exists()  # half a cohort is none
    stay = pd.DataFrame(
        {
            "hadm_id": frame["id"],
            "itemid": frame["test"].map({"HB": 51249, "CREA": 51248}),
            "charttime": pd.Timestamp("2020-01-01") + pd.to_timedelta(frame["time"], unit="h"),
            "valuenum": frame["value"],
        }
    )
    stay.to_csv(tmp_path / "labevents.csv", index=False)
    items = {51249: "MCHC", 51248: "MCH"}
    wanted = bin_labs(read_labs(tmp_path / "labevents.csv", tests=items), **options).cohort
    bin_to_disk(tmp_path / "labevents.csv", tmp_path / "m", tests=items, n_buckets=4, **options)
    same(open_cohort(tmp_path / "m").sample, wanted)


def test_errors_are_those_of_a_file_in_memory(tmp_path):
    frame = labs(5)
    frame.to_csv(tmp_path / "labs.csv", index=False)
    with pytest.raises(ValueError, match="panels"):
        bin_to_disk(tmp_path / "labs.csv", tmp_path / "x", step="6h", min_panels=1000)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        bin_to_disk(tmp_path / "nothing", tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no CSV"):
        bin_to_disk(tmp_path / "empty", tmp_path / "x")
    frame.assign(value="none").to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(ValueError, match="nothing is left"):
        bin_to_disk(tmp_path / "text.csv", tmp_path / "x")


def test_command_writes_a_cohort(tmp_path):
    labs().to_csv(tmp_path / "labs.csv", index=False)
    arguments = ["bin", str(tmp_path / "labs.csv"), "--out", str(tmp_path / "cohort"), "--panels"]
    found = CliRunner().invoke(app, [*arguments, "2", "--step", "6h"])
    assert found.exit_code == 0, found.output
    cohort = open_cohort(tmp_path / "cohort")
    assert f"wrote {len(cohort)} sequences" in found.output
    again = CliRunner().invoke(app, [*arguments, "2"])
    assert again.exit_code != 0 and "not empty" in again.output
    logs = CliRunner().invoke(app, [*arguments, "2", "--log", "HB"])
    assert logs.exit_code != 0 and "--log is given" in logs.output
