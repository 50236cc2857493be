"""Time a path of 30 values of β against a single fit, warm and cold, and compare where their fits end.

python benchmarks path               # levels and hidden states, with weak priors and without, complete and with gaps

The single fit is a cold one at the middle of the grid. "worst" is the least difference between the objective of a fit
of the path and that of a cold fit at the same β, in nats: below 0 the path ended lower. Compile time is apart.
"""

import argparse

import jax
import numpy as np
import pandas as pd
from timing import seconds, timed

from sparse_lds.inference import Constraints, fit_map, regularization_path
from sparse_lds.inference.selection.path import beta_grid
from sparse_lds.models import Cohort, Laplace, LDSParams, simulate

LEVELS, HIDDEN = Constraints.levels(independent=True), Constraints(Q="identity")


def cohort_of(gaps: bool) -> Cohort:
    """Return 50 sequences of 30 steps of a model with three levels, a quarter of the cells missing or none."""
    A = np.array([[0.9, 0.0, 0.1], [0.2, 0.7, 0.0], [0.0, 0.0, 0.5]])
    truth = LDSParams(A, np.eye(3), 0.1 * np.eye(3), 0.1 * np.eye(3), np.zeros(3), np.eye(3))
    cohort = simulate(jax.random.key(0), truth, [30] * 50).cohort
    if gaps:
        y = np.where(np.random.default_rng(0).random(cohort.y.shape) < 0.25, np.nan, cohort.y)
        cohort = Cohort.from_array(y)
    return cohort.standardize()


def compare(
    cohort: Cohort, n_states: int, prior: Laplace, constraints: Constraints, priors: str | None
) -> dict:
    """Return the times of a single fit, of a path and of cold fits, and where the path ends above or below them."""
    common = {"constraints": constraints, "priors": priors, "max_iter": 500}
    grid = beta_grid(cohort, n_states, prior, 30, **common)

    def single(beta):
        return fit_map(cohort, n_states, prior.scaled(float(beta)), **common)

    one = seconds(lambda: single(grid[15]), repeats=5)
    path, whole = timed(lambda: regularization_path(cohort, n_states, prior, betas=grid, **common))
    cold, each = timed(lambda: [single(beta) for beta in grid])
    gap = [a.objective[-1] - b.objective[-1] for a, b in zip(path.fits, cold, strict=True)]
    return {
        "single fit s": one,
        "path s": whole,
        "ratio": whole / one,
        "30 cold fits s": each,
        "cold ratio": each / one,
        "worst": min(gap),
        "best": max(gap),
    }


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.precision", 3)
    pull = Laplace.towards_persistence(1.0)
    rows = {}
    for gaps in (False, True):
        cohort, where = cohort_of(gaps), "gaps" if gaps else "complete"
        rows[f"levels, weak priors, {where}"] = compare(cohort, 3, pull, LEVELS, "weak")
        own = Constraints.levels(own=True, independent=True)
        rows[f"own levels, weak priors, {where}"] = compare(cohort, 3, pull, own, "weak")
        rows[f"5 hidden, weak priors, {where}"] = compare(cohort, 5, Laplace(1.0), HIDDEN, "weak")
        rows[f"5 hidden, no priors, {where}"] = compare(cohort, 5, Laplace(1.0), HIDDEN, None)
        print(pd.DataFrame(rows).T.to_string(), "\n", flush=True)


if __name__ == "__main__":
    main()
