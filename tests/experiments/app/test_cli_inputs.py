"""Inputs on the command line: read, binned, fitted, forecast under what-if, and what is refused in words."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.labs.input_grid import known_ahead

T, AHEAD = 14, 3


def call(*args, code=0):
    """What a command prints, which ends with this code."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def frame():
    """A wide table of 12 patients: a dose raises test a and not b; three more doses are planned; sex is constant."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(12):
        a, b = rng.normal(size=2)
        for t in range(T + AHEAD):
            dose = float(rng.random() < 0.4)
            a, b = 0.6 * a + 2.0 * dose + 0.3 * rng.normal(), 0.6 * b + 0.3 * rng.normal()
            seen = t < T
            row = {"id": f"p{n}", "time": 8 * t, "a": 10 + a if seen else np.nan}
            rows.append(row | {"b": 50 + b if seen else np.nan, "dose": dose, "sex": n % 2})
    return pd.DataFrame(rows)


def test_inputs_of_a_file_are_those_of_its_table(frame, tmp_path):
    frame.to_csv(tmp_path / "labs.csv", index=False)
    labs = read_labs(tmp_path / "labs.csv", inputs=["dose", "sex"])
    binned = bin_labs(labs, gaps="missing", inputs=["dose", "sex"], fill_inputs="sex=constant")
    cohort = binned.cohort
    assert cohort.channels == ("a", "b") and cohort.inputs == ("dose", "sex")
    for n in range(12):
        wanted = frame[frame["id"] == f"p{n}"]
        assert cohort.ids[n] == f"p{n}" and cohort.lengths[n] == T
        every = cohort.inputs_ahead(AHEAD)[n]
        np.testing.assert_array_equal(every, wanted[["dose", "sex"]].to_numpy(float))
    assert binned.constants == ("sex",)
    u = known_ahead(cohort, AHEAD + 1, binned.constants, {})
    assert np.isnan(u[:, AHEAD, 0]).all() and (u[:, AHEAD, 1] == np.arange(12) % 2).all()
    assert (known_ahead(cohort, 2, (), {"dose": 7.0})[..., 0] == 7).all()


def long_table(doses):
    """One patient with a test every 8 hours, and doses {time: value}."""
    rows = [("p", 8.0 * t, "a", float(t)) for t in range(6)]
    rows += [("p", t, "dose", x) for t, x in doses.items()]
    return labs_from_frame(pd.DataFrame(rows, columns=["id", "time", "test", "value"]))


def grid(doses, fill):
    options = {"min_panels": 1, "gaps": "missing", "inputs": ["dose"], "fill_inputs": fill}
    cohort = bin_labs(long_table(doses), **options).cohort
    return cohort.inputs_ahead(2)[0, :, 0].tolist()


def test_gaps_of_inputs_are_filled_as_said():
    doses = {-9.0: 4.0, 8.0: 1.0, 9.0: 3.0, 24.0: 5.0, 48.0: 6.0}  # two in one bin: their mean
    nan = pytest.approx(np.nan, nan_ok=True)
    assert grid(doses, "zero") == [0, 2, 0, 5, 0, 0, 6, nan]
    assert grid(doses, "forward") == [4, 2, 2, 5, 5, 5, 6, nan]
    assert grid({0.0: 3.0}, "constant")[:6] == [3] * 6
    with pytest.raises(ValueError, match="sequence 'p', step 0, input 'dose' is missing"):
        grid(doses, "")
    with pytest.raises(ValueError, match="said to be constant, and id 'p' has 1 and 6"):
        grid(doses | {-9.0: 1.0}, "constant")
    with pytest.raises(ValueError, match="input 'dose' is missing"):
        grid({8.0: 1.0}, "forward")  # nothing to carry to the first step


def test_fit_and_forecast(frame, tmp_path):
    frame.to_csv(tmp_path / "labs.csv", index=False)
    out = tmp_path / "out"
    model = ["--own-levels", "no", "--noise", "diagonal", "--beta", 5, "--max-iter", 100]
    inputs = ["--inputs", "dose,sex", "--fill-inputs", "sex=constant"]
    said = call("fit", tmp_path / "labs.csv", *model, *inputs, "--out", out)
    assert "inputs: dose, sex (constant)" in said
    B = pd.read_csv(out / "B.csv", index_col=0)
    effect = B["dose"] * frame[["a", "b"]].std(ddof=0)  # in the units of the file
    error = 0.3 / np.sqrt(12 * T * 0.4 * 0.6)  # the standard error of a regression on the dose
    assert abs(effect["a"] - 2.0) < 6 * error and abs(effect["b"]) < 4 * error
    assert (B["intercept"] == 0).all()
    D = pd.read_csv(out / "D.csv", index_col=0)
    assert (D[["dose", "sex"]] == 0).all(axis=None) and (D["intercept"] != 0).any()
    call("forecast", out, "--horizon", 3)
    said = call("forecast", out, "--horizon", 4, "--force", code=2)
    assert "needs its input 'dose', which is not known" in said
    found = []
    for dose in (0, 1):
        call("forecast", out, "--horizon", 1, "--force", "--what-if", f"dose={dose}")
        table = pd.read_csv(out / "forecast.csv")
        found.append(table[table["test"] == "a"]["median"].to_numpy())
    np.testing.assert_allclose(found[1] - found[0], 2.0, atol=0.4)  # in the units of the file
    assert "the inputs are dose, sex, intercept" in call(
        "forecast", out, "--what-if", "x=1", "--force", code=2
    )
    assert "write it as" in call("forecast", out, "--what-if", "dose", "--force", code=2)


def test_what_is_refused(frame, tmp_path):
    file = tmp_path / "labs.csv"
    frame.to_csv(file, index=False)
    fit = ["fit", file, "--out", tmp_path / "out", "--beta", 1, "--own-levels", "no"]
    fit += ["--noise", "diagonal"]
    for options, words in (
        (["--inputs", "x"], "--inputs names 'x'; the file has a, b, dose"),
        (["--inputs", "dose,sex"], "input 'intercept' is a combination of sex"),
        (["--inputs", "dose", "--fill-inputs", "x=zero"], "--fill-inputs names 'x'"),
        (["--inputs", "dose", "--fill-inputs", "mean"], "must be one of zero, forward, constant"),
        (["--inputs", "a,b,dose,sex"], "no test is left"),
        (["--intercepts", "x"], "it must be one of emission, state, both"),
    ):
        table = frame.assign(sex=1) if options[-1] == "dose,sex" else frame
        table.to_csv(file, index=False)
        options = [*options, "--intercepts", "emission"] if table is not frame else options
        assert words in call(*fit, *options, code=2), options


def test_files_without_inputs_say_nothing_of_them(frame, tmp_path):
    frame.drop(columns=["dose", "sex"]).dropna().to_csv(tmp_path / "labs.csv", index=False)
    out = tmp_path / "out"
    call("fit", tmp_path / "labs.csv", "--beta", 5, "--own-levels", "no", "--noise", "diagonal",
         "--max-iter", 5, "--out", out)  # fmt: skip
    options = json.loads((out / "source.json").read_text())["options"]
    assert not {"inputs", "fill_inputs", "intercepts"} & options.keys()
    assert not (out / "B.csv").exists() and "beta_B" not in (out / "fit.json").read_text()


def test_the_whole_way_goes_on_where_inputs_to_come_are_not_known(frame, tmp_path):
    frame[frame["time"] < 8 * T].to_csv(tmp_path / "labs.csv", index=False)
    out = tmp_path / "out"
    said = call(
        "run", tmp_path / "labs.csv", "--inputs", "dose", "--beta", "3", "--own-levels", "no", "--noise", "diagonal",
        "--draws", "60", "--warmup", "100", "--chains", "2", "--out", out,
    )  # fmt: skip
    assert "no forecasts: a forecast of step 14 of sequence 'p0' needs its input 'dose'" in said
    assert "--what-if NAME=VALUE" in said and "Of the inputs:" in said
    table = pd.read_csv(out / "comparison_inputs.csv", index_col=["state", "input"])
    assert table.loc[("a", "dose"), "verdict"] == "supported"
    assert (out / "report.html").exists() and not (out / "forecast.csv").exists()
