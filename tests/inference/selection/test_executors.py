"""Work that is handed to an executor, threads or a Dask cluster, gives the same tables, bit for bit."""

import logging
import pickle
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from sparse_lds.experiments.grid import Plan, run_cells
from sparse_lds.inference import select
from sparse_lds.inference.selection import cross_validation
from sparse_lds.models import Cohort, open_cohort, write_cohort

OPTIONS = {"n_betas": 3, "n_folds": 2, "max_iter": 12, "priors": "weak"}


def made(N=30) -> Cohort:
    rng = np.random.default_rng(0)
    return Cohort.from_array(rng.normal(size=(N, 6, 2)).cumsum(1)).standardize()


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


def same(one, two):
    assert one.table.equals(two.table)
    for a, b in zip(one.held_out, two.held_out, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(one.fits, two.fits, strict=True):
        for x, y in zip(a.params, b.params, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of Dask's own
def test_a_selection_on_a_dask_cluster_is_the_local_one(dask):
    same(select(made(), 2, executor=dask, **OPTIONS), select(made(), 2, **OPTIONS))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_cells_of_table_1_on_a_dask_cluster_are_the_local_ones(dask, tmp_path):
    plan = Plan(
        states=(2,), sizes=(8,), n_test=10, repetitions=2, n_starts=1, n_betas=2, max_iter=8
    )
    here, _ = run_cells(made(), tmp_path / "here", plan, workers=1)
    there, _ = run_cells(made(), tmp_path / "there", plan, executor=dask)
    for found in (here, there):
        for cell in found.values():
            cell.pop("seconds")
    assert here == there


def test_cohorts_on_disk_go_to_workers_too(tmp_path):
    write_cohort(made(), tmp_path / "cohort", sequences=7)
    cohort = pickle.loads(pickle.dumps(open_cohort(tmp_path / "cohort")))
    assert len(pickle.loads(pickle.dumps(cohort.standardize()))) == 30
    with ThreadPoolExecutor(2) as pool:
        found = select(cohort, 2, executor=pool, **OPTIONS)
    same(found, select(cohort, 2, **OPTIONS))


class Failing:
    """An executor whose third job fails."""

    def __init__(self):
        self.futures = []

    def submit(self, function, *arguments):
        future = Future()
        if len(self.futures) == 2:
            future.set_exception(OSError("a worker was lost"))
        self.futures.append(future)
        return future


def test_a_job_that_fails_cancels_the_others():
    executor = Failing()
    with pytest.raises(OSError, match="a worker was lost"):
        select(made(), 2, executor=executor, betas=[1.0], **(OPTIONS | {"n_betas": 2}))
    assert all(x.cancelled() for i, x in enumerate(executor.futures) if i != 2)


def test_what_is_no_executor_is_an_error():
    with pytest.raises(TypeError, match="executor is a int, without submit"):
        select(made(), 2, executor=3, betas=[1.0], n_folds=2, max_iter=3)
    with pytest.raises(ValueError, match="executor and mesh are given"):
        select(made(), 2, executor=Failing(), mesh=object(), betas=[1.0])


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_selection_on_disk_is_the_one_in_memory_with_the_same_folds(tmp_path, monkeypatch, gaps):
    rng = np.random.default_rng(1)
    y = rng.normal(size=(40, 6, 2)).cumsum(1)
    y[rng.random(y.shape) < gaps] = np.nan
    cohort = Cohort.from_array(y).standardize()
    write_cohort(cohort, tmp_path / "cohort", sequences=13)
    disk = open_cohort(tmp_path / "cohort").standardize()
    options = {"betas": [1.0, 8.0], "n_folds": 3, "max_iter": 10, "accelerate": False}
    fold = cross_validation.folds_of(disk, 3, 0)
    found = select(disk, 2, **options)
    monkeypatch.setattr("sparse_lds.inference.selection.select.folds_of", lambda *_: fold)
    wanted = select(cohort, 2, **options)
    np.testing.assert_array_equal(found.held_out.fold, fold)
    for column in ("beta", "bic", "density", "error", "nonzero"):
        np.testing.assert_allclose(found.table[column], wanted.table[column], rtol=1e-8)
