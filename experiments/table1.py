"""The paper's Table 1 and Figures 1 and 2 on any cohort: OLDS and SLDS over the number of states, and baselines.

Each cell (training size, method, number of states) is a job of its own, saved when it is done: a run that is killed
goes on where it stopped and ends with the same table.
"""

import hashlib
import json
import multiprocessing
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from ..inference import effective_states, fit_em, fit_map, regularization_path
from ..inference.selection import bic
from ..models import Cohort, Laplace
from ..models.files import write_whole
from .protocol import (
    Errors,
    channel_mean,
    evaluate,
    last_value,
    lds_forecaster,
    paired_p,
    var1_forecaster,
)

STATES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15)
PAPER = {  # Table 1 of Liu and Hauskrecht (2013)
    ("OLDS", 50): (1.1653, 1.0553, 1.0561, 0.6667, 0.7268, 0.9209, 0.9502, 0.9402, 1.2291, 1.2993),
    ("SLDS", 50): (0.6256, 0.5858, 0.5821, 0.5684, 0.6506, 0.6200, 0.8854, 0.9236, 1.0134, 1.0430),
    ("OLDS", 100): (1.1527, 1.0427, 1.0039, 0.6406, 0.7153, 0.8364, 0.9210, 0.9327, 1.1427, 1.2427),
    ("SLDS", 100): (0.5709, 0.5429, 0.5889, 0.6379, 0.6897, 0.6949, 0.7643, 0.7811, 0.7874, 0.8309),
}
BASELINES = ("last value", "channel mean", "VAR(1)")


class Plan(NamedTuple):
    """Everything that decides the numbers of a run."""

    states: tuple[int, ...] = STATES
    sizes: tuple[int, ...] = (50, 100)
    n_test: int = 500
    n_pairs: int = 5
    repetitions: int = 10
    n_starts: int = 3
    n_betas: int = 8
    max_iter: int = 200
    tol: float = 1e-4
    seed: int = 0


class Cell(NamedTuple):
    size: int
    method: str
    n_states: int = 0

    @property
    def name(self) -> str:
        return f"{self.size}_{self.method.replace(' ', '-')}_{self.n_states:02d}"


