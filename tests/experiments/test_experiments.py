"""Lab results to cohorts, prediction tasks and their errors, Table 1, and the command line."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sparse_lds.experiments import grid as table_cells
from sparse_lds.experiments import table1
from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.protocol import (
    channel_mean,
    evaluate,
    last_value,
    lds_forecaster,
    make_tasks,
    paired_p,
    var1_forecaster,
)
from sparse_lds.experiments.saving import load_fit, load_posterior, save_fit
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.inference import fit_map
from sparse_lds.models import Cohort, GroupLaplace, Laplace, LDSParams, forecast


def long_frame(n=6, seed=0) -> pd.DataFrame:
    """A few patients of the synthetic cohort."""
    frame = synthetic_labs(n, seed).frame
    return frame


@pytest.fixture(scope="module")
def frame():
    return long_frame()


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


def test_a_regular_grid_stays_one():
    """8.2 - 0.2 is a little less than 8 in floating point."""
    for first in np.arange(0, 8, 0.1).round(2):
        times = (first + 8 * np.arange(40)).round(2)
        frame = pd.DataFrame({"id": "a", "time": times, "test": "x", "value": np.arange(40.0)})
        cohort = bin_labs(labs_from_frame(frame)).cohort
        np.testing.assert_array_equal(cohort.sequence(0)[:, 0], np.arange(40.0))


def test_the_synthetic_cohort_is_what_it_says():
    one, again = synthetic_labs(40), synthetic_labs(40)
    pd.testing.assert_frame_equal(one.frame, again.frame)
    wide = one.frame.pivot_table(index=["id", "time"], columns="test", values="value").dropna()
    ratio = wide["MCHC"] / (100 * wide["MCH"] / wide["MCV"])
    assert abs(ratio.mean() - 1) < 0.002 and ratio.std() < 0.01
    assert wide["MCV"].mod(1).eq(0).all() and wide["MCH"].mul(10).round(6).mod(1).eq(0).all()
    A = one.truth.A
    assert A.shape == (5, 5) and (A == 0).mean() > 0.6 and np.abs(np.linalg.eigvals(A)).max() < 1


def small_cohort(N=12, T=12, gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.cumsum(rng.normal(size=(N, T, 2)), axis=1)
    y[rng.random(y.shape) < gaps] = np.nan
    y[:, 0] = rng.normal(size=(N, 2))
    return Cohort.from_sequences([x[: rng.integers(4, T + 1)] for x in y]).standardize()


def test_tasks():
    cohort = small_cohort(gaps=0.3)
    tasks = make_tasks(cohort, 0)
    assert ((1 <= tasks.psi) & (tasks.psi < tasks.phi)).all()
    assert (tasks.phi <= np.asarray(cohort.lengths)[tasks.patient]).all()
    assert cohort.mask[tasks.patient, tasks.phi - 1].any(1).all()
    pairs = set(zip(*tasks, strict=True))
    assert len(pairs) == len(tasks.psi) and (np.bincount(tasks.patient) <= 5).all()
    assert all((a == b).all() for a, b in zip(tasks, make_tasks(cohort, 0), strict=True))
    # every pair of a sequence is as likely as any other: 4 steps have 6 pairs
    four = Cohort.from_sequences([np.zeros((4, 1))])
    seen = [make_tasks(four, s, 1) for s in range(1200)]
    counts = pd.Series([(int(t.psi[0]), int(t.phi[0])) for t in seen]).value_counts()
    assert len(counts) == 6 and counts.min() > 150
    assert len(make_tasks(four, 0, 10).psi) == 6  # no more than there are


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_errors_by_a_slow_road(gaps):
    """One task at a time, by `forecast` of the cut sequence, and the baselines by hand."""
    cohort = small_cohort(N=5, gaps=gaps)
    params = LDSParams(
        np.array([[0.9, 0.1], [0.0, 0.7]]),
        np.eye(2),
        0.3 * np.eye(2),
        0.2 * np.eye(2),
        np.zeros(2),
        np.eye(2),
    )
    tasks = make_tasks(cohort, 1000 * 3 + 0)
    found = {
        "lds": lds_forecaster(params)(cohort, tasks),
        "last": last_value(cohort, tasks),
        "mean": channel_mean(cohort, tasks),
    }
    whole, errors = [], []
    for k, (n, psi, phi) in enumerate(zip(*tasks, strict=True)):
        y = cohort.sequence(n)
        cut = Cohort.from_sequences([y[:psi]], channels=cohort.channels)
        wanted = forecast(params, cut, int(phi - psi)).mean[0, -1]
        np.testing.assert_allclose(found["lds"][k], wanted, rtol=1e-8, atol=1e-10)
        for j in range(2):
            past = y[:psi, j][~np.isnan(y[:psi, j])]
            assert found["last"][k, j] == (past[-1] if len(past) else 0.0)
        whole.append(np.abs(y[phi - 1] - np.asarray(wanted)))
    assert (found["mean"] == 0).all()
    errors = evaluate(lds_forecaster(params), cohort, seed=3, repetitions=2)
    assert errors.amae[0] == pytest.approx(np.nanmean(whole), rel=1e-9)
    np.testing.assert_allclose(
        errors.amae_units[0], np.nanmean(whole, axis=0) * np.asarray(cohort.labels.scale), rtol=1e-9
    )
    assert errors.by_patient.shape == (5,)
    assert (
        paired_p(
            errors, errors._replace(by_patient=errors.by_patient + [0.1, 0.12, 0.09, 0.1, 0.11])
        )
        < 0.01
    )


def test_var1_recovers_a_var1():
    rng = np.random.default_rng(0)
    B, b = np.array([[0.8, 0.1], [-0.2, 0.6]]), np.array([0.3, -0.1])
    y = np.zeros((200, 20, 2))
    for t in range(1, 20):
        y[:, t] = b + y[:, t - 1] @ B.T + 0.01 * rng.normal(size=(200, 2))
    cohort = Cohort.from_array(y)
    tasks = make_tasks(cohort, 0)
    wanted = y[tasks.patient, tasks.psi - 1]
    for k, h in enumerate(tasks.phi - tasks.psi):
        for _ in range(h):
            wanted[k] = b + B @ wanted[k]
    np.testing.assert_allclose(var1_forecaster(cohort)(cohort, tasks), wanted, atol=0.01)


def test_table1_goes_on_where_it_stopped(tmp_path):
    cohort = bin_labs(labs_from_frame(long_frame(24))).cohort
    plan = table1.Plan(
        states=(1, 2), sizes=(8,), repetitions=2, n_starts=1, n_betas=3, max_iter=15, tol=1e-2
    )
    table = table1.run_table1(cohort, tmp_path / "a", plan, workers=1)
    files = table1.write_table1(table, tmp_path / "a")
    text = (tmp_path / "a" / "table1.txt").read_text()
    assert "OLDS(8)" in text and "1.1653" in text and text.count("hold") == 3
    assert all(f.stat().st_size > 0 for f in files)
    # what a kill leaves behind: some cells, and a part of one
    cells = sorted((tmp_path / "a" / "cells").glob("*.json"))
    assert len(cells) == 3 + 2 * 2
    before = {f.name: json.loads(f.read_text()) for f in cells}
    for f in cells[::2]:
        f.unlink()
    (tmp_path / "a" / "cells" / "8_SLDS_02.json.1.part").write_text('{"amae": [')
    again = table1.run_table1(cohort, tmp_path / "a", plan, workers=2)
    for f in cells:
        now = json.loads(f.read_text())
        now.pop("seconds"), before[f.name].pop("seconds")
        assert now == before[f.name]
    pd.testing.assert_frame_equal(again.amae(), table.amae())
    with pytest.raises(ValueError, match="another seed"):
        table1.run_table1(cohort, tmp_path / "a", plan._replace(seed=1), workers=1)
    with pytest.raises(ValueError, match="leave none to test"):
        table1.run_table1(cohort, tmp_path / "b", plan._replace(sizes=(100,)))
    for size in plan.sizes:
        train, test = table_cells.split(
            cohort, table._replace(plan=plan._replace(n_test=12)).plan, size
        )
        assert not set(train.ids) & set(test.ids)


def test_claims_by_hand():
    """Cells with errors that are known: each claim is read off them."""
    states = (2, 3, 4)
    amae = {"OLDS": (1.0, 0.6, 0.9), "SLDS": (0.8, 0.5, 0.6)}
    cells = {}
    rng = np.random.default_rng(0)
    for method, values in amae.items():
        for l, x in zip(states, values, strict=True):
            cells[table1.Cell(50, method, l)] = {
                "amae": [x, x], "amae_units": [[x], [x]], "by_patient": list(x + 0.01 * rng.normal(size=30)),
                "bic": l, "channels": ["a"],
            }  # fmt: skip
    table = table1.Table1(cells, table1.Plan(states=states, sizes=(50,)))
    assert [line.startswith("[holds]") for line in table.claims()] == [True, True, True]
    worse = dict(cells)
    worse[table1.Cell(50, "SLDS", 3)] = cells[table1.Cell(50, "OLDS", 2)]
    flipped = table1.Table1(worse, table.plan).claims()
    assert [line.startswith("[holds]") for line in flipped] == [True, True, False]
    paper = table1.paper_table()
    assert paper.loc["SLDS(100)", 15] == 0.8309 and paper.shape == (4, 10)


def test_a_fit_is_saved_whole(tmp_path):
    cohort = small_cohort()
    for prior in (
        Laplace(2.0),
        Laplace(np.array([[1.0, np.inf], [0.0, 2.0]])),
        GroupLaplace(1.0, by="rows"),
    ):
        fit = fit_map(cohort, 2, prior, max_iter=3)
        again = load_fit(save_fit(tmp_path / "fit.json", fit))
        for a, b in zip(
            jax.tree.leaves(tuple(fit)[:-2]), jax.tree.leaves(tuple(again)[:-2]), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        assert type(again.prior) is type(prior) and again.spec == fit.spec
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="not a fit"):
        load_fit(tmp_path / "bad.json")


def test_the_commands_in_turn(tmp_path, frame):
    """fit, posterior, compare, forecast on a file, with results that other tools open."""
    file, out = tmp_path / "labs.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    run = CliRunner()

    def call(*args, code=0):
        result = run.invoke(app, [str(a) for a in args])
        assert result.exit_code == code, result.output
        return result.output

    call("fit", file, "--states", 2, "--beta", 5, "--starts", 1, "--out", out)
    assert "is there already" in call("fit", file, "--beta", 5, "--out", out, code=2)
    call("posterior", out, "--draws", 60, "--warmup", 60, "--chains", 2)
    call("compare", out)
    call("forecast", out, "--horizon", 3)
    table = pd.read_csv(out / "forecast.csv")
    columns = ["id", "steps_ahead", "test", "hours_ahead", "mean", "low", "high"]
    assert list(table.columns) == columns
    assert (table["hours_ahead"] == 8 * table["steps_ahead"]).all()
    assert table["test"].nunique() == 3 and (table["low"] < table["high"]).all()
    assert 20 < table.loc[table["test"] == "MCH", "mean"].mean() < 40  # in units, not standardised
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64") == 4 and "exact zeros" in page
    assert "Laplace(β = 5)" in page and "filled by straight lines" in page
    assert len(pd.read_csv(out / "comparison.csv")) == 4
    assert load_posterior(out / "posterior.nc") is not None


def test_states_that_are_tests_have_their_names(tmp_path, frame):
    """--levels: C = I, and A.csv says which test speaks to which."""
    file, out = tmp_path / "labs.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    args = ["fit", file, "--levels", "--beta", 20, "--max-iter", 50, "--out", out]
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == 0, result.output
    A = pd.read_csv(out / "A.csv", index_col=0)
    assert list(A.columns) == list(A.index) == ["MCH", "MCHC", "MCV"]
    fit = load_fit(out / "fit.json")
    np.testing.assert_array_equal(fit.params.C, np.eye(3))
    np.testing.assert_array_equal(fit.params.A, A.to_numpy())
    assert fit.spec.hold == ("C",) and fit.n_iter <= 50


def test_the_command_line_says_what_is_wrong(tmp_path, frame):
    file, one = tmp_path / "labs.csv", tmp_path / "one.csv"
    frame.to_csv(file, index=False)
    frame[frame["id"] == "S000"].to_csv(one, index=False)
    run = CliRunner()
    for args, message in {
        ("fit", "none.csv"): "there is no file",
        ("fit", str(file), "--value", "result", "--kind", "long"): "no column 'result'",
        ("fit", str(file), "--tests", "MCH,XYZ"): "no value of test 'XYZ'",
        ("fit", str(file), "--panels", "999"): "no patient has 999 panels",
        ("fit", str(file), "--beta", "much"): "must be a number or auto",
        ("fit", str(file), "--states", "0"): "greater than or equal",
        ("fit", str(one)): "there are 1: give a number in --beta",
        ("table1", str(file)): "leave none to test",
        ("table1", "--states", "two"): "whole numbers with commas",
        ("posterior", str(tmp_path)): "holds no fit",
    }.items():
        out = () if args[0] == "posterior" else ("--out", str(tmp_path / "new"))
        result = run.invoke(app, [*args, *out])
        assert result.exit_code == 2 and message in result.output, result.output
        assert "Traceback" not in result.output
    assert run.invoke(app, ["--version"]).output == f"sparse-lds {version('sparse-lds')}\n"
    for command in ("demo", "fit", "path", "posterior", "compare", "forecast", "table1"):
        assert f"Example: sparse-lds {command}" in run.invoke(app, [command, "--help"]).output


def test_the_installed_command(tmp_path):
    """In a process of its own: an error is one line, without a traceback."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "sparse_lds.experiments.app.cli", "fit", "none.csv"],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.strip().count("\n") == 0
    assert done.stderr.startswith("sparse-lds: there is no file")
