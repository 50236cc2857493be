"""Judge the judge: do intervals of A cover the truth, are verdicts right, are inclusion probabilities calibrated?

python benchmarks coverage --out results/coverage             # 40 cohorts, about two minutes each on a core
python benchmarks coverage --table                            # the tables of what is there

Cohorts have l = d = 4, C = I, 40 sequences of 25 steps, a diagonal of A between 0.3 and 0.7, one other entry each of
0.05, 0.1, 0.2 and 0.4 with random places and signs, and eight zeros; Q = R = 0.2 I. Nothing but C = I is told to
the fit: β is chosen by `select`, and chains start near the fit's own mode. Each cohort is a file of its own, so that a
run which was interrupted goes on; entries.csv has a row for each entry of A, runs.csv for each fit and posterior.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from coverage_tables import print_tables

from sparse_lds.inference import (
    Constraints,
    compare_map_posterior,
    diagnose,
    fit_map,
    relaxed_fit,
    sample_posterior,
    select,
)
from sparse_lds.models import GammaLaplace, LDSParams, SpikeSlab, simulate
from sparse_lds.models.files import write_whole

SIZES = (0.05, 0.1, 0.2, 0.4)
CHAINS = {"num_warmup": 300, "num_samples": 500, "num_chains": 4, "num_predictive": 0}
LEVELS = {"constraints": Constraints.levels(), "priors": "weak"}


def truth_of(seed: int, l: int = 4) -> LDSParams:
    """Draw the truth of a cohort."""
    rng = np.random.default_rng(seed)
    A = np.diag(rng.uniform(0.3, 0.7, l))
    others = np.flatnonzero(~np.eye(l, dtype=bool).ravel())
    A.ravel()[rng.choice(others, len(SIZES), replace=False)] = rng.choice([-1, 1], 4) * SIZES
    I = np.eye(l)
    return LDSParams(A, I, 0.2 * I, 0.2 * I, np.zeros(l), I)


def one_cohort(seed: int, folder: Path) -> None:
    """Fit a cohort, sample its posteriors, and write what they say beside the truth."""
    jax.config.update("jax_enable_x64", True)
    truth = truth_of(seed)
    cohort = simulate(jax.random.key(seed), truth, [25] * 40).cohort
    start = time.perf_counter()
    found = select(cohort, 4, seed=seed, **LEVELS)
    seconds = time.perf_counter() - start
    rows = found.table.reset_index(drop=True)
    by = {rule: found.choice(rule).beta for rule in ("best_density", "one_se")}
    fits = {
        rule: found.fits[int((rows["beta"] - beta).abs().argmin())] for rule, beta in by.items()
    }
    best, sparse = fits["best_density"], fits["one_se"]
    learned = fit_map(cohort, 4, GammaLaplace(), **LEVELS)
    papers = fit_map(cohort, 4, best.prior, constraints=Constraints.levels())
    maps = {**fits, "relaxed": relaxed_fit(cohort, best), "β learned": learned}
    maps |= {"relaxed one_se": relaxed_fit(cohort, sparse), "no priors": papers}
    entries = [_entries(seed, name, fit, truth) for name, fit in maps.items()]
    runs = [
        {
            "run": f"fit, {name}",
            **_of_fit(fit, truth),
            "seconds": seconds * (name == "best_density"),
        }
        for name, fit in maps.items()
    ]
    posteriors = {
        "default": (best, {}),
        "A alone, β of best_density": (best, {"free": ("A",), "prior": best.prior}),
        "A alone, β of one_se": (sparse, {"free": ("A",), "prior": sparse.prior}),
        "all, β of best_density": (best, {"prior": best.prior}),
        "spike and slab": (best, {"prior": SpikeSlab(0.5)}),
    }
    for k, (name, (fit, options)) in enumerate(posteriors.items()):
        start = time.perf_counter()
        posterior = sample_posterior(jax.random.key(100 + k), cohort, fit, **options, **CHAINS)
        runs.append(
            {"run": name, **_of_posterior(posterior), "seconds": time.perf_counter() - start}
        )
        entries.append(_judged(seed, name, fit, posterior, truth))
    files = {"entries": pd.concat(entries), "runs": pd.DataFrame(runs).assign(seed=seed)}
    for name, table in files.items():
        write_whole(folder / f"{name}_{seed}.csv", table.to_csv(index=False))
    if seed % 8 == 7:
        jax.clear_caches()  # a process may not hold too many programs


def _entries(seed: int, name: str, fit, truth: LDSParams) -> pd.DataFrame:
    """Return a row for each entry of a fit's A."""
    i, j = np.indices(truth.A.shape).reshape(2, -1)
    A = np.asarray(fit.params.A).ravel()
    return pd.DataFrame(
        {"seed": seed, "run": f"fit, {name}", "i": i, "j": j, "truth": truth.A.ravel(), "map": A}
    )


def _judged(seed: int, name: str, fit, posterior, truth: LDSParams) -> pd.DataFrame:
    """Return a row for each entry of A with what a posterior says of it."""
    table = compare_map_posterior(fit, posterior).table.reset_index(drop=True)
    draws = posterior["posterior"]["A"].values.reshape(-1, *truth.A.shape)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    ends = {"low": low.ravel(), "high": high.ravel()}
    return pd.concat(
        [_entries(seed, name, fit, truth).assign(run=name, **ends).drop(columns="map"), table],
        axis=1,
    )


def _of_fit(fit, truth: LDSParams) -> dict[str, Any]:
    """Return what the study keeps of a fit."""
    R = np.asarray(fit.params.R)
    return {
        "beta": float(fit.prior.mean_beta(fit.params.A))
        if isinstance(fit.prior, GammaLaplace)
        else float(np.max(np.asarray(getattr(fit.prior, "beta", np.nan)))),
        "converged": fit.converged,
        "R / truth": float(np.trace(R) / np.trace(truth.R)),
        "least R": float(np.linalg.eigvalsh(R).min() / truth.R[0, 0]),
    }


def _of_posterior(posterior) -> dict[str, Any]:
    """Return what the study keeps of a posterior."""
    verdict = diagnose(posterior)
    data, stats = posterior["posterior"], posterior["sample_stats"]
    return {
        "ok": verdict.ok,
        "r_hat": verdict.table["r_hat"].max(),
        "least ESS": verdict.table[["ess_bulk", "ess_tail"]].min(axis=None),
        "divergences": int(stats["diverging"].sum()),
        "gradients": float(stats["n_steps"].mean()),
        "R / truth": float(np.trace(data["R"].values.mean((0, 1))) / 0.8)
        if "R" in data
        else np.nan,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohorts", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="only the tables of what is there")
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    todo = [s for s in range(args.cohorts) if not (args.out / f"runs_{s}.csv").exists()]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        jobs = {s: pool.submit(one_cohort, s, args.out) for s in ([] if args.table else todo)}
        for seed, job in jobs.items():
            print(f"cohort {seed}: {job.exception() or 'done'}", flush=True)
    both = []
    for name in ("entries", "runs"):
        files = sorted(args.out.glob(f"{name}_*.csv"), key=lambda f: int(f.stem.split("_")[1]))
        both.append(pd.concat([pd.read_csv(f) for f in files], ignore_index=True))
        both[-1].to_csv(args.out / f"{name}.csv", index=False)
    print_tables(*both)


if __name__ == "__main__":
    main()
