"""The command line: its commands in turn, the files that they write, and its error messages."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.app.fitting import Model
from sparse_lds.experiments.saving import load_fit, load_posterior
from sparse_lds.inference import Constraints
from sparse_lds.inference.selection.held_out import RULES


def call(*args, code=0):
    """What a command prints, which ends with this code."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def ran(tmp_path_factory, frame):
    """The folder that `run` fills, and what it printed."""
    folder = tmp_path_factory.mktemp("run")
    frame.to_csv(folder / "labs.csv", index=False)
    out = folder / "out"
    fit = ["--states", 2, "--own-levels", "no", "--beta", 5, "--starts", 1]
    sampling = ["--draws", 60, "--warmup", 60, "--chains", 2, "--horizon", 3]
    return out, call("run", folder / "labs.csv", *fit, *sampling, "--out", out)


def test_run_goes_the_whole_way(ran):
    """Results that other tools open, a report, and a record of the command."""
    out, said = ran
    assert "empty, and left missing" in said and "report.html: open it in a browser" in said
    table = pd.read_csv(out / "forecast.csv")
    columns = ["id", "steps_ahead", "test", "hours_ahead", "last_time", "time"]
    columns += ["median", "low", "high"]
    assert list(table.columns) == columns
    assert (table["hours_ahead"] == 8 * table["steps_ahead"]).all()
    assert table["test"].nunique() == 3 and (table["low"] < table["high"]).all()
    assert (
        20 < table.loc[table["test"] == "MCH", "median"].mean() < 40
    )  # in units, not standardised
    page = (out / "report.html").read_text()
    assert page.count("data:image/svg+xml") > len(list(out.glob("*.png"))) >= 6
    assert "Laplace(β = 5)" in page and "filled by straight lines" not in page
    assert "2 hidden states" in page and "β = 5 was given, and not chosen" in page
    assert len(pd.read_csv(out / "links.csv")) == 4 and (out / "links.graphml").exists()
    assert len(pd.read_csv(out / "comparison.csv")) == 4
    assert load_posterior(out / "posterior.nc") is not None
    (command,) = (out / "commands.txt").read_text().splitlines()
    assert command.startswith("sparse-lds run ") and "--states 2" in command
    assert "--beta 5" in command and "--warmup 60" in command and "--epsilon" not in command


def test_the_steps_say_what_run_says(ran):
    """On the folder of a run each step gives the same again; what was there is kept unless forced."""
    out, _ = ran
    assert "is there already" in call("fit", out.parent / "labs.csv", "--out", out, code=2)
    before = {name: (out / name).read_text() for name in ("comparison.csv", "forecast.csv")}
    for command in ("compare", "forecast"):
        assert "is there already" in call(command, out, code=2)
        call(command, out, *(["--horizon", 3] if command == "forecast" else []), "--force")
    assert before == {name: (out / name).read_text() for name in before}
    call("posterior", out, "--draws", 20, "--warmup", 20, "--chains", 2, "--free", "A", "--force")
    assert (out / "skill.csv").exists() and not (out / "comparison.csv").exists()
    assert load_posterior(out / "posterior.nc")["posterior"].attrs["conditional"] == 1
    assert len((out / "commands.txt").read_text().splitlines()) == 4


def fitted(tmp_path, frame, *options):
    """The folder of a fit to the frame, and what was printed."""
    file, out = tmp_path / "labs.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    args = ["fit", file, "--max-iter", 50, "--out", out, *options]
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == 0, result.output
    return out, result.output


def untimed(said):
    """The lines printed, without the seconds before them."""
    return [line.split("s] ", 1)[-1] for line in said.splitlines()]


def test_a_state_for_each_test_is_the_default(tmp_path, frame):
    """C = I, A.csv says which test speaks to which, and the skill is said before all else of the fit."""
    options = ("--own-levels", "no", "--noise", "full", "--beta", 20)
    out, said = fitted(tmp_path, frame, *options)
    A = pd.read_csv(out / "A.csv", index_col=0)
    assert list(A.columns) == list(A.index) == ["MCH", "MCHC", "MCV"]
    fit = load_fit(out / "fit.json")
    np.testing.assert_array_equal(fit.params.C, np.eye(3))
    np.testing.assert_array_equal(fit.params.A, A.to_numpy())
    assert fit.constraints == Constraints.levels() and fit.n_iter <= 50
    assert fit.prior.center_of(3).tolist() == np.eye(3).tolist()  # pulled to persistence
    assert set(fit.priors) == {"Q", "R", "pi1", "V1"}

    lines, skill = untimed(said), (out / "skill.txt").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("choosing")) + 1
    assert "among 1 structure, β = 20" in lines[first - 1]
    assert lines[first] == skill[0]
    assert lines[first].startswith(("Forecasts of held-out patients", "This model"))
    table = pd.read_csv(out / "skill.csv", index_col="forecaster")
    rows = ["this model", "last value", "channel mean", "local level", "VAR(1)"]
    assert list(table.index) == rows and np.isfinite(table["error"]).all()
    assert f"error {table.loc['this model', 'error']:.3f} against" in skill[0]
    selection = pd.read_csv(out / "selection.csv")
    assert selection["beta"].tolist() == [20.0] and len(selection) == 1
    shares = pd.read_csv(out / "variance.csv", index_col="test")
    assert list(shares.index) == ["MCH", "MCHC", "MCV"]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert "patients' own levels" not in shares  # the model has none
    assert "chosen by best_error, the least held-out error" in said


