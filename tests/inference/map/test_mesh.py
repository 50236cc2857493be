"""Fits on several devices, in one process or two, end where those on one device do; and one that loses a process ends.

Fits run in processes of their own: the number of devices is fixed when JAX starts.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from sparse_lds.inference import fit_map
from sparse_lds.models import Cohort, Laplace, expected_statistics, open_cohort, write_cohort
from sparse_lds.models.kalman import pieces
from sparse_lds.models.kalman.routes import Route
from sparse_lds.models.kalman.sharded import shard

WORKER = Path(__file__).with_name("mesh_worker.py")
FIFTY = {"accelerate": False, "max_iter": 50, "tol": 0.0}


def made(gaps: float, N=26, seed=0) -> Cohort:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(N, 6, 2)).cumsum(1)
    y[rng.random(y.shape) < gaps] = np.nan
    return Cohort.from_array(y, lengths=rng.integers(2, 7, N))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A complete cohort and one with gaps, on disk, with the fits to them on one device."""
    found = {}
    for name, gaps in (("complete", 0.0), ("gappy", 0.2)):
        path = tmp_path_factory.mktemp("cohorts") / name
        cohort = made(gaps)
        write_cohort(cohort, path, sequences=9)
        found[str(path)] = fit_map(cohort, 2, Laplace(3.0), **FIFTY)
    return found


def start(index=0, processes=1, port=0, **asked):
    what = {"index": index, "processes": processes, "coordinator": f"localhost:{port}", **asked}
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, str(WORKER), json.dumps(what)], env=env, **pipes)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def ended(process, timeout=240) -> str:
    try:
        text = process.communicate(timeout=timeout)[0]
    finally:
        process.kill()
    assert process.returncode == 0, text
    return text


def compare(close, file, folders, where):
    found = np.load(file)
    for path, fit in folders.items():
        for place in where:
            for key, value in fit.params._asdict().items():
                if value is not None:
                    name = f"{os.path.basename(path)} {place} {key}"
                    close(f"mesh {name}", found[name], value, 1e-10)


@pytest.mark.interfaces
def test_four_devices_of_one_process(folders, close, tmp_path):
    where = ("memory", "disk")
    flags = " --xla_force_host_platform_device_count=4"
    asked = {"cohorts": [*folders], "where": where, "options": FIFTY, "out": str(tmp_path / "x")}
    ended(start(flags=flags, **asked))
    compare(close, tmp_path / "x-0.npz", folders, where)


@pytest.mark.interfaces
def test_two_processes(folders, close, tmp_path):
    where = ("memory", "disk")
    asked = {"cohorts": [*folders], "options": FIFTY, "out": str(tmp_path / "x"), "processes": 2}
    port = free_port()
    both = [start(index=i, port=port, where=(*where, "path"), **asked) for i in range(2)]
    for process in both:
        ended(process)
    for i in range(2):
        compare(close, tmp_path / f"x-{i}.npz", folders, where)
    one, two = (np.load(tmp_path / f"x-{i}.npz") for i in range(2))
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name])  # processes never drift apart


@pytest.mark.interfaces
def test_a_process_that_is_killed_ends_the_other_and_the_fit_resumes(folders, close, tmp_path):
    gappy = next(path for path in folders if path.endswith("gappy"))
    slow = {**FIFTY, "checkpoint": str(tmp_path / "saved"), "checkpoint_every": 1}
    asked = {"cohorts": [gappy], "where": ["memory"], "out": str(tmp_path / "x"), "processes": 2}
    port = free_port()
    endless = slow | {"max_iter": 10_000_000}
    both = [start(index=i, port=port, options=endless, **asked) for i in range(2)]
    try:
        deadline = time.monotonic() + 200
        file = tmp_path / "saved" / "fit.npz"
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert file.exists(), both[0].communicate(timeout=5)[0] if both[0].poll() else "no file"
        both[1].send_signal(signal.SIGKILL)  # JAX catches SIGTERM
        killed = time.monotonic()
        text = both[0].communicate(timeout=60)[0]
        took = time.monotonic() - killed
    finally:
        for process in both:
            process.kill()
            process.communicate()
    print(f"the other process failed after {took:.1f} s")
    assert both[0].returncode != 0 and took < 60
    assert "lost the others" in text or "heartbeat" in text.lower(), text[-2000:]
    with np.load(file) as saved:
        reached = len(saved["objective"])
    port = free_port()  # from there on, in two processes again
    options = slow | {"max_iter": reached + 40}
    both = [start(index=i, port=port, options=options, **asked) for i in range(2)]
    for process in both:
        ended(process)
    found = np.load(tmp_path / "x-0.npz")
    cohort = open_cohort(gappy).sample
    wanted = fit_map(cohort, 2, Laplace(3.0), **(FIFTY | {"max_iter": reached + 40}))
    for key, value in wanted.params._asdict().items():
        if value is not None:
            close(f"resumed {key}", found[f"gappy memory {key}"], value, 1e-10)


# ---- shards, on one device


@pytest.mark.parametrize(
    "gaps, route", [(0.0, Route.FILLED), (0.2, Route.FILLED), (0.2, Route.FILTERED)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_shards_are_those_of_the_cohort(close, monkeypatch, gaps, weighted, route):
    monkeypatch.setattr(pieces, "route_cost", lambda other, *_: float(other is not route))
    cohort = made(gaps)
    params = fit_map(cohort, 2, Laplace(3.0), accelerate=False, max_iter=1).params
    weights = np.random.default_rng(0).random(len(cohort)) if weighted else None
    wanted = expected_statistics(params, cohort, weights)
    mesh = Mesh(np.array(jax.devices()[:1]), ("seq",))
    data = shard(cohort, np.float64, weights, 2, mesh)
    got = jax.jit(lambda data, params: data.expected_statistics(params))(data, params)
    for name in wanted._fields[:-1]:
        close(f"shards {name}", getattr(got, name), getattr(wanted, name), 1e-12)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_inputs_are_sharded_too(close, gaps):
    cohort = made(gaps).with_intercept()
    mesh = Mesh(np.array(jax.devices()[:1]), ("seq",))
    options = {"accelerate": False, "max_iter": 5, "tol": 0.0}
    wanted = fit_map(cohort, 2, Laplace(3.0), **options)
    got = fit_map(cohort, 2, Laplace(3.0), mesh=mesh, **options)
    for name in ("A", "C", "Q", "R", "D"):
        close(f"shards-u {name}", getattr(got.params, name), getattr(wanted.params, name), 1e-10)


def test_the_papers_variant_refuses_a_mesh():
    mesh = Mesh(np.array(jax.devices()[:1]), ("seq",))
    with pytest.raises(ValueError, match="variant='paper' takes data that fit"):
        fit_map(made(0.0), 2, Laplace(3.0), mesh=mesh, variant="paper")
