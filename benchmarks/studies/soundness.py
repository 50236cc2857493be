"""Fit random problems: no NaN, fall of the objective or false convergence; how many converge, and why others do not.

python benchmarks soundness [--fits 2000] [--max-iter 200] [--seed 0] [--out benchmarks/results/robustness]
python benchmarks soundness --fits 300 --max-iter 2000      # how many converge within 400 and 2000 iterations

Problem k has seed + k, and is the same in every run; those that the file in --out has are not run again. What is
compiled in (sizes, gaps, kinds of prior and constraints) is one of 48 configurations, which share their programs.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from cases import kept, outcome, sound

from sparse_lds.inference import Constraints, FitResult, Stop, fit_map
from sparse_lds.models import (
    Cohort,
    Flat,
    GammaLaplace,
    GroupLaplace,
    Laplace,
    LDSParams,
    simulate,
    total_log_likelihood,
)

SHAPES = [(1, 2, 8, 6), (2, 3, 16, 8), (3, 2, 16, 10), (4, 4, 24, 6)]  # l, d, N, T
GAPS = ["none", "none", "ragged", "cells", "panels"]
PRIORS = {
    "Laplace": Laplace,
    "rows": lambda beta: GroupLaplace(beta, "rows"),
    "off-diagonal": Laplace.off_diagonal,
    "persistence": Laplace.towards_persistence,
    "β unknown": lambda beta: GammaLaplace(1.0, 1 / beta),
    "flat": lambda beta: Flat(),
}
CONSTRAINTS = {
    "free": Constraints(),
    "Q = I": Constraints(Q="identity"),
    "unit diagonal": Constraints(Q="unit diagonal"),
    "R, V1 diagonal": Constraints(diagonal=("R", "V1")),
    "C held": Constraints(hold=("C",)),
    "levels": Constraints.levels(),
    "own levels": Constraints.levels(own=True),
}
STARTS = ["subspace", "subspace", "pca", "random", "given"]
SCALES = [0, 0, 0, -6, 6, -100, 100]  # powers of ten
CONFIGURATIONS = 48
FALSE = 0.5  # nats, a standard error of one parameter: a fit that could gain more has not converged


def configuration(k: int) -> dict:
    """Return what is compiled in of configuration k, of which every choice is met."""
    rng, pick = np.random.default_rng([k, 3]), lambda options, at: list(options)[at % len(options)]
    return {
        "shape": k % len(SHAPES),
        "gaps": pick(GAPS, k + k // len(GAPS)),
        "prior": pick(PRIORS, k + k // len(PRIORS)),
        "constraints": pick(CONSTRAINTS, k + k // len(CONSTRAINTS)),
        "weak": bool(rng.random() < 0.4),
    }


def random_params(rng, l: int, d: int, radius: float) -> LDSParams:
    """Draw an LDS with this spectral radius, to simulate from or to start at."""
    A = rng.normal(size=(l, l))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    noise = [np.diag(10.0 ** rng.uniform(-2, 1, k)) for k in (l, d, l)]
    return LDSParams(A, rng.normal(size=(d, l)), noise[0], noise[1], rng.normal(size=l), noise[2])


def with_gaps(y: np.ndarray, kind: str, shape: int) -> Cohort:
    """Return a cohort with gaps of a kind; all problems of a shape have the same ones, which programs depend on."""
    rng = np.random.default_rng([shape, 4])
    lengths = np.full(len(y), y.shape[1])
    if kind == "ragged":
        lengths[1:] = rng.integers(2, y.shape[1] + 1, len(y) - 1)
    elif kind != "none":
        size = y.shape if kind == "cells" else (*y.shape[:2], 1)
        holes = np.broadcast_to(rng.random(size) < (0.15 if kind == "cells" else 0.4), y.shape)
        y = np.where(holes & (np.arange(y.shape[1]) > 0)[:, None], np.nan, y)
    return Cohort.from_array(y, lengths=lengths)


def problem(seed: int) -> tuple[dict, Cohort, tuple, dict]:
    """Return the problem of a seed: a description, and the arguments of `fit_map`."""
    rng, about = np.random.default_rng([seed, 2]), configuration(seed % CONFIGURATIONS)
    l, d, N, T = SHAPES[about["shape"]]
    levels = CONSTRAINTS[about["constraints"]].C == "identity"
    true = random_params(rng, l, d, rng.uniform(0.1, 1.02))
    y = np.array(simulate(jax.random.key(seed), true, [T] * N).cohort.y)
    about["scale"] = 10.0 ** SCALES[rng.integers(len(SCALES))]
    cohort = with_gaps(about["scale"] * y, about["gaps"], about["shape"])
    about["standardised"] = bool(rng.random() < 0.7)
    cohort = cohort.standardize() if about["standardised"] else cohort
    l = d if levels else l
    beta = float(10 ** rng.uniform(-1, 2))
    about["start"] = "subspace" if levels else STARTS[rng.integers(len(STARTS))]
    options: dict = {"constraints": CONSTRAINTS[about["constraints"]], "seed": seed}
    options["priors"] = "weak" if about["weak"] else None
    if about["start"] == "given":  # any start, an explosive one too
        options["init"] = random_params(rng, l, d, rng.choice([0.5, 0.99, 1.5, 1000.0]))
    elif about["start"] == "random":
        options |= {"n_restarts": 2}
    elif not levels:
        options["init"] = about["start"]
    return about, cohort, (l, PRIORS[about["prior"]](beta)), options


def gain_in_A(cohort: Cohort, fit: FitResult) -> float:
    """Return the nats that proximal steps of any length in A alone would gain; JAX differentiates the likelihood."""
    k = fit.n_states
    core = np.asarray(fit.moving.A)

    def likelihood(core):
        return total_log_likelihood(
            fit.params._replace(A=fit.params.A.at[:k, :k].set(core)), cohort
        )

    value, g = jax.value_and_grad(likelihood)(core)
    before, best = float(value - fit.prior.value(core)), 0.0
    for step in 10.0 ** np.arange(-12, 3) / (1 + np.abs(g).max()):
        moved = np.asarray(fit.prior.majorant(core).prox(core + step * np.asarray(g), step))
        after = float(likelihood(moved) - fit.prior.value(moved))
        best = max(best, after - before) if np.isfinite(after) else best
    return best


def random_fit(seed: int, max_iter: int = 200) -> dict:
    """Fit the problem of a seed; one that converged goes on with a hundredth of the tolerance, and must not gain."""
    about, cohort, args, options = problem(seed)
    began, row = time.perf_counter(), {"seed": seed, **about}
    row |= {"nan": False, "fall": False, "false convergence": False, "converged": False}

    def case() -> str:
        fit = fit_map(cohort, *args, max_iter=max_iter, **options)
        falls = np.diff(fit.objective) < -1e-7 * (1 + np.abs(fit.objective[:-1]))
        row.update({"nan": not sound(fit), "fall": bool(falls.any()), "converged": fit.converged})
        row.update({"stop": fit.stop.name, "n_iter": fit.n_iter, "residual": fit.kkt_residual})
        row.update({"em": fit.steps["em"], "floor": any("floor" in x for x in fit.warnings)})
        row["objective"] = float(fit.objective[-1])
        if fit.stop is Stop.TOLERANCE:
            row["in A"] = gain_in_A(cohort, fit)
            row["false convergence"] = row["in A"] > FALSE
        if fit.stop is Stop.TOLERANCE and not row["floor"]:  # another fit would have lower floors
            again = {**options, "init": fit.params, "n_restarts": 1, "priors": fit.priors}
            more = fit_map(cohort, *args, max_iter=100, tol=1e-6, warm=True, **again)
            row["more"] = float(more.objective.max(initial=-np.inf) - fit.objective[-1])
            row["false convergence"] |= row["more"] > FALSE
        return "fit"

    row["outcome"] = outcome(case)
    return row | {"seconds": time.perf_counter() - began}


def report(fits: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of all that must not be, and of why fits stopped."""
    bad = fits[["nan", "fall", "false convergence"]].fillna(False).astype(bool).sum()
    ended = fits["outcome"].str.partition(":")[0].value_counts()
    said = {name: int(ended.get(name, 0)) for name in ("clear error", "traceback", "hang")}
    stops = {f"stop: {name}": n for name, n in fits["stop"].value_counts().items()}
    counts = {"fits": len(fits), **bad.to_dict(), **said, **stops}
    return pd.DataFrame({"what": list(counts), "count": list(counts.values())})


