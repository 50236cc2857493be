"""Time the E-step and the gradient with gaps beside dynamax's without, statsmodels, simdkalman; EM and NUTS on a file.

Same N, T, d, l and parameters, float64, one run; dynamax cannot have gaps, and has the complete data. Times are medians
over interleaved repeats, with compile time apart.

    python benchmarks gaps                  # the table, some minutes
    python benchmarks gaps --quick          # the smallest size only
    python benchmarks gaps --one-core       # all packages on one core, processor time: the fairer comparison
    python benchmarks gaps --labs FILE.csv  # EM and NUTS on a lab file with its gaps, by both routes
"""

import argparse
import os
import time
import warnings
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import timing
from estep import SIZES, dynamax, problem
from timing import side_by_side, timed

from sparse_lds.models import Cohort, prepare
from sparse_lds.models.kalman import prepare as preparing
from sparse_lds.models.kalman import routes

warnings.filterwarnings("ignore")  # of the other packages

SHARES = {"1 %": 0.01, "10 %": 0.1, "30 %": 0.3, "60 %, whole panels": 0.6}
BARS = {  # ratio to dynamax's complete E-step, for the three sizes
    "1 %": (1.0, 10, 15),
    "10 %": (0.8, 6, 8),
    "30 %": (0.5, 2, 3),
    "60 %, whole panels": (0.5, 1.5, 1.5),
}


def with_gaps(cohort: Cohort, share: float, panels: bool) -> Cohort:
    """Take a share of the cells, or of whole steps, out of a cohort."""
    rng = np.random.default_rng(1)
    holes = rng.random(cohort.y.shape[:2] if panels else cohort.y.shape) < share
    return Cohort.from_array(np.where(holes[..., None] if panels else holes, np.nan, cohort.y))


def ready(params, cohort):
    """Make E-step and gradient of a cohort that is arranged once, as fits and NUTS do."""
    data = prepare(cohort, jnp.float64, n_states=params.n_states)
    estep = jax.jit(lambda p, x: x.expected_statistics(p))
    gradient = jax.jit(jax.value_and_grad(lambda p, x: x.log_likelihood(p)))
    return partial(estep, params, data), partial(gradient, params, data)


def routes_taken(params, cohort) -> np.ndarray:
    """Return the route of each sequence."""
    gaps = routes.count_gaps(np.asarray(cohort.mask), np.asarray(cohort.lengths))
    return routes.choose_routes(gaps, params.n_states, cohort.n_channels)


def floor(params, cohort):
    """Make the floor: the multiplications of the route taken by most sequences, as one product of large matrices."""
    l, d = params.n_states, params.n_channels
    gaps = routes.count_gaps(np.asarray(cohort.mask), np.asarray(cohort.lengths))
    route, Route = routes_taken(params, cohort), routes.Route
    cells = gaps.length * float(d)
    count = 0.0
    for name, k in ((Route.FILLED, gaps.k), (Route.OBSERVED, cells - gaps.k)):
        count += (k[route == name] ** 3.0 + 2 * cells[route == name] ** 2).sum()
    for name, steps in ((Route.FILTERED, gaps.length), (Route.SKIPPED, gaps.kept)):
        count += steps[route == name].sum() * (9 * l**3 + 12 * d * l**2)
    side = max(8, round(count ** (1 / 3)))
    x = jax.random.normal(jax.random.key(0), (side, side))
    return partial(jax.jit(lambda x: x @ x), x), count