class Table1(NamedTuple):
    cells: dict[Cell, dict[str, Any]]
    plan: Plan

    def errors(self, cell: Cell) -> Errors:
        found = self.cells[cell]
        return Errors(*(np.array(found[k]) for k in Errors._fields))

    def amae(self) -> pd.DataFrame:
        """AMAE in standardised units, a row for each method and size, a column for each number of states."""
        rows = {}
        for size in self.plan.sizes:
            for method in ("OLDS", "SLDS"):
                means = {l: self.errors(Cell(size, method, l)).mean for l in self.plan.states}
                rows[f"{method}({size})"] = means
        return pd.DataFrame(rows).T

    def long(self) -> pd.DataFrame:
        """A row for each cell, with all that is known of it."""
        rows = []
        for cell, found in self.cells.items():
            errors = self.errors(cell)
            units = errors.amae_units.mean(0)
            rows.append(
                {
                    **cell._asdict(),
                    "amae": errors.mean,
                    "sd": errors.spread,
                    **{f"amae {c}": u for c, u in zip(found["channels"], units, strict=True)},
                    **{
                        k: found.get(k)
                        for k in ("beta", "nonzero", "active_states", "bic", "converged", "seconds")
                    },
                }
            )
        return pd.DataFrame(rows)

    def text(self) -> str:
        """The table beside the paper's, baselines, and a verdict on each claim."""
        number = lambda x: "" if np.isnan(x) else f"{x:.4f}"  # noqa: E731
        blocks = ["AMAE, this run (standardised units)", self.amae().to_string(float_format=number)]
        blocks += [
            "",
            "AMAE, the paper's Table 1 (other patients)",
            paper_table().to_string(float_format=number),
        ]
        rows = {}
        for size in self.plan.sizes:
            row: dict[str, Any] = {name: self.errors(Cell(size, name)).mean for name in BASELINES}
            l = min(self.plan.states, key=lambda l, s=size: self.cells[Cell(s, "OLDS", l)]["bic"])
            row["OLDS by BIC"] = self.errors(Cell(size, "OLDS", l)).mean
            row["its states"] = str(l)
            rows[f"trained on {size}"] = row
        blocks += ["", "Baselines", pd.DataFrame(rows).T.to_string(float_format=number)]
        blocks += ["", "The paper's claims, in this run", *(f"  {line}" for line in self.claims())]
        return "\n".join(blocks)

    def claims(self) -> list[str]:
        """Whether each of the paper's claims holds here."""
        lines, states = [], np.array(self.plan.states)
        for size in self.plan.sizes:
            olds, slds = (
                np.array([self.errors(Cell(size, m, l)).mean for l in states])
                for m in ("OLDS", "SLDS")
            )
            best = int(olds.argmin())
            rise, slow = olds[-1] - olds[best], slds[-1] - slds[best]
            inner = 0 < best < len(states) - 1
            lines.append(
                f"[{_yes(inner and rise > 0)}] {size}: OLDS has its least error, {olds[best]:.4f}, at l = "
                f"{states[best]} and is {rise:+.4f} from there at l = {states[-1]}"
            )
            lines.append(
                f"[{_yes(slow < rise)}] {size}: SLDS rises more slowly: {slow:+.4f} over the same states"
            )
            below = slds < olds
            p = [
                paired_p(self.errors(Cell(size, "OLDS", l)), self.errors(Cell(size, "SLDS", l)))
                for l in states
            ]
            sure = int((below & (np.array(p) < 0.05)).sum())
            worse = int((~below & (np.array(p) < 0.05)).sum())
            lines.append(
                f"[{_yes(below.all())}] {size}: SLDS is below OLDS at {below.sum()} of {len(states)} numbers of states "
                f"(p < 0.05 over patients: below at {sure}, above at {worse})"
            )
        return lines

    def figure(self, size: int) -> Figure:
        """Figure 1 (size 50) or 2 (size 100) of the paper."""
        figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
        states = self.plan.states
        for method, color, marker in (("OLDS", "C1", "s"), ("SLDS", "C0", "o")):
            errors = [self.errors(Cell(size, method, l)) for l in states]
            axis.errorbar(
                states, [e.mean for e in errors], [e.spread for e in errors],
                color=color, marker=marker, ms=5, capsize=2, label=method,
            )  # fmt: skip
        for name, style in zip(BASELINES, (":", "--", "-."), strict=True):
            value = self.errors(Cell(size, name)).mean
            if value < 2 * max(self.errors(Cell(size, "OLDS", l)).mean for l in states):
                axis.axhline(value, color="0.6", ls=style, lw=1, label=name)
        axis.set(xlabel="number of states", ylabel="AMAE (standardised units)", xticks=states)
        axis.set_title(
            f"{size} training patients, mean ± sd over {self.plan.repetitions} repetitions",
            fontsize=10,
        )
        axis.legend(fontsize=8, frameon=False)
        return figure


def _yes(holds: Any) -> str:
    return "holds" if holds else "does not hold"


def run_table1(
    cohort: Cohort,
    folder: str | Path,
    plan: Plan = Plan(),  # noqa: B008, it is immutable
    *,
    workers: int = 2,
    progress: bool = False,
) -> Table1:
    """All cells, in `workers` processes; those that `folder` has already are not computed again."""
    plan = _checked(cohort, plan)
    folder = Path(folder)
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    _same_run(folder, cohort, plan)
    cells = [Cell(n, name) for n in plan.sizes for name in BASELINES]
    # the largest first: two workers end together
    cells += [
        Cell(n, m, l)
        for l in sorted(plan.states, reverse=True)
        for n in plan.sizes
        for m in ("SLDS", "OLDS")
    ]
    todo = [cell for cell in cells if not (folder / "cells" / f"{cell.name}.json").exists()]
    bar = tqdm(
        total=len(cells),
        initial=len(cells) - len(todo),
        disable=not progress,
        desc="table 1",
        unit="cell",
    )
    x64 = bool(jax.config.read("jax_enable_x64"))
    if workers <= 1:
        for cell in todo:
            _run_cell(cohort, plan, cell, str(folder))
            bar.update()
    elif todo:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start, initargs=(x64,)
        ) as pool:
            jobs = [pool.submit(_run_cell, cohort, plan, cell, str(folder)) for cell in todo]
            try:
                for job in as_completed(jobs):
                    job.result()
                    bar.update()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()  # what they were at is not saved, and is done again
                raise
    bar.close()
    found = {
        cell: json.loads((folder / "cells" / f"{cell.name}.json").read_text()) for cell in cells
    }
    return Table1({cell: found[cell] for cell in sorted(cells)}, plan)


