"""Lab results are read the same from every kind of file, and what is wrong with a file is said."""

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs


def test_every_kind_of_file_reads_the_same(frame, tmp_path):
    wide = frame.pivot_table(index=["id", "time"], columns="test", values="value").reset_index()
    stamped = frame.assign(
        time=pd.Timestamp("2020-01-01") + pd.to_timedelta((frame["time"] * 60).round(), unit="min")
    )
    renamed = frame.rename(columns={"id": "patient", "time": "t", "test": "name", "value": "x"})
    items = {"MCHC": 51249, "MCH": 51248, "MCV": 51250}
    mimic = pd.DataFrame(
        {
            "SUBJECT_ID": 1,
            "HADM_ID": frame["id"].str[1:].astype(int) + 0.0,
            "ITEMID": frame["test"].map(items),
            "CHARTTIME": stamped["time"].astype(str),
            "VALUE": frame["value"].astype(str),
            "VALUENUM": frame["value"],
            "VALUEUOM": "pg",
        }
    )
    extra = mimic.iloc[:3].assign(HADM_ID=np.nan)
    text = mimic.iloc[:2].assign(VALUE="ERROR", VALUENUM=np.nan)
    other = mimic.iloc[:4].assign(ITEMID=50000)
    mimic = pd.concat([mimic, extra, text, other], ignore_index=True)
    files = {
        "long.csv": {},
        "long.csv.gz": {},
        "long.parquet": {},
        "wide.csv": {},
        "stamped.csv": {},
        "renamed.csv": {"id": "patient", "time": "t", "test": "name", "value": "x"},
        "mimic.csv.gz": {},
    }
    frame.to_csv(tmp_path / "long.csv", index=False)
    frame.to_csv(tmp_path / "long.csv.gz", index=False)
    frame.to_parquet(tmp_path / "long.parquet")
    wide.to_csv(tmp_path / "wide.csv", index=False)
    stamped.to_csv(tmp_path / "stamped.csv", index=False)
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    mimic.to_csv(tmp_path / "mimic.csv.gz", index=False)
    reference = bin_labs(labs_from_frame(frame)).cohort
    for name, options in files.items():
        labs = read_labs(tmp_path / name, chunk=97, **options)
        cohort = bin_labs(labs).cohort
        assert set(cohort.channels) == set(reference.channels), name
        order = [cohort.channels.index(c) for c in reference.channels]
        assert len(cohort) == len(reference), name
        by_id = {str(i)[-3:].zfill(3): n for n, i in enumerate(cohort.ids)}
        for n, i in enumerate(reference.ids):
            np.testing.assert_allclose(
                cohort.sequence(by_id[i[1:]])[:, order],
                reference.sequence(n),
                rtol=1e-12,
                err_msg=name,
            )
        if name.startswith("mimic"):
            assert "dropped 3 values without an admission" in str(labs)
            assert "dropped 2 values that are not numbers" in str(labs)


def test_bad_files(frame, tmp_path):
    file = tmp_path / "labs.csv"
    with pytest.raises(FileNotFoundError, match="labs.csv"):
        read_labs(file)
    file.write_text("")
    with pytest.raises(ValueError, match="not a table"):
        read_labs(file)
    frame.to_csv(file, index=False)
    with pytest.raises(ValueError, match="no column 'patient'"):
        read_labs(file, id="patient")
    with pytest.raises(ValueError, match="no value of test 'WBC'; it has also 'MCHC', 'MCV'"):
        read_labs(file, tests=["MCH", "WBC"])
    with pytest.raises(ValueError, match="kind is 'tall'"):
        read_labs(file, kind="tall")
    frame.assign(value="x").to_csv(file, index=False)
    with pytest.raises(ValueError, match="nothing is left of labs.csv: .* not numbers"):
        read_labs(file)
    limits = frame["value"].astype(str).where(np.arange(len(frame)) % 10 > 0, "< 3.0")
    limits[1] = "clotted"
    frame.assign(value=limits).to_csv(file, index=False)
    assert f"dropped {-(-len(frame) // 10)} values beyond a limit" in str(read_labs(file))
    assert "dropped 1 values that are not numbers" in str(read_labs(file))
    frame.assign(time="noon").to_csv(file, index=False)
    with pytest.raises(ValueError, match="'noon' is neither"):
        read_labs(file)
    labs = labs_from_frame(frame)
    with pytest.raises(ValueError, match="no patient has 1000 panels"):
        bin_labs(labs, min_panels=1000)
    with pytest.raises(ValueError, match="gaps is 'zero'"):
        bin_labs(labs, gaps="zero")
    with pytest.raises(ValueError, match="hours is 0"):
        bin_labs(labs, hours=0)


def test_ids_and_tests_are_read_as_they_are(tmp_path):
    """001 is not 1, NA is sodium, an id is one id in every chunk, and times may have a zone."""
    file = tmp_path / "labs.csv"
    rows = [
        (i, 8 * t, test, 1.0 + t)
        for i in ("001", "1", "A7")
        for t in range(3)
        for test in ("NA", "K")
    ]
    frame = pd.DataFrame(rows, columns=["id", "time", "test", "value"])
    more = pd.DataFrame([("1", 0, "", 1.0), ("1", 0, "note", "clotted")], columns=frame.columns)
    for time in (
        frame["time"],
        pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(frame["time"], unit="h"),
    ):
        extra = more.assign(time=time.iloc[0])
        pd.concat([frame.assign(time=time), extra]).to_csv(file, index=False)
        labs = read_labs(file, chunk=4)
        assert labs.ids.tolist() == ["001", "1", "A7"] and set(labs.tests) == {"NA", "K"}
        assert "dropped 1 values without a test" in str(labs)
        assert "dropped test note, which has no number" in str(labs)
        cohort = bin_labs(labs, min_panels=3).cohort
        np.testing.assert_array_equal(cohort.sequence(1), [[1, 1], [2, 2], [3, 3]])


def test_columns_of_a_wide_table_that_are_no_tests_are_dropped(tmp_path):
    """Row numbers, and what never changes within a patient; a test that is asked for by name is kept."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat(range(5), 12), "time": np.tile(np.arange(12.0), 5)})
    table["rownames"] = np.arange(1, 61)
    table["birth"] = np.repeat(rng.normal(size=5), 12)
    table["hb"] = rng.normal(size=60)
    table["flat but once"] = 1.0
    table.loc[7, "flat but once"] = 2.0
    file = tmp_path / "wide.csv"
    table.to_csv(file, index=False)
    labs = read_labs(file)
    assert labs.tests == ("hb", "flat but once")
    np.testing.assert_array_equal(labs.value[labs.test == 0], table["hb"])
    np.testing.assert_array_equal(labs.value[labs.test == 1], table["flat but once"])
    said = "\n".join(labs.log)
    assert "dropped column rownames, which counts the rows" in said
    assert "dropped column birth, which never changes within a patient" in said
    assert read_labs(file, tests=["birth", "hb"]).tests == ("birth", "hb")
    once = table.groupby("id").head(2)  # seen twice in a patient, which is not often
    once.to_csv(file, index=False)
    assert "birth" in read_labs(file).tests
