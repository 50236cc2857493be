"""A fit that is interrupted and resumed ends with the same bits as one that is not."""

import json

import jax
import numpy as np
import pytest

from sparse_lds.inference import fit_map, regularization_path, select
from sparse_lds.inference.map import checkpoint
from sparse_lds.inference.map.checkpoint import Checkpoint
from sparse_lds.models import Cohort, Laplace


class Killed(BaseException):
    """What stands for the end of a process."""


def made(gaps=0.2, N=24) -> Cohort:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(N, 6, 2)).cumsum(1)
    y[rng.random(y.shape) < gaps] = np.nan
    return Cohort.from_array(y).standardize()


def same(one, two):
    for a, b in zip(one.params, two.params, strict=True):
        if a is not None:
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.objective, two.objective)
    assert (one.stop, one.steps, one.reason) == (two.stop, two.steps, two.reason)
    np.testing.assert_array_equal(one.restarts, two.restarts)


def killed_after(monkeypatch, n):
    """Have the process end after so many files are written."""
    write, files = checkpoint.write_whole, []

    def writes(*arguments):
        found = write(*arguments)
        files.append(found)
        if len(files) == n:
            raise Killed
        return found

    monkeypatch.setattr(checkpoint, "write_whole", writes)


@pytest.mark.parametrize(
    "options, files",
    [
        ({"accelerate": False, "max_iter": 120, "tol": 0.0}, 2),
        ({"max_iter": 2000, "tol": 0.0}, 2),
        ({"max_iter": 300, "tol": 0.0, "n_restarts": 2, "priors": "weak", "Q": "identity"}, 1),
    ],
    ids=["em", "accelerated", "restarts"],
)
def test_a_resumed_fit_has_the_same_bits(tmp_path, monkeypatch, options, files):
    cohort, prior = made(), Laplace(3.0)
    whole = fit_map(cohort, 2, prior, **options)
    saved = {"checkpoint": tmp_path / "fit", "checkpoint_every": 1}
    with monkeypatch.context() as patch:
        killed_after(patch, files)
        with pytest.raises(Killed):
            fit_map(cohort, 2, prior, **options, **saved)
    with np.load(tmp_path / "fit" / "fit.npz") as found:
        assert 0 < len(found["objective"]) < whole.n_iter
        assert json.loads(str(found["plain"]))["stop"] is None
    same(fit_map(cohort, 2, prior, **options, **saved), whole)
    same(fit_map(cohort, 2, prior, **options, **saved), whole)  # a fit that is done


def test_all_of_a_climb_is_saved(tmp_path, monkeypatch):
    kept, loaded = [], []
    keep, load = Checkpoint.keep, Checkpoint.load

    def watched_keep(self, climb, stop, restarts):
        kept.append(climb)
        keep(self, climb, stop, restarts)

    def watched_load(self, *arguments):
        loaded.append(load(self, *arguments))
        return loaded[-1]

    monkeypatch.setattr(Checkpoint, "keep", watched_keep)
    monkeypatch.setattr(Checkpoint, "load", watched_load)
    options = {"tol": 0.0, "Q": "identity", "checkpoint": tmp_path / "fit"}
    fit_map(made(), 2, Laplace(3.0), max_iter=200, **options)
    last = len(kept) - 1
    fit_map(made(), 2, Laplace(3.0), max_iter=210, **options)
    saved, found = kept[last], loaded[1].climb
    assert saved.signs is not None
    np.testing.assert_array_equal(found.signs, saved.signs)
    for name in ("objective", "steps", "next_em", "tried", "broken"):
        assert getattr(found, name) == getattr(saved, name), name
    both = [jax.tree.leaves((x.point, x.problem)) for x in (found, saved)]
    for one, other in zip(*both, strict=True):
        np.testing.assert_array_equal(one, other)


def test_more_iterations_go_on_from_the_last(tmp_path):
    options = {"accelerate": False, "tol": 0.0, "checkpoint": tmp_path / "fit"}
    fit_map(made(), 2, Laplace(3.0), max_iter=25, **options)
    found = fit_map(made(), 2, Laplace(3.0), max_iter=60, **options)
    same(found, fit_map(made(), 2, Laplace(3.0), max_iter=60, accelerate=False, tol=0.0))


def test_files_are_written_every_so_many_iterations(tmp_path, monkeypatch):
    seen = []
    write = checkpoint.write_whole
    monkeypatch.setattr(checkpoint, "write_whole", lambda *x: (seen.append(1), write(*x))[1])
    options = {"accelerate": False, "tol": 0.0, "max_iter": 200, "checkpoint": tmp_path / "fit"}
    fit_map(made(), 2, Laplace(3.0), checkpoint_every=100, **options)
    assert len(seen) == 2  # at 100 and at the end


def test_another_fit_in_the_folder_is_refused(tmp_path):
    options = {"accelerate": False, "tol": 0.0, "max_iter": 3, "checkpoint": tmp_path / "fit"}
    fit_map(made(), 2, Laplace(3.0), **options)
    for cohort, prior in ((made(), Laplace(4.0)), (made(gaps=0.3), Laplace(3.0))):
        with pytest.raises(ValueError, match="holds a run with another"):
            fit_map(cohort, 2, prior, **options)


def test_a_damaged_file_is_named(tmp_path):
    options = {"accelerate": False, "tol": 0.0, "max_iter": 3, "checkpoint": tmp_path / "fit"}
    fit_map(made(), 2, Laplace(3.0), **options)
    (tmp_path / "fit" / "fit.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="fit.npz' is damaged"):
        fit_map(made(), 2, Laplace(3.0), **options)


def test_paths_and_selections_resume(tmp_path, monkeypatch):
    cohort = made(gaps=0.0)
    options = {"max_iter": 15, "betas": [1.0, 5.0]}
    path = regularization_path(cohort, 2, **options)
    chosen = select(cohort, 2, n_folds=2, **options)
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            regularization_path(cohort, 2, checkpoint=tmp_path / "path", **options)
    resumed = regularization_path(cohort, 2, checkpoint=tmp_path / "path", **options)
    for one, two in zip(path.fits, resumed.fits, strict=True):
        same(one, two)
    with monkeypatch.context() as patch:
        killed_after(patch, 4)
        with pytest.raises(Killed):
            select(cohort, 2, n_folds=2, checkpoint=tmp_path / "select", **options)
    again = select(cohort, 2, n_folds=2, checkpoint=tmp_path / "select", **options)
    assert again.table.equals(chosen.table)
