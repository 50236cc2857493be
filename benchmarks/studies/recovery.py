"""Score the recovery of a sparse A in a known basis (C held): the MAP over β, and OLDS over thresholds.

python benchmarks recovery [--cohorts 10]
"""

import argparse

import jax
import numpy as np
import pandas as pd

from sparse_lds.inference import fit_em, regularization_path
from sparse_lds.models import LDSParams, simulate

BETAS = np.geomspace(3, 300, 9)
THRESHOLDS = np.geomspace(0.01, 0.5, 9)


def truth_of(seed, l=6) -> LDSParams:
    """Draw an A with a diagonal of memories and a fifth of the other entries."""
    rng = np.random.default_rng(seed)
    A = np.diag(rng.uniform(0.3, 0.8, size=l))
    others = (rng.random((l, l)) < 0.2) & ~np.eye(l, dtype=bool)
    A[others] = rng.choice([-1, 1], size=others.sum()) * rng.uniform(0.15, 0.4, size=others.sum())
    A *= min(1.0, 0.95 / np.abs(np.linalg.eigvals(A)).max())
    return LDSParams(A, np.eye(l), 0.5 * np.eye(l), 0.3 * np.eye(l), np.zeros(l), np.eye(l))


def scores(found, wanted) -> dict[str, float]:
    """Score a support that was found by the one that was wanted."""
    hits = (found & wanted).sum()
    precision, recall = hits / max(1, found.sum()), hits / wanted.sum()
    f1 = 2 * precision * recall / max(1e-12, precision + recall)
    return {"precision": precision, "recall": recall, "F1": f1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohorts", type=int, default=10)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 200, "display.precision", 3)
    rows = []
    for seed in range(args.cohorts):
        truth = truth_of(seed)
        cohort = simulate(jax.random.key(seed), truth, [20] * 50).cohort
        wanted = truth.A != 0
        path = regularization_path(cohort, 6, betas=BETAS, init=truth, hold=("C",))
        for beta, A in zip(path.betas, path.A, strict=True):
            rows.append({"method": "MAP", "at": beta, **scores(A != 0, wanted)})
        A = np.abs(np.asarray(fit_em(cohort, 6, init=truth, hold=("C",)).params.A))
        for threshold in THRESHOLDS:
            rows.append({"method": "OLDS", "at": threshold, **scores(A > threshold, wanted)})
    table = pd.DataFrame(rows).groupby(["method", "at"])[["precision", "recall", "F1"]].mean()
    print(f"means over {args.cohorts} cohorts, l = d = 6, N = 50, T = 20; at: β or the threshold\n")
    print(table.to_string())


if __name__ == "__main__":
    main()
