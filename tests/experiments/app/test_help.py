"""Help fits on a screen, options have Python's names too, shells complete them, and none is ignored in silence."""

import inspect
import os
import subprocess
import sys

import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.app.help import COMMON, as_named_here
from sparse_lds.experiments.labs import bin_labs, read_labs
from sparse_lds.inference import fit_map, regularization_path, sample_posterior

COMMANDS = get_command(app).commands


def said(*args, code=0):
    """What a command prints in a terminal of 80 columns, which ends with this code."""
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "80"})
    assert result.exit_code == code, result.output
    return result.output


def test_the_list_of_commands_fits_and_begins_with_what_most_people_want():
    lines = said("--help").splitlines()
    assert len(lines) <= 30
    first = next(i for i, line in enumerate(lines) if "│ run" in line)
    assert first < 16 and all(any(f"│ {name} " in line for line in lines) for name in COMMANDS)
    assert "--install-completion" in said("--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_a_screen_and_help_all_has_every_option(name):
    short, whole = said(name, "--help"), said(name, "--help-all")
    assert len(short.splitlines()) <= 50
    options = [p for p in COMMANDS[name].params if p.param_type_name == "option" and not p.hidden]
    for option in options:
        assert option.opts[0] in whole
        if option.name in COMMON:
            assert option.opts[0] in short
    assert len(whole.splitlines()) >= len(short.splitlines()) - 3
    assert said(name, "--help") == short  # the one does not change the other


def test_names_of_python_are_taken():
    """Every argument of the functions behind a command that the command has."""
    here = {name: {p.name for p in command.params} for name, command in COMMANDS.items()}
    pairs = {
        "posterior": (sample_posterior, {"num_samples", "num_warmup", "num_chains", "free", "prior", "target_accept"}),
        "fit": (fit_map, {"n_states", "n_restarts", "max_iter", "priors", "seed"}),
        "path": (regularization_path, {"n_betas", "n_states"}),
        "run": (bin_labs, {"step", "min_panels", "gaps", "any_times"}),
        "table1": (read_labs, {"kind", "id", "time", "test", "value", "tests", "time_unit"}),
    }  # fmt: skip
    for command, (function, names) in pairs.items():
        assert names <= set(inspect.signature(function).parameters)
        for name in names:
            assert as_named_here(name).replace("-", "_") in here[command], name
    for option in ("--num-samples", "--num_samples", "--draws"):
        assert "there is no file" in said("run", "none.csv", option, 5, code=2)
    assert "No such option" in said("run", "none.csv", "--samples", 5, code=2)


def test_options_that_would_be_ignored_are_errors(tmp_path, frame):
    file = tmp_path / "labs.csv"
    frame.to_csv(file, index=False)
    wide = tmp_path / "wide.csv"
    frame.pivot_table(index=["id", "time"], columns="test", values="value").reset_index().to_csv(
        wide, index=False
    )
    out = ("--out", tmp_path / "out")
    for args, words in {
        ("fit", file, "--levels", "--states", 2): "give one of them",
        ("path", file, "--levels", "--states", 2): "give one of them",
        ("fit", file, "--starts", 3): "it is for --states",
        ("fit", file, "--states", 2, "--noise", "full"): "it is for states that are tests",
        ("fit", file, "--states", 2, "--own-levels", "no", "--beta", 5, "--rule", "one_se"): "nothing to choose",
        ("fit", file, "--test", "name"): "looks like a wide table",
        ("fit", wide, "--value", "result"): "looks like a wide table",
        ("path", file, "--anonymous"): "--anonymous is given, and would be ignored",
        ("table1", "synthetic", "--time-unit", "d"): "--time-unit is given, and would be ignored",
    }.items():  # fmt: skip
        assert words in said(*args, *out, code=2), args


def test_shells_complete_options_and_values():
    def completed(words):
        line = words.split(" ")
        env = {"_SPARSE_LDS_COMPLETE": "complete_bash", "COMP_WORDS": words}
        done = subprocess.run(
            [sys.executable, "-c", "from sparse_lds.experiments.app.cli import app; app(prog_name='sparse-lds')"],
            env={**os.environ, **env, "COMP_CWORD": str(len(line) - 1)}, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.split()

    assert completed("sparse-lds fit --rule b") == ["best_error", "best_density", "best_bic"]
    assert "--own-levels" in completed("sparse-lds fit --o")


def test_progress_in_a_log_says_how_much_time_is_left():
    """With the progress bars that the package uses, imported before, as the command line does."""
    code = """
from tqdm.auto import tqdm
from sparse_lds.experiments.app.application import progress_in_lines
progress_in_lines()
for _ in tqdm(range(3), desc="posterior"):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "posterior: 100%, 3 of 3, 00:00 gone, 00:00 left"


def test_bins_are_as_wide_as_the_usual_time_between_measurements(tmp_path, frame):
    """Unless a step is given; the built-in labs keep their 8 hours."""
    from sparse_lds.experiments.app.options import DataOptions
    from sparse_lds.experiments.app.workspace import load_cohort

    file = tmp_path / "labs.csv"
    frame.to_csv(file, index=False)
    assert load_cohort(file, DataOptions()).step == "8 hours"
    rows = [(k, 30 * t, test, k + t % 3) for k in range(3) for t in range(12) for test in "ab"]
    pd.DataFrame(rows, columns=["id", "time", "test", "value"]).to_csv(file, index=False)
    assert load_cohort(file, DataOptions(time_unit="d")).step == "30 days"
    assert load_cohort(file, DataOptions(time_unit="d", step="10d")).step == "10 days"
