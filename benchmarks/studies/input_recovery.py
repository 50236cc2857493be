"""Score the recovery of a sparse B, which input moves which state: β by `select`, against thresholded OLDS.

python benchmarks input_recovery [--cohorts 10]     # writes benchmarks/results/inputs/recovery.csv

Each state is the level of a channel (C = I, D = 0). The prior is Laplace on [A B] with one β, chosen by held-out
sequences. OLDS is the same model without a prior on A and B, with the entries of B below a threshold set to zero; the
best threshold in hindsight, which no user knows, is shown as well as those fixed beforehand.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from sparse_lds.inference import Constraints, fit_em, select
from sparse_lds.models import Cohort, Laplace, LDSParams, simulate

RESULTS = Path(__file__).resolve().parents[1] / "results" / "inputs"
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2)
RULES = ("best_density", "one_se", "best_bic")
LEVELS = Constraints(C="identity", hold=("D",), diagonal=("R",))
L, P, N, T = 4, 4, 40, 20


def problem(seed: int) -> tuple[LDSParams, Cohort]:
    """Draw a model with a sparse [A B] and a cohort: half of the inputs are doses, half are switches."""
    rng = np.random.default_rng(seed)
    A = np.diag(rng.uniform(0.4, 0.8, size=L))
    others = (rng.random((L, L)) < 0.2) & ~np.eye(L, dtype=bool)
    A[others] = rng.choice([-1, 1], size=others.sum()) * rng.uniform(0.15, 0.4, size=others.sum())
    A *= min(1.0, 0.95 / np.abs(np.linalg.eigvals(A)).max())
    on = rng.random((L, P)) < 0.3
    on[rng.integers(L), rng.integers(P)] = True  # at least one effect
    B = np.where(on, rng.choice([-1, 1], size=on.shape) * rng.uniform(0.15, 0.6, size=on.shape), 0)
    I, zero = np.eye(L), np.zeros((L, P))
    truth = LDSParams(A, I, 0.5 * I, 0.3 * I, np.zeros(L), I, B, zero)
    us = [
        np.hstack([rng.normal(size=(T, P // 2)), rng.random((T, P - P // 2)) < 0.4])
        for _ in range(N)
    ]
    return truth, simulate(jax.random.key(seed), truth, lengths=[T] * N, inputs=us).cohort


def scores(found: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Score a support that was found by the one that was wanted."""
    hits = (found & wanted).sum()
    precision, recall = hits / max(1, found.sum()), hits / wanted.sum()
    f1 = 2 * precision * recall / max(1e-12, precision + recall)
    return {"precision": precision, "recall": recall, "F1": f1}


def rows_of(seed: int) -> list[dict]:
    """Return the scores of every method on one cohort."""
    truth, cohort = problem(seed)
    wanted = np.asarray(truth.B) != 0
    found = select(
        cohort, L, Laplace(1.0, beta_B=1.0), constraints=LEVELS, priors="weak", n_betas=10,
        max_iter=150, tol=1e-3,
    )  # fmt: skip
    rows = []
    for rule in RULES:
        fit = found._replace(rule=rule).fit
        rows.append({"method": f"select, {rule}", **scores(~fit.zeros_B, wanted)})
    size = np.abs(np.asarray(fit_em(cohort, L, constraints=LEVELS, priors="weak").params.B))
    for threshold in THRESHOLDS:
        rows.append({"method": f"OLDS above {threshold:g}", **scores(size > threshold, wanted)})
    each = [scores(size >= x, wanted) for x in np.unique(size)]
    rows.append({"method": "OLDS, best in hindsight", **max(each, key=lambda x: x["F1"])})
    return [{"cohort": seed, "effects": int(wanted.sum()), **row} for row in rows]


def main() -> None:
    """Run the study, print the means and save all rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohorts", type=int, default=10)
    jax.config.update("jax_enable_x64", True)
    rows: list[dict] = []
    n = parser.parse_args().cohorts
    for seed in range(n):
        rows += rows_of(seed)
        print(f"cohort {seed + 1} of {n}", flush=True)
    table = pd.DataFrame(rows)
    RESULTS.mkdir(parents=True, exist_ok=True)
    table.to_csv(RESULTS / "recovery.csv", index=False, float_format="%.4f")
    means = table.groupby("method", sort=False)[["precision", "recall", "F1"]].mean()
    print(f"means over {n} cohorts, l = d = {L}, p = {P}, N = {N}, T = {T}\n")
    print(means.to_string(float_format=lambda x: f"{x:.3f}"))


if __name__ == "__main__":
    main()
