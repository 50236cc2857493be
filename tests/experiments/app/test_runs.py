"""The files of a run belong together: killed, edited, damaged or mixed, they are never taken for another's."""

import json
import os
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sparse_lds.experiments.app import fitting, runs
from sparse_lds.experiments.app.cli import app
from sparse_lds.inference import Constraints, fit_map
from sparse_lds.models import Laplace, files

FIT = ("--beta", "5", "--own-levels", "no")
_fits = {}  # number of patients -> fit


def quick(cohort, folder, model, **_):
    """The job of `fit` without its choices: one iteration, and a skill.txt that is made up."""
    n = len(cohort)
    if n not in _fits:
        options = {"constraints": Constraints.levels(), "accelerate": False, "max_iter": 1}
        _fits[n] = fit_map(cohort, cohort.n_channels, Laplace(5.0), **options)
    files.write_whole(folder / "skill.txt", f"of {n} patients\n")
    fitting._write_fit(_fits[n], cohort, folder)


@pytest.fixture(scope="module", autouse=True)
def fits_are_quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "fit_job", quick)
        yield


def call(*args):
    """Run a command; return its exit code and what it printed."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert "Traceback" not in result.output
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, frame):
    """A folder with a fit, its data beside it."""
    home = tmp_path_factory.mktemp("run")
    frame.to_csv(home / "labs.csv", index=False)
    before = os.umask(0o077)
    try:
        code, said = call("fit", home / "labs.csv", *FIT, "--out", home / "out")
    finally:
        os.umask(before)
    assert code == 0, said
    return home


@pytest.fixture
def folder(fitted, tmp_path):
    """A copy of the fit that a test may damage."""
    return shutil.copytree(fitted / "out", tmp_path / "out")


def test_a_fit_killed_at_any_write_leaves_the_earlier_one_or_none(
    folder, fitted, frame, monkeypatch
):
    """With other data and --force: the folder then holds the old fit whole, the new one whole, or says so."""
    other = fitted / "other.csv"
    frame[frame["id"] != "S000"].to_csv(other, index=False)
    old, moved = (folder / "source.json").read_bytes(), [0]
    real = {"whole": os.replace, "moved": runs.Path.replace}

    class Killed(BaseException):
        pass

    def dying(kind, at):
        def act(*args):
            if moved[0] == at:
                raise Killed
            moved[0] += 1
            return real[kind](*args)

        return act

    outcomes = set()
    for at in range(40):
        moved[0] = 0
        copy = shutil.copytree(folder, folder.parent / f"at{at}")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", dying("whole", at))
            patch.setattr(runs.Path, "replace", dying("moved", at))
            patch.setattr(shutil, "rmtree", lambda *a, **k: None)  # a killed process clears nothing
            try:
                ended = call("fit", other, *FIT, "--out", copy, "--force")[0] == 0
            except Killed:
                ended = False
        code, said = call("forecast", copy, "--horizon", 1)
        source = (copy / "source.json").read_bytes() if (copy / "source.json").exists() else b""
        ids = (
            {line.split(",")[0] for line in (copy / "forecast.csv").read_text().splitlines()[1:]}
            if code == 0
            else set()
        )
        if source == old:
            outcomes.add("old")
            assert code == 0 and "S000" in ids
        elif source:
            outcomes.add("new")
            assert code == 0 and "S000" not in ids
        else:
            assert code == 2 and "holds no fit" in said
            if "none" not in outcomes:  # the same command goes on, without --force
                again = shutil.copytree(copy, folder.parent / "again")
                assert call("fit", other, *FIT, "--out", again)[0] == 0
                assert call("forecast", again, "--horizon", 1)[0] == 0
            outcomes.add("none")
        if ended:
            break
    assert outcomes == {"old", "new", "none"}
    assert list(copy.glob(".*"))  # what a kill leaves behind, the next run clears away
    assert call("fit", other, *FIT, "--out", copy, "--force")[0] == 0 and not list(copy.glob(".*"))


@pytest.mark.parametrize("name", ["fit.json", "params.json", "A.csv", "skill.txt"])
def test_an_edited_or_missing_file_is_noticed(folder, name):
    file = folder / name
    text = file.read_text()
    for damage in (text + " ", "", None):
        file.unlink() if damage is None else file.write_text(damage)
        for command in ("forecast", "posterior", "compare"):
            code, said = call(command, folder)
            assert code == 2 and name in said and "fit again" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"options": 3, "cohort": "a"}',
        '{"options": {"datum": 1}, "cohort": ""}',
        "\x00",
    ],
)
def test_a_damaged_source_is_named(folder, text):
    (folder / "source.json").write_text(text)
    code, said = call("forecast", folder)
    assert code == 2 and "source.json" in said and "--force" in said


def test_two_commands_in_one_folder(folder, fitted):
    """One at work, the other says so in a line; when it has ended the other may."""
    runs_there = os.open(folder, os.O_RDONLY)
    fcntl = pytest.importorskip("fcntl")
    fcntl.flock(runs_there, fcntl.LOCK_EX)
    for args in (
        ("forecast", folder),
        ("fit", fitted / "labs.csv", *FIT, "--out", folder, "--force"),
    ):
        code, said = call(*args)
        assert code == 2 and said.splitlines()[-1].startswith(
            "sparse-lds: another sparse-lds command"
        )
    os.close(runs_there)
    assert call("forecast", folder, "--horizon", 1)[0] == 0


def test_files_have_the_users_umask(fitted):
    """The fit was run with umask 077: nobody else may read."""
    for file in (fitted / "out").rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_a_full_disk_leaves_what_was_there(folder, monkeypatch):
    """Every result is written whole or not at all: the write fails half way, and the rerun is not blocked."""
    assert call("forecast", folder, "--horizon", 1)[0] == 0
    before = (folder / "forecast.csv").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    for there in (True, False):
        if not there:
            (folder / "forecast.csv").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fsync", full)
            code, said = call("forecast", folder, "--horizon", 2, "--force")
        assert code == 2 and "No space left" in said and "forecast.csv" in said
        assert (folder / "forecast.csv").exists() == there
        assert not there or (folder / "forecast.csv").read_bytes() == before
        assert not list(folder.glob(".*"))
    assert call("forecast", folder, "--horizon", 2)[0] == 0


def test_horizons_and_seeds_have_bounds(folder):
    code, said = call("forecast", folder, "--horizon", 10**6)
    assert code == 2 and "horizon is 1000000" in said and "rows" in said
    for seed in (2**70, -1):
        code, said = call("forecast", folder, "--seed", seed)
        assert code == 2 and "--seed" in said


def test_an_unexpected_error_is_one_line(folder, monkeypatch):
    def broken(*args, **kwargs):
        raise IndexError("17")

    monkeypatch.setattr("sparse_lds.experiments.app.jobs.forecast_table", broken)
    code, said = call("forecast", folder)
    assert code == 1 and said.splitlines()[-1].startswith(
        "sparse-lds: a defect of sparse-lds, IndexError: 17"
    )


def test_fits_of_another_time_are_refused(folder, fitted):
    """A fit.json of another run beside this source.json, as a killed fit of earlier versions left it."""
    fit = json.loads((folder / "fit.json").read_text())
    fit["params"]["A"] = (np.array(fit["params"]["A"]) * 0.5).tolist()
    (folder / "fit.json").write_text(json.dumps(fit, indent=1))
    code, said = call("forecast", folder)
    assert code == 2 and "edited, or is of another fit" in said


def test_anonymous_results_hold_neither_ids_nor_paths(fitted, tmp_path):
    """The folder can be given away: ids and the path of the data are in the key beside it, which is its owner's."""
    out, key = tmp_path / "out", tmp_path / "out.key.json"
    assert call("fit", fitted / "labs.csv", *FIT, "--anonymous", "--out", out)[0] == 0
    assert call("forecast", out, "--horizon", 1)[0] == 0
    for file in out.rglob("*"):
        text = file.read_text()
        assert "S00" not in text and str(fitted) not in text, file
    found = json.loads(key.read_text())
    plain = shutil.copytree(fitted / "out", tmp_path / "plain")
    assert call("forecast", plain, "--horizon", 1)[0] == 0
    named, numbered = (pd.read_csv(f / "forecast.csv") for f in (plain, out))
    pd.testing.assert_frame_equal(numbered.assign(id=numbered["id"].map(found["ids"])), named)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.unlink()
    code, said = call("forecast", out, "--force")
    assert code == 2 and "anonymous, and their key" in said


def test_names_that_are_formulas_stay_text(frame, tmp_path):
    """In spreadsheets: a quote before = + - @; as a number, a minus stays a minus."""
    names = {"S000": "=1+1", "S001": "+cmd", "S002": "@SUM(1)", "S003": "-2+3", "S004": "-7"}
    odd = frame.assign(id=frame["id"].replace(names), test=frame["test"].replace("MCH", "=$MCH$"))
    odd.to_csv(tmp_path / "labs.csv", index=False)
    out = tmp_path / "out"
    assert call("fit", tmp_path / "labs.csv", *FIT, "--out", out)[0] == 0
    assert call("forecast", out, "--horizon", 1)[0] == 0
    for file in out.glob("*.csv"):
        for cell in np.ravel(pd.read_csv(file, header=None, dtype=str).fillna("")):
            assert cell[:1] not in ("=", "+", "@") and not cell.startswith("-2+"), (file, cell)
    ids = set(pd.read_csv(out / "forecast.csv", dtype=str)["id"])
    kept = [i for i in names.values() if i.lstrip("-") != "7" and f"'{i}" in ids]
    assert len(kept) >= 3 and ids & {"-7", "S005"}
