"""The cells of the paper's Table 1: one for each training size, method and number of states.

Each cell is a job of its own, saved when it is done: a run that is killed goes on where it stopped and ends with the
same table.
"""

import json
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm.auto import tqdm

from ..inference import effective_states, fit_em, fit_map, regularization_path, scaled_beta
from ..inference.selection.cross_validation import bic
from ..inference.selection.jobs import Job, results, switches
from ..models import Cohort, Laplace
from ..models.files import fingerprint, read_json, run_folder, write_whole
from .protocol import Errors, channel_mean, evaluate, last_value, lds_forecaster, var1_forecaster

STATES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15)
BASELINES = ("last value", "channel mean", "VAR(1)")


class Plan(NamedTuple):
    """The plan of a run: all settings that its numbers depend on."""

    states: tuple[int, ...] = STATES
    sizes: tuple[int, ...] = (50, 100)
    n_test: int = 500
    n_pairs: int = 5
    repetitions: int = 10
    n_starts: int = 3
    n_betas: int = 8
    max_iter: int = 500
    tol: float = 1e-4
    seed: int = 0


class Cell(NamedTuple):
    """A cell of the table: training patients, method, and states (0 for a baseline)."""

    size: int
    method: str
    n_states: int = 0

    @property
    def name(self) -> str:
        """The name of the cell's file, without its suffix."""
        return f"{self.size}_{self.method.replace(' ', '-')}_{self.n_states:02d}"


def run_cells(
    cohort: Cohort,
    folder: str | Path,
    plan: Plan,
    *,
    workers: int = 2,
    progress: bool = False,
    executor: Any = None,
) -> tuple[dict[Cell, dict[str, Any]], Plan]:
    """Run all cells in `workers` processes, but for those that `folder` has already; return all, and the plan used.

    With an `executor` (of concurrent.futures, or Dask's `client.get_executor()`) its workers compute the cells, and
    need not see the folder: files are written here.
    """
    plan = _checked(cohort, plan)
    data = fingerprint(cohort)
    folder = run_folder(folder, {"data": data, **plan._asdict()})
    (folder / "cells").mkdir(exist_ok=True)
    cells = _cells_of(plan)
    todo = [cell for cell in cells if not _is_done(folder / "cells" / f"{cell.name}.json")]
    bar = tqdm(
        total=len(cells),
        initial=len(cells) - len(todo),
        disable=not progress,
        desc="table 1",
        unit="cell",
    )
    if executor is not None:
        jobs: list[Job] = [(_computed, (cohort, plan, cell)) for cell in todo]
        for number, found in results(jobs, executor):
            _save(found, todo[number], str(folder))
            bar.update()
    elif workers <= 1:
        for cell in todo:
            _run_cell(cohort, plan, cell, str(folder))
            bar.update()
    elif todo:
        _run_in_processes(cohort, plan, todo, str(folder), workers, bar)
    bar.close()
    found = {
        cell: json.loads((folder / "cells" / f"{cell.name}.json").read_text()) for cell in cells
    }
    return {cell: found[cell] for cell in sorted(cells)}, plan


def _is_done(file: Path) -> bool:
    """Tell whether a cell's file is there, and whole; a damaged one is computed again."""
    if not file.exists():
        return False
    try:
        missing = {"channels", *Errors._fields} - read_json(file, "").keys()
    except ValueError:
        missing = {"all"}
    if missing:
        warnings.warn(f"{str(file)!r} is damaged, and computed again", stacklevel=3)
    return not missing


def _cells_of(plan: Plan) -> list[Cell]:
    """Return all cells of a plan: baselines, then the largest models first, so that the workers end together."""
    return [Cell(n, name) for n in plan.sizes for name in BASELINES] + [
        Cell(n, m, l)
        for l in sorted(plan.states, reverse=True)
        for n in plan.sizes
        for m in ("SLDS", "OLDS")
    ]