def table(sizes, repeats) -> pd.DataFrame:
    """Time every size and share of gaps, ours beside dynamax's complete E-step and gradient."""
    rows = []
    for size in sizes:
        params, complete = problem(*size)
        estep_dx, gradient_dx = dynamax(params, complete)
        functions = {"E-step, dynamax": estep_dx, "gradient, dynamax": gradient_dx}
        about = {}
        for name, share in SHARES.items():
            cohort = with_gaps(complete, share, "panels" in name)
            functions[f"E-step {name}"], functions[f"gradient {name}"] = ready(params, cohort)
            functions[f"floor {name}"], count = floor(params, cohort)
            taken = Counter(route.name.lower() for route in routes_taken(params, cohort))
            about[name] = count, ", ".join(f"{n} {route}" for route, n in taken.items())
        times = side_by_side(functions, max(3, repeats // (1 + size[2] // 100)))
        ms = times["ms"]
        for name in SHARES:
            rows.append(
                {
                    "l, d, N, T": size,
                    "missing": name,
                    "E-step ms": ms[f"E-step {name}"],
                    "dynamax ms": ms["E-step, dynamax"],
                    "ratio": ms["E-step, dynamax"] / ms[f"E-step {name}"],
                    "bar": BARS[name][list(SIZES).index(size)],
                    "gradient ms": ms[f"gradient {name}"],
                    "ratio ": ms["gradient, dynamax"] / ms[f"gradient {name}"],
                    "floor ms": ms[f"floor {name}"],
                    "10^6 products": about[name][0] / 1e6,
                    "first call s": times.loc[f"E-step {name}", "first s"],
                    "route": about[name][1],
                }
            )
    return pd.DataFrame(rows).set_index(["l, d, N, T", "missing"])


def peers(repeats) -> pd.DataFrame:
    """Time statsmodels on one sequence with cells missing, and simdkalman on many with whole rows missing."""
    import simdkalman
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    functions = {}
    params, complete = problem(5, 3, 1, 50)
    cohort = with_gaps(complete, 0.1, False)
    A, C, Q, R, pi1, V1 = (np.asarray(x) for x in params)
    ks = KalmanSmoother(k_endog=3, k_states=5, k_posdef=5)
    ks.bind(np.asfortranarray(cohort.sequence(0).T))
    ks["design"], ks["transition"], ks["selection"] = C, A, np.eye(5)
    ks["obs_cov"], ks["state_cov"] = R, Q
    ks.initialize_known(pi1, V1)
    functions["one sequence, ours"], gradient = ready(params, cohort)
    functions["one sequence, statsmodels' smoother"] = lambda: ks.smooth().llf
    np.testing.assert_allclose(gradient()[0], ks.smooth().llf, rtol=1e-8)

    params, complete = problem(5, 3, 100, 50)
    rows = with_gaps(complete, 0.1, True)
    kf = simdkalman.KalmanFilter(*(np.asarray(x) for x in (params.A, params.Q, params.C, params.R)))
    y = np.where(rows.mask, rows.y, np.nan)
    first = dict(initial_value=np.asarray(params.pi1), initial_covariance=np.asarray(params.V1))
    functions["100 sequences, ours"], _ = ready(params, rows)
    functions["100 sequences, simdkalman's smoother"] = lambda: kf.smooth(y, **first)
    return side_by_side(functions, repeats)[["ms"]]


def labs(file: str) -> pd.DataFrame:
    """Time EM and NUTS on a lab file whose gaps are left missing, by the routes chosen and by the filter alone."""
    from sparse_lds.experiments.labs import bin_labs, read_labs
    from sparse_lds.inference import Constraints, fit_map, sample_posterior
    from sparse_lds.models import Laplace

    cohort = bin_labs(read_labs(file), gaps="missing").cohort.standardize()
    print(cohort)
    rows, chosen = {}, preparing.choose_routes
    for name in ("routes", "filter alone"):
        if name == "filter alone":
            preparing.choose_routes = lambda gaps, l, d: np.full(
                len(gaps.length), routes.Route.FILTERED
            )

        def fitted():
            return fit_map(
                cohort,
                cohort.n_channels,
                prior=Laplace.towards_persistence(10.0),
                constraints=Constraints.levels(),
                priors="weak",
            )

        fitted()  # compiles
        fit, em = timed(fitted)
        _, nuts = timed(
            lambda fit=fit: sample_posterior(
                jax.random.key(0), cohort, fit, num_samples=1000, num_chains=4, progress=False
            )
        )
        rows[name] = {"EM s": em, "iterations": fit.n_iter, "NUTS s": nuts}
    preparing.choose_routes = chosen
    return pd.DataFrame(rows).T


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--one-core", action="store_true", help="processor time of one core")
    parser.add_argument("--labs", metavar="FILE", help="EM and NUTS on this lab file, and no table")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if args.one_core:
        os.sched_setaffinity(0, {0})
        timing.clock = time.process_time
    pd.set_option("display.width", 220, "display.max_columns", 20, "display.precision", 3)
    if args.labs:
        print(labs(args.labs).to_string())
        return
    sizes = list(SIZES)[:1] if args.quick else list(SIZES)
    print("Gaps beside dynamax on complete data\n")
    for size in sizes:  # one by one, as the largest takes minutes
        print(table([size], args.repeats).to_string(), "\n", flush=True)
    print("Peers that take gaps, l = 5, d = 3, T = 50, 10 % missing\n")
    print(peers(args.repeats).to_string())


if __name__ == "__main__":
    main()