def convergence(fits: pd.DataFrame) -> pd.DataFrame:
    """Return how many fits converge within 400 and 2000 iterations, and why others stop, by where the noise went."""
    fits = fits[fits["outcome"] == "fit"].copy()
    fits["within 400"] = fits["converged"] & (fits["n_iter"] <= 400)
    fits["group"] = np.where(
        fits["weak"], "weak priors", np.where(fits["floor"], "at a floor", "no floor")
    )
    grouped = fits.groupby("group")
    table = (
        grouped[["within 400", "converged"]].sum().rename(columns={"converged": "within max_iter"})
    )
    stops = pd.crosstab(fits["group"], fits["stop"]).drop(columns="TOLERANCE", errors="ignore")
    table = pd.concat([grouped.size().rename("fits"), table, stops], axis=1)
    return pd.concat([table, table.sum().to_frame("all").T]).astype(int)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--max-iter", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/robustness"))
    parser.add_argument(
        "--report", action="store_true", help="the table of what is there; run nothing"
    )
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    # by configuration, so that a program is compiled once even if programs are forgotten
    seeds = sorted(range(args.seed, args.seed + args.fits), key=lambda s: s % CONFIGURATIONS)
    name = f"fits_{args.max_iter}"
    fits = kept(
        args.out / f"{name}.jsonl", seeds, lambda s: random_fit(s, args.max_iter), args.report
    )
    for table, file in ((report(fits), name), (convergence(fits), f"{name}_converged")):
        table.to_csv(args.out / f"{file}.csv", index=file != name)
        print(table.to_string(), end="\n\n")
    bad = fits[["nan", "fall", "false convergence"]].fillna(False).any(axis=1)
    bad |= fits["outcome"].str.startswith(("traceback", "hang"))
    for row in fits[bad].to_dict("records"):
        print(row)


if __name__ == "__main__":
    main()