def test_structures_are_chosen_among_what_the_options_leave_open(tmp_path, frame):
    options = ("--own-levels", "yes", "--noise", "auto", "--beta", 20, "--levels")
    options += ("--pull", "off-diagonal", "--rule", "best_density")
    out, said = fitted(tmp_path, frame, *options)
    selection = pd.read_csv(out / "selection.csv")
    names = {"levels, own levels", "levels, own levels, Q diagonal"}
    assert set(selection["candidate"]) == names and len(selection) == 2
    best = selection.loc[selection["density"].idxmax(), "candidate"]
    assert f"best_density, {RULES['best_density'].__doc__}: {best}, β = 20" in said
    fit = load_fit(out / "fit.json")
    assert fit.constraints == Constraints.levels(own=True, independent="diagonal" in best)
    assert fit.n_states == 3 and fit.params.A.shape == (6, 6)
    assert not fit.prior.penalised(3).diagonal().any()
    assert pd.read_csv(out / "A.csv", index_col=0).shape == (3, 3)
    shares = pd.read_csv(out / "variance.csv", index_col="test")
    assert (shares["patients' own levels"] > 0).all()
    result = CliRunner().invoke(app, ["forecast", str(out), "--horizon", "2"])
    assert result.exit_code == 0, result.output


def test_one_patient_is_fitted_but_not_judged(tmp_path, frame):
    out, said = fitted(
        tmp_path,
        frame[frame["id"] == "S000"],
        "--beta",
        5,
        "--own-levels",
        "no",
        "--priors",
        "none",
    )
    assert "there is one patient, and none to hold out" in said
    assert not (out / "skill.txt").exists() and not (out / "selection.csv").exists()
    assert load_fit(out / "fit.json").priors == {}


def test_a_model_asks_for_the_structures_of_its_options(small_cohort):
    cohort = small_cohort()
    for model, names in (
        (Model(), ["levels, Q diagonal", "levels"]),
        (Model(noise="full"), ["levels"]),
        (Model(3), ["3 hidden states"]),
    ):
        found = [c.name for c in model.candidates(cohort)]
        own = [c for c in found if "own levels" in c]
        assert [c for c in found if c not in own] == names and len(own) == len(names)
        alone = model._replace(own_levels="no").candidates(cohort)
        assert [c.name for c in alone] == names
        assert not any(c.constraints.own_levels for c in alone)
    assert Model().options == {"priors": "weak"} and Model(priors="none").options == {
        "priors": None
    }


def skewed(first):
    """Two positive and skewed tests of a few patients, each 30 days; `first` + days is the time."""
    rng = np.random.default_rng(5)
    rows = [
        (f"p{n}", 30 * t, test, np.exp(rng.normal(n % 3 - 1, 1)))
        for n in range(8)
        for t in range(10 + n % 3)
        for test in ("CREA", "CRP")
    ]
    frame = pd.DataFrame(rows, columns=["id", "time", "test", "value"])
    return frame.assign(time=first + frame["time"] * (1 if first == 0 else pd.Timedelta(days=1)))


@pytest.mark.parametrize("first", [0, pd.Timestamp("2020-01-01")], ids=["days", "dates"])
def test_logarithms_keep_forecasts_positive_and_times_are_the_files(tmp_path, first):
    """With --log no bound is negative, without it some are; later commands know of log, step and unit."""
    file, run = tmp_path / "labs.csv", CliRunner()
    skewed(first).to_csv(file, index=False)
    lowest = {}
    for log in ("", "CREA", "all"):
        out = tmp_path / f"out {log}"
        options = ["--time-unit", "d", "--step", "30d", "--log", log, "--out", out]
        kept = ["--own-levels", "no", "--noise", "full"]
        fit = ["fit", file, *kept, "--beta", 1, "--max-iter", 30, *options]
        for args in (fit, ["forecast", out, "--horizon", 2]):
            result = run.invoke(app, [str(a) for a in args])
            assert result.exit_code == 0, result.output
            assert "bins of 30 days" in result.output and "hours" not in result.output
            assert ("logarithms are taken of CREA" in result.output) == bool(log)
        table = pd.read_csv(out / "forecast.csv")
        assert ((table["low"] < table["median"]) & (table["median"] < table["high"])).all()
        lowest[log] = table.groupby("test")["low"].min()
        last = skewed(first).groupby("id")["time"].max()[table["id"]].reset_index(drop=True)
        later = last + 30 * table["steps_ahead"] * (pd.Timedelta(days=1) if first else 1)
        for column, wanted in (("last_time", last), ("time", later)):
            found = pd.to_datetime(table[column]) if first else table[column]
            assert (found == wanted).all()
    assert (lowest[""] < 0).all() and (lowest["all"] > 0).all()
    assert lowest["CREA"]["CREA"] > 0 > lowest["CREA"]["CRP"]


