"""Time the routes of sequences with gaps, and fit the constants of the cost model in models/kalman/routes.py.

Processor time on one core, so that it can be run beside other work. Each row of the table is a cohort; a route's cost
is the mean of its E-step and of its value with gradient, in microseconds.

    python benchmarks routes               # some ten minutes, most of it compiling
    python benchmarks routes --quick       # three cohorts: whether it runs
"""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from estep import problem
from gaps import with_gaps
from scipy.optimize import nnls

from sparse_lds.models.kalman import prepare, routes
from sparse_lds.models.kalman.routes import Route

# l, N, T, share of cells missing, or of whole steps; d = 3
COHORTS = [
    (2, 40, 25, 0.25, False),
    (3, 30, 90, 0.7, True),
    (3, 300, 25, 0.1, False),
    (5, 100, 50, 0.1, False),
    (5, 100, 50, 0.6, True),
    (5, 400, 25, 0.5, False),
    (8, 8, 60, 0.3, True),
    (10, 128, 50, 0.3, False),
    (10, 128, 50, 0.6, True),
    (10, 50, 100, 0.8, True),
    (15, 60, 100, 0.3, False),
    (15, 60, 100, 0.6, True),
]


def cost(params, data, repeats=7) -> float:
    """Return the processor time of E-step and gradient, their mean, in microseconds."""
    functions = (
        jax.jit(lambda p, x: x.expected_statistics(p)),
        jax.jit(jax.value_and_grad(lambda p, x: x.log_likelihood(p))),
    )
    found = []
    for f in functions:
        times = []
        for _ in range(repeats + 1):
            start = time.process_time()
            jax.block_until_ready(f(params, data))
            times.append(time.process_time() - start)
        found.append(np.median(times[1:]))  # the first compiles
    return 1e6 * float(np.mean(found))


def measure(cohorts) -> pd.DataFrame:
    """Return a row for each cohort and route: its cost, and what the model says."""
    rows = []
    for l, N, T, share, steps in cohorts:
        params, complete = problem(l, 3, N, T)
        cohort = with_gaps(complete, share, steps)
        gaps = routes.count_gaps(np.asarray(cohort.mask), np.asarray(cohort.lengths))
        for route in (Route.FILTERED, Route.SKIPPED, Route.FILLED, Route.OBSERVED):
            if route is Route.FILTERED:
                data = prepare.arrange(cohort, jnp.float64, None, 8)
            elif route is Route.SKIPPED:
                data = prepare.skipped(cohort, jnp.float64)
            else:
                data = prepare.guarded(cohort, jnp.float64, None, route).dense
            terms = routes.terms(route, gaps, l, 3)
            said = routes.route_cost(route, gaps, l, 3)
            rows.append((route.name, l, N, T, share, steps, cost(params, data), said, terms))
            print(*rows[-1][:-2], f"model {said:.0f}", flush=True)
            jax.clear_caches()
    names = ["route", "l", "N", "T", "share", "steps", "us", "model", "terms"]
    return pd.DataFrame(rows, columns=names)


def fit(table: pd.DataFrame) -> None:
    """Print the constants of each route, by least squares of the relative error, none of them negative."""
    table = table[(table["route"] != "SKIPPED") | table["steps"]]  # it has nothing to skip else
    for route, part in table.groupby("route"):
        X, y = np.stack(part["terms"]), part["us"].to_numpy()
        found, _ = nnls(X / y[:, None], np.ones(len(y)))
        worst = np.abs(np.log(X @ found / y)).max()
        print(route, [f"{x:.3g}" for x in found], f"worst factor {np.exp(worst):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three cohorts only")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {0})
    table = measure(COHORTS[:3] if args.quick else COHORTS)
    wide = table.pivot_table(
        index=["l", "N", "T", "share"], columns="route", values=["us", "model"]
    )
    print(wide.round(0).astype(int).to_string())
    fit(table)


if __name__ == "__main__":
    main()
