"""Time EM against dynamax and pykalman, accelerated EM against plain EM, a path against a single fit.

    python benchmarks em            # everything, some minutes
    python benchmarks em --quick    # the peers only

One run, float64, medians of repeats, compile time apart: every fit is run once untimed.
"""

import argparse
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from estep import dynamax_model, problem
from timing import seconds, timed

from sparse_lds.inference import fit_em, fit_map, initial_params
from sparse_lds.models import Flat, Laplace, LDSParams, simulate

warnings.filterwarnings("ignore")  # of the other packages


def dynamax(params, cohort, n):
    """Make n steps of `LinearGaussianConjugateSSM.fit_em`, compiled here once instead of at every call."""
    model, start, props = dynamax_model(params)
    y = jnp.asarray(cohort.y)

    @jax.jit
    def step(params, state):
        stats, log_probs = jax.vmap(partial(model.e_step, params))(y)
        value = model.log_prior(params) + log_probs.sum()
        return *model.m_step(params, props, stats, state), value

    def run():
        params, state = start, model.initialize_m_step_state(start, props)
        values = []
        for _ in range(n):
            params, state, value = step(params, state)
            values.append(value)
        return values

    return run


def pykalman(params, cohort, n):
    """Make n steps of pykalman's EM, on the first sequence."""
    from pykalman import KalmanFilter

    A, C, Q, R, pi1, V1 = (np.asarray(x) for x in params)
    y = cohort.sequence(0)

    def run():
        kf = KalmanFilter(A, C, Q, R, initial_state_mean=pi1, initial_state_covariance=V1)
        names = "transition_matrices observation_matrices transition_covariance "
        names += "observation_covariance initial_state_mean initial_state_covariance"
        kf.em(y, n_iter=n, em_vars=names.split())

    return run


def peers(n=100) -> pd.DataFrame:
    """Time n plain EM iterations at l, d, T = 5, 3, 50, all of Ω learned."""
    rows = {}
    for N, peer, bar in ((100, dynamax, 5), (1, pykalman, 20)):
        params, cohort = problem(5, 3, N, 50)
        ours = partial(fit_em, cohort, 5, init=params, accelerate=False, max_iter=n, tol=0.0)
        mine, theirs = seconds(ours), seconds(peer(params, cohort, n), repeats=3)
        rows[f"{peer.__name__}, N = {N}"] = {
            "ours ms": 1e3 * mine,
            "theirs ms": 1e3 * theirs,
            "ratio": theirs / mine,
            "bar": bar,
        }
    return pd.DataFrame(rows).T


def cohort_of(seed, l=5, d=3, N=50, T=30):
    """Draw a cohort from a random LDS whose A has spectral radius 0.9."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(l, l))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    C = rng.normal(size=(d, l))
    truth = LDSParams(A, C, np.eye(l), 0.5 * np.eye(d), np.zeros(l), np.eye(l))
    return simulate(jax.random.key(seed), truth, [T] * N).cohort


def acceleration(n_cohorts=10, n_plain=5000) -> pd.DataFrame:
    """Time accelerated EM to the objective that plain EM has after n_plain iterations; NaN: not reached."""
    rows = []
    for prior in (Flat(), Laplace(5.0)):
        for seed in range(n_cohorts):
            cohort = cohort_of(seed)
            fit = partial(fit_map, cohort, 5, prior, init=initial_params(cohort, 5), tol=0.0)
            fit(accelerate=False, max_iter=25)
            plain, plain_s = timed(partial(fit, accelerate=False, max_iter=n_plain))
            trace = fit(max_iter=2000).objective
            there = np.flatnonzero(trace >= plain.objective[-1])
            fast_s = np.nan
            if there.size:
                fast_s = seconds(partial(fit, max_iter=int(there[0]) + 1), repeats=3)
            rows.append(
                {
                    "prior": type(prior).__name__,
                    "cohort": seed,
                    "plain s": plain_s,
                    "accelerated s": fast_s,
                    "iterations": there[0] + 1 if there.size else np.nan,
                    "ratio": plain_s / fast_s,
                    "gain": trace[-1] - plain.objective[-1],
                }
            )
    return pd.DataFrame(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the peers only")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.precision", 3)
    print("100 EM iterations, l, d, T = 5, 3, 50\n")
    print(peers().to_string(), "\n", flush=True)
    if args.quick:
        return
    print("To the objective of 5000 plain EM iterations, l, d, N, T = 5, 3, 50, 30\n")
    table = acceleration()
    print(table.to_string(index=False), "\n")
    print(
        table.groupby("prior")["ratio"].describe()[["count", "min", "50%", "max"]], "\n", flush=True
    )


if __name__ == "__main__":
    main()
