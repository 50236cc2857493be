"""Choose the defaults by forecasts of held-out patients: what A is pulled to, own levels, noise, rule, hidden states.

python benchmarks defaults --out results/defaults --workers 2        # all data sets that are not unseen
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
from scipy.stats import ttest_rel

from sparse_lds.experiments.baselines import channel_mean, last_value, local_level, var1_forecaster
from sparse_lds.experiments.protocol import exact_errors
from sparse_lds.inference import (
    forecast_errors,
    hidden_candidates,
    level_candidates,
    select,
)
from sparse_lds.inference.selection.cross_validation import Selection
from sparse_lds.inference.selection.held_out import HeldOut, choose
from sparse_lds.inference.selection.path import beta_grid
from sparse_lds.models import Cohort, log_likelihood
from sparse_lds.models.files import write_whole

PULLS = ("zero", "off-diagonal", "persistence")
BASELINES = ("last value", "channel mean", "VAR(1)", "local level")
HIDDEN = 5
N_BETAS = 5


def structures(train: Cohort) -> dict[str, tuple[list, dict]]:
    """Return the candidates of each kind of model, with the options of their fits."""
    weak = {"priors": "weak", "max_iter": 150, "tol": 1e-3}
    levels = level_candidates(train, PULLS, own=(False,))
    levels += [
        c._replace(name=f"{c.name}, pull to persistence")
        for c in level_candidates(train, own=(True,))
    ]
    hidden = hidden_candidates(HIDDEN, ("zero", "persistence"), own=(False,))
    hidden += [
        c._replace(name=f"{c.name}, pull to zero") for c in hidden_candidates(HIDDEN, own=(True,))
    ]
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
        folds = min(3, len(train))
        found.append(
            select(train, candidates=[candidate], betas=grid, n_folds=folds, seed=seed, **options)
        )
    return found


def one_split(name: str, seed: int, file: Path) -> None:
    """Fit everything on half of a data set, score it on the other half, and write the scores."""
    jax.config.update("jax_enable_x64", True)
    cohort = next(d for d in DATASETS if d.name == name).load()
    order = np.random.default_rng(seed).permutation(len(cohort))
    train = cohort.take(order[: len(order) // 2]).standardize()
    test = cohort.take(order[len(order) // 2 :]).standardize_like(train)
    local = local_level(train)
    found = {
        "last value": exact_errors(last_value, test),
        "channel mean": exact_errors(channel_mean, test),
        "VAR(1)": exact_errors(var1_forecaster(train), test),
        "local level": forecast_errors(local, test),
    }
    result = {
        "baselines": {k: v.tolist() for k, v in found.items()},
        "cells": np.asarray(test.mask).sum((1, 2)).tolist(),
    }
    for kind in ("levels", "hidden", "OLDS"):
        start = time.perf_counter()
        found = selected(train, kind, seed)
        fits = [fit for part in found for fit in part.fits]
        held = [part.held_out for part in found]
        result[kind] = {
            "table": pd.concat([part.table for part in found]).to_dict("list"),
            "held_out": {
                "density": np.concatenate([h.density for h in held]).tolist(),
                "error": np.concatenate([h.error for h in held]).tolist(),
                "cells": held[0].cells.tolist(),
                "fold": held[0].fold.tolist(),
            },
            "error": [forecast_errors(fit.params, test).tolist() for fit in fits],
            "density": [np.asarray(log_likelihood(f.params, test)).tolist() for f in fits],
            "least R": [float(np.diagonal(fit.params.R).min()) for fit in fits],
            "seconds": time.perf_counter() - start,
        }
        jax.clear_caches()
    write_whole(file, json.dumps(result))


class Scores:
    """The scores of a split: errors of the test half for any rule and any set of structures."""

    def __init__(self, file: Path):
        self.found = json.loads(file.read_text())

    def by_rule(self, kind: str, rule: str, names=None) -> tuple[np.ndarray, float]:
        """Return the errors (N,), and the density, of the model that a rule chooses among structures."""
        part = self.found[kind]
        table = pd.DataFrame(part["table"])
        held = HeldOut(**{k: np.array(v, float) for k, v in part["held_out"].items()})
        wanted = np.flatnonzero([names is None or name in names for name in table["candidate"]])
        few = held._replace(density=held.density[wanted], error=held.error[wanted])
        row = wanted[choose(rule, table.iloc[wanted].reset_index(drop=True), few)]
        density = np.sum(part["density"][row]) / np.sum(self.found["cells"])
        return np.array(part["error"][row]), float(density)


def columns(scores: Scores, rule: str) -> dict[str, np.ndarray]:
    """Return the errors of the test half by column of the table."""
    found = {k: np.array(v) for k, v in scores.found["baselines"].items()}
    for kind, label in (("OLDS", "OLDS by CV"), ("levels", None), ("hidden", None)):
        names = sorted(set(scores.found[kind]["table"]["candidate"]))
        for name in [None] if label else names:
            found[label or name] = scores.by_rule(kind, rule, None if label else [name])[0]
    for by in ("best_error", "best_density", "one_se"):
        found[f"default, {by}"] = scores.by_rule("levels", by, DEFAULT)[0]
    return found


DEFAULT = tuple(
    f"levels{own}{noise}, pull to persistence"
    for own in ("", ", own levels")
    for noise in (", Q diagonal", "")
)


def summary(folder: Path, rule: str) -> pd.DataFrame:
    """Return a row for each data set and column: AMAE, its ratio to the best, and p against it, paired."""
    rows = []
    for data in DATASETS:
        files = sorted(folder.glob(f"{data.name.replace(' ', '-')}_*.json"))
        if not files:
            continue
        splits = [columns(Scores(file), rule) for file in files]
        pooled = {k: np.concatenate([s[k] for s in splits]) for k in splits[0]}
        means = {k: float(np.mean([np.nanmean(s[k]) for s in splits])) for k in splits[0]}
        best = min(means, key=means.__getitem__)
        for name, mean in means.items():
            p = ttest_rel(pooled[name], pooled[best], nan_policy="omit").pvalue
            ratio = mean / means[best]
            rows.append([data.name, len(files), name, mean, ratio, np.nan if name == best else p])
    return pd.DataFrame(rows, columns=["data", "splits", "column", "AMAE", "to best", "p"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="data sets, with semicolons")
    parser.add_argument("--unseen", action="store_true", help="the data sets kept aside, too")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rule", default="best_error", help="that chooses β within a column")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    parser.add_argument("--out", type=Path, default=Path("results/defaults"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [name.strip() for name in args.only.split(";") if name.strip()]
    jobs = [
        (data.name, seed, args.out / f"{data.name.replace(' ', '-')}_{seed}.json")
        for seed in range(args.splits)
        for data in DATASETS
        if (data.name in wanted if wanted else data.role != "unseen" or args.unseen)
    ]
    jobs = [] if args.table else [job for job in jobs if not job[2].exists()]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        for job, done in [(job, pool.submit(one_split, *job)) for job in jobs]:
            error = done.exception()
            print(f"{job[0]}, split {job[1]}: {error or 'done'}", flush=True)
    table = summary(args.out, args.rule)
    table.to_csv(args.out / "defaults.csv", index=False)
    pd.set_option("display.width", 250)
    for value in ("AMAE", "to best", "p"):
        print(f"\n{value}")
        wide = table.pivot(index="column", columns="data", values=value)
        print(wide.reindex(table["column"].unique()).to_string(float_format=lambda x: f"{x:.3f}"))


if __name__ == "__main__":
    main()
