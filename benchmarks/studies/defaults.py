"""Choose the defaults by forecasts of held-out patients: what A is pulled to, own levels, noise, rule, hidden states.

python benchmarks defaults --out results/defaults                    # all data sets but those kept unseen
python benchmarks defaults --only "pbcseq;labs 8h, gaps" --splits 2  # some
python benchmarks defaults --table                                   # the table of what is there

In each split half of the sequences train, and β is chosen among them by cross-validation, for each column in the same
way. Errors are exact averages over all pairs of steps (`forecast_errors`), in standard deviations of the training half.
Every fit of every path is scored on the other half and saved, so that rules and defaults are compared afterwards. A run
that is interrupted goes on. Data sets are those of longitudinal.py.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from longitudinal import DATASETS
from scipy.stats import ttest_1samp

from sparse_lds.experiments.baselines import channel_mean, last_value, local_level, var1_forecaster
from sparse_lds.experiments.protocol import exact_errors
from sparse_lds.inference import (
    Selection,
    forecast_errors,
    hidden_candidates,
    level_candidates,
    select,
)
from sparse_lds.inference.selection.held_out import HeldOut, choose
from sparse_lds.inference.selection.path import beta_grid
from sparse_lds.models import Cohort, log_likelihood
from sparse_lds.models.files import write_whole

PULLS = ("zero", "off-diagonal", "persistence")
HIDDEN = 5
RULE = "best_error"  # of the default
KINDS = ("baselines", "levels", "OLDS", "hidden")
N_BETAS = 5


def structures(train: Cohort) -> dict[str, tuple[list, dict]]:
    """Return the candidates of each kind of model, with the options of their fits."""
    weak = {"priors": "weak", "max_iter": 150, "tol": 1e-3}

    def named(candidates, pull):
        return [c._replace(name=f"{c.name}, pull to {pull}") for c in candidates]

    levels = []
    for pull in PULLS:
        levels += named(level_candidates(train, pull, own=(False,)), pull)
    for pull in ("off-diagonal", "persistence"):
        levels += named(level_candidates(train, pull, own=(True,)), pull)
    hidden = named(hidden_candidates(HIDDEN, "zero"), "zero")
    hidden += named(hidden_candidates(HIDDEN, "persistence", own=(False,)), "persistence")
    olds = hidden_candidates((2, 5), own=(False,))
    plain = [c._replace(name=f"OLDS, {c.n_states} states") for c in olds]
    return {
        "levels": (levels, weak),
        "hidden": (hidden, weak | {"max_iter": 100}),
        "OLDS": (plain, {"max_iter": 150}),
    }


def selected(train: Cohort, kind: str, seed: int) -> list[Selection]:
    """Cross-validate each structure of a kind over a grid of its own; OLDS has no penalty."""
    candidates, options = structures(train)[kind]
    found = []
    for candidate in candidates:
        grid = [0.0]
        if kind != "OLDS":
            common = {"constraints": candidate.constraints, **options}
            grid = beta_grid(train, candidate.n_states, candidate.prior, N_BETAS, 3e-3, **common)
        found.append(select(train, candidates=[candidate], betas=grid, seed=seed, **options))
    return found


def one_job(name: str, seed: int, kind: str, file: Path) -> None:
    """Fit one kind of models on half of a data set, score them on the other half, and write the scores."""
    jax.config.update("jax_enable_x64", True)
    cohort = next(d for d in DATASETS if d.name == name).load()
    order = np.random.default_rng(seed).permutation(len(cohort))
    train = cohort.take(order[: len(order) // 2]).standardize()
    test = cohort.take(order[len(order) // 2 :]).standardize_like(train)
    start = time.perf_counter()
    if kind == "baselines":
        found = {
            "last value": exact_errors(last_value, test),
            "channel mean": exact_errors(channel_mean, test),
            "VAR(1)": exact_errors(var1_forecaster(train), test),
            "local level": forecast_errors(local_level(train), test),
        }
        result = {
            "errors": {k: v.tolist() for k, v in found.items()},
            "cells": np.asarray(test.mask).sum((1, 2)).tolist(),
        }
    else:
        chosen = selected(train, kind, seed)
        fits = [fit for part in chosen for fit in part.fits]
        held = [part.held_out for part in chosen]
        result = {
            "table": pd.concat([part.table for part in chosen]).to_dict("list"),
            "held_out": {
                "density": np.concatenate([h.density for h in held]).tolist(),
                "error": np.concatenate([h.error for h in held]).tolist(),
                "cells": held[0].cells.tolist(),
                "fold": held[0].fold.tolist(),
            },
            "error": [forecast_errors(fit.params, test).tolist() for fit in fits],
            "density": [np.asarray(log_likelihood(f.params, test)).tolist() for f in fits],
            "least R": [float(np.diagonal(fit.params.R).min()) for fit in fits],
        }
    result |= {"test": order[len(order) // 2 :].tolist(), "seconds": time.perf_counter() - start}
    write_whole(file, json.dumps(result))
    jax.clear_caches()


def by_rule(found: dict, rule: str, names=None) -> np.ndarray:
    """Return the errors (N,) of the model that a rule chooses among structures."""
    table = pd.DataFrame(found["table"])
    held = HeldOut(**{k: np.array(v, float) for k, v in found["held_out"].items()})
    wanted = np.flatnonzero([names is None or name in names for name in table["candidate"]])
    few = held._replace(density=held.density[wanted], error=held.error[wanted])
    row = wanted[choose(rule, table.iloc[wanted].reset_index(drop=True), few)]
    return np.array(found["error"][row])


def columns(folder: Path, name: str, seed: int, rule: str) -> pd.DataFrame:
    """Return the errors of the test half by column of the table, as far as there are any, a row for each sequence."""
    found: dict[str, np.ndarray] = {}
    test: list[int] = []
    for kind in KINDS:
        file = folder / file_name(name, seed, kind)
        if not file.exists():
            continue
        scores = json.loads(file.read_text())
        test = scores["test"]
        if kind == "baselines":
            found |= {k: np.array(v) for k, v in scores["errors"].items()}
        elif kind == "OLDS":
            found["OLDS by CV"] = by_rule(scores, rule)
        else:
            for structure in dict.fromkeys(scores["table"]["candidate"]):
                found[structure] = by_rule(scores, rule, [structure])
        if kind == "levels":
            for by in ("best_error", "best_density", "one_se"):
                found[f"default, {by}"] = by_rule(scores, by, DEFAULT)
    return pd.DataFrame(found, index=test)


DEFAULT = (
    "levels, Q diagonal, pull to persistence",
    "levels, pull to persistence",
    "levels, own levels, Q diagonal, pull to off-diagonal",
    "levels, own levels, pull to off-diagonal",
)


def summary(folder: Path, rule: str) -> pd.DataFrame:
    """Return a row for each data set and column: AMAE, and the default's ratio to it with a paired p-value.

    A column is compared with the default over the splits that both have. In the test a sequence counts once, with the
    mean of its differences over the splits that test it.
    """
    rows = []
    for data in DATASETS:
        splits = [columns(folder, data.name, seed, rule) for seed in range(20)]
        splits = [s for s in splits if f"default, {RULE}" in s]
        for name in dict.fromkeys(k for s in splits for k in s):
            both = [
                s[[name, f"default, {RULE}"]].set_axis(["own", "default"], axis=1)
                for s in splits
                if name in s
            ]
            error, default = np.mean([s.mean() for s in both], axis=0)
            every = pd.concat(both)
            gap = (every["default"] - every["own"]).dropna().groupby(level=0).mean()
            p = ttest_1samp(gap, 0).pvalue if np.ptp(gap) > 0 else 1.0
            rows.append([data.name, len(both), name, error, default / error, p])
    return pd.DataFrame(rows, columns=["data", "splits", "column", "AMAE", "default / this", "p"])


def file_name(name: str, seed: int, kind: str) -> str:
    """Return the name of the file that holds the scores of a job."""
    return f"{name.replace(' ', '-').replace(',', '')}_{seed}_{kind}.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="data sets, with semicolons")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of models, with commas")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rule", default="best_error", help="that chooses β within a column")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    parser.add_argument("--out", type=Path, default=Path("results/defaults"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [name.strip() for name in args.only.split(";") if name.strip()]
    jobs = [
        (data.name, seed, kind, args.out / file_name(data.name, seed, kind))
        for kind in args.kinds.split(",")
        for seed in range(args.splits)
        for data in DATASETS
        if (data.name in wanted if wanted else data.role != "unseen")
    ]
    jobs = [] if args.table else [job for job in jobs if not job[-1].exists()]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        for job, done in [(job, pool.submit(one_job, *job)) for job in jobs]:
            error = done.exception()
            print(f"{job[0]}, split {job[1]}, {job[2]}: {error or 'done'}", flush=True)
    table = summary(args.out, args.rule)
    table.to_csv(args.out / "defaults.csv", index=False)
    pd.set_option("display.width", 250)
    for value in ("AMAE", "default / this", "p"):
        print(f"\n{value}")
        wide = table.pivot(index="column", columns="data", values=value)
        print(wide.reindex(table["column"].unique()).to_string(float_format=lambda x: f"{x:.3f}"))


if __name__ == "__main__":
    main()