def _run_in_processes(
    cohort: Cohort, plan: Plan, todo: list[Cell], folder: str, workers: int, bar: Any
) -> None:
    """Compute the cells in processes of their own, and end all of these after an error or Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    with (
        _one_thread_each(),
        ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start, initargs=(switches(),)
        ) as pool,
    ):
        jobs = [pool.submit(_run_cell, cohort, plan, cell, folder) for cell in todo]
        try:
            for job in as_completed(jobs):
                job.result()
                bar.update()
        except BrokenProcessPool:
            raise OSError(
                "a worker process was killed, for want of memory perhaps; the cells that are done are kept: the "
                "same command goes on, with fewer --workers if need be"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()  # an unfinished cell is not saved, and is computed again
            raise


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Limit processes that are started inside to one thread of BLAS: with more, fits took four times as long."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start(settings: dict[str, Any]) -> None:
    """Set up a worker process."""
    for name, value in settings.items():
        jax.config.update(name, value)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the workers


def _end_with_parent() -> None:
    """End this process when the one that started it ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _checked(cohort: Cohort, plan: Plan) -> Plan:
    """Return the plan in order, with no more test patients than there are; raise if the cohort is too small."""
    plan = plan._replace(
        states=tuple(sorted(set(plan.states))), sizes=tuple(sorted(set(plan.sizes)))
    )
    left = len(cohort) - max(plan.sizes)
    if left < 1:
        raise ValueError(
            f"the cohort has {len(cohort)} patients; {max(plan.sizes)} to train on leave none to test"
        )
    if min(plan.sizes) < 4:
        raise ValueError(f"sizes has {min(plan.sizes)}; train on at least 4 patients")
    return plan._replace(n_test=min(plan.n_test, left))


def split(cohort: Cohort, plan: Plan, size: int) -> tuple[Cohort, Cohort]:
    """Return training and test patients, both standardised by the former; the latter are the same for all sizes."""
    order = np.random.default_rng(plan.seed).permutation(len(cohort))
    train = cohort.take(order[:size]).standardize()
    return train, cohort.take(order[len(order) - plan.n_test :]).standardize_like(train)


def _run_cell(cohort: Cohort, plan: Plan, cell: Cell, folder: str) -> None:
    """Compute a cell, and write its file."""
    _save(_computed(cohort, plan, cell), cell, folder)


def _save(found: dict[str, Any], cell: Cell, folder: str) -> None:
    """Write the file of a cell."""
    write_whole(Path(folder) / "cells" / f"{cell.name}.json", json.dumps(found))


def _computed(cohort: Cohort, plan: Plan, cell: Cell) -> dict[str, Any]:
    """Return what the file of a cell holds."""
    start = time.perf_counter()
    train, test = split(cohort, plan, cell.size)
    found: dict[str, Any] = {"channels": list(cohort.channels)}
    if cell.method == "last value":
        forecaster = last_value
    elif cell.method == "channel mean":
        forecaster = channel_mean
    elif cell.method == "VAR(1)":
        forecaster = var1_forecaster(train)
    else:
        options = {
            "n_restarts": plan.n_starts,
            "seed": plan.seed,
            "max_iter": plan.max_iter,
            "tol": plan.tol,
        }
        if cell.method == "OLDS":
            fit = fit_em(train, cell.n_states, **options)
        else:
            found["beta"] = choose_beta(train, cell.n_states, plan)
            prior = Laplace(found["beta"])
            fit = fit_map(train, cell.n_states, prior, Q="identity", **options)
        if fit.interrupted:
            raise KeyboardInterrupt  # an unfinished fit is not saved
        A = np.asarray(fit.params.A)
        found |= {
            "nonzero": int((~fit.zeros).sum()),
            "effective_states": len(effective_states(fit.moving)),
            "bic": float(bic(fit, train)),
            "converged": bool(fit.converged),
            "reason": fit.reason,
            "A": A.tolist(),
        }
        forecaster = lds_forecaster(fit.params)
    errors = evaluate(
        forecaster, test, seed=plan.seed, n_pairs=plan.n_pairs, repetitions=plan.repetitions
    )
    found |= {k: np.asarray(v).tolist() for k, v in errors._asdict().items()}
    found["seconds"] = time.perf_counter() - start
    # compiled programs use memory maps, of which a process may have 65,530: forty cells had used them up
    jax.clear_caches()
    return found


def choose_beta(train: Cohort, n_states: int, plan: Plan) -> float:
    """Return the β of a path on 70% of the training patients with the least error on the other 30%.

    That β is scaled up to all training patients (`scaled_beta`).
    Q = I sets the scales of the states: with Q free, the penalty has no minimum.
    """
    order = np.random.default_rng(plan.seed + 1).permutation(len(train))
    n = max(2, int(0.7 * len(train)))
    part, rest = train.take(order[:n]), train.take(order[n:])
    path = regularization_path(
        part, n_states, n_betas=plan.n_betas, max_iter=plan.max_iter, tol=plan.tol, seed=plan.seed, Q="identity"
    )  # fmt: skip
    if len(path.fits) < plan.n_betas:
        raise KeyboardInterrupt
    tasks: Any = {"seed": plan.seed + 1, "n_pairs": 20, "repetitions": 1}
    errors = [evaluate(lds_forecaster(fit.params), rest, **tasks).mean for fit in path.fits]
    best = int(np.argmin(errors))
    return float(scaled_beta(path.betas[best], part, train))