def _start(x64: bool) -> None:
    jax.config.update("jax_enable_x64", x64)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the workers


def _checked(cohort: Cohort, plan: Plan) -> Plan:
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


def _same_run(folder: Path, cohort: Cohort, plan: Plan) -> None:
    """A folder holds one run: the plan and the data must be the same."""
    digest = hashlib.sha256()
    for x in (cohort.y, cohort.mask, cohort.lengths):
        digest.update(np.ascontiguousarray(x).tobytes())
    run = {"plan": json.loads(json.dumps(plan._asdict())), "data": digest.hexdigest()[:16]}
    file = folder / "run.json"
    if file.exists():
        if json.loads(file.read_text()) != run:
            raise ValueError(
                f"{str(folder)!r} holds another run (other data or settings); give another folder, or --force"
            )
    else:
        write_whole(file, json.dumps(run, indent=1))


def split(cohort: Cohort, plan: Plan, size: int) -> tuple[Cohort, Cohort]:
    """Training and test patients, standardised by the former; the test patients are the same for all sizes."""
    order = np.random.default_rng(plan.seed).permutation(len(cohort))
    train = cohort.take(order[:size]).standardize()
    return train, cohort.take(order[len(order) - plan.n_test :]).standardize_like(train)


def _run_cell(cohort: Cohort, plan: Plan, cell: Cell, folder: str) -> None:
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
            beta = choose_beta(train, cell.n_states, plan)
            fit = fit_map(train, cell.n_states, Laplace(beta), **options)
            found["beta"] = beta
        if fit.interrupted:
            raise KeyboardInterrupt  # half a fit is no cell
        A = np.asarray(fit.params.A)
        found |= {
            "nonzero": int((A != 0).sum()),
            "active_states": len(effective_states(fit.params)),
            "bic": float(bic(fit, len(train))),
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
    write_whole(Path(folder) / "cells" / f"{cell.name}.json", json.dumps(found))


def choose_beta(train: Cohort, n_states: int, plan: Plan) -> float:
    """The β of a path on 70% of the training patients with the least error on the other 30%.

    The penalty weighs against a log-likelihood that grows with the data, so β is scaled up to all of the patients.
    """
    order = np.random.default_rng(plan.seed + 1).permutation(len(train))
    n = max(2, int(0.7 * len(train)))
    part, rest = train.take(order[:n]), train.take(order[n:])
    path = regularization_path(
        part, n_states, n_betas=plan.n_betas, max_iter=plan.max_iter, tol=plan.tol, seed=plan.seed
    )
    if len(path.fits) < plan.n_betas:
        raise KeyboardInterrupt
    errors = [
        evaluate(
            lds_forecaster(fit.params), rest, seed=plan.seed + 1, n_pairs=20, repetitions=1
        ).mean
        for fit in path.fits
    ]
    transitions = [int((np.asarray(c.lengths) - 1).sum()) for c in (train, part)]
    return float(path.betas[int(np.argmin(errors))]) * transitions[0] / transitions[1]


def write_table1(table: Table1, folder: str | Path) -> list[Path]:
    """table1.csv, cells.csv, table1.txt, and a figure for each training size."""
    folder = Path(folder)
    files = [folder / name for name in ("table1.csv", "cells.csv", "table1.txt")]
    table.amae().to_csv(files[0], index_label="method")
    table.long().drop(columns="seconds").to_csv(files[1], index=False)
    write_whole(files[2], table.text() + "\n")
    for k, size in enumerate(table.plan.sizes, 1):
        figure = table.figure(size)
        files.append(folder / f"figure{k}.png")
        figure.savefig(files[-1], dpi=150)
        plt.close(figure)
    return files


def paper_table() -> pd.DataFrame:
    """The paper's Table 1."""
    rows: dict[str, Sequence[float]] = {f"{m}({n})": v for (m, n), v in PAPER.items()}
    return pd.DataFrame(rows, index=list(STATES)).T