def test_folders_of_earlier_versions_are_read(tmp_path, frame):
    """A source.json of 0.1 has hours, and nothing of steps, units and logarithms; --hours still works."""
    file, out = tmp_path / "labs.csv", tmp_path / "out"
    frame.to_csv(file, index=False)
    run = CliRunner()
    fit = ["fit", file, "--states", 1, "--own-levels", "no", "--beta", 5, "--max-iter", 5]
    fit += ["--starts", 1, "--hours", 12, "--out", out]
    result = run.invoke(app, [str(a) for a in fit])
    assert result.exit_code == 0 and "bins of 12 hours" in result.output, result.output
    source = json.loads((out / "source.json").read_text())
    for name in ("step", "time_unit", "log"):
        source["options"].pop(name)
    (out / "source.json").write_text(json.dumps(source))
    result = run.invoke(app, ["forecast", str(out), "--horizon", "2"])
    assert result.exit_code == 0 and "2 steps of 12 hours ahead" in result.output, result.output


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
        ("fit", str(file), "--step", "1d", "--hours", "24"): "step is '1d' and hours is 24.0",
        ("fit", str(file), "--step", "5m"): "write min for minutes",
        ("path", str(file), "--time-unit", "eon"): "time_unit is 'eon'",
        ("table1", "--log", "MCH,CRP"): "--log names 'CRP'; the tests are MCH, MCHC, MCV",
        ("fit", str(file), "--beta", "much"): "must be a number or auto",
        ("fit", str(file), "--states", "0"): "greater than or equal",
        ("fit", str(one)): "there are 1: give a number in --beta",
        ("fit", str(file), "--pull", "up"): "pull is 'up'; it may be 'zero', 'off-diagonal'",
        ("fit", str(file), "--own-levels", "maybe"): "--own-levels is 'maybe'; it must be one of",
        ("fit", str(file), "--noise", "pink"): "--noise is 'pink'; it must be one of auto, diag",
        ("fit", str(file), "--noise", "full", "--states", "2"): "not --states (Q = I)",
        ("fit", str(file), "--rule", "best"): "rule is 'best'; it may be 'best_density'",
        ("fit", str(file), "--priors", "strong"): "--priors is 'strong'; it must be one of weak",
        ("fit", str(file), "--levels", "--states", "2"): "--levels is given, and --states 2",
        ("fit", str(file), "--starts", "5"): "--starts is 5; it is for --states",
        ("run", str(file), "--starts", "5"): "--starts is 5; it is for --states",
        ("run", str(file), "--prior", "strong"): "--prior is 'strong'; it must be one of unknown",
        ("run", str(file), "--beta", "much"): "must be a number or auto",
        ("path", str(file), "--priors", "strong"): "--priors is 'strong'",
        ("table1", str(file)): "leave none to test",
        ("table1", "--states", "two"): "whole numbers with commas",
        ("posterior", str(tmp_path)): "holds no fit",
    }.items():
        out = () if args[0] == "posterior" else ("--out", str(tmp_path / "new"))
        result = run.invoke(app, [*args, *out])
        assert result.exit_code == 2 and message in result.output, result.output
        assert "Traceback" not in result.output
        errors = [x for x in result.output.splitlines() if x.startswith("sparse-lds: ")]
        assert len(errors) == 1 or "greater than or equal" in message  # typer's own
        assert not (tmp_path / "new" / "fit.json").exists()
    assert run.invoke(app, ["--version"]).output == f"sparse-lds {version('sparse-lds')}\n"
    for command in ("run", "fit", "path", "table1"):
        said = run.invoke(app, [command, "--help"]).output
        assert all(name in said for name in ("--step", "--time-unit", "--log", "--panels"))
        assert "--hours" not in said and "--options" not in said
    for command in ("run", "demo", "fit", "path", "posterior", "compare", "forecast", "table1"):
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


def test_progress_is_lines_in_a_log(monkeypatch, capsys):
    """What would overwrite a line becomes a line; other text stays as it is."""
    from sparse_lds.experiments.app import application

    stream = application._Lines(sys.stdout)
    for text in ("\rposterior: 10%", "\r", "an error", "\n", "\rposterior: 20%"):
        stream.write(text)
    assert capsys.readouterr().out == "posterior: 10%\nan error\nposterior: 20%\n"


def test_the_help_fits_a_screen_and_starts_with_what_most_want():
    said = CliRunner().invoke(app, ["--help"]).output  # of 80 columns
    assert len(said.splitlines()) <= 32
    assert said.index(" run ") < said.index(" demo ") < said.index(" fit ") < said.index(" table1 ")
