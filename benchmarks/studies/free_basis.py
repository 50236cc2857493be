"""Sample the full posterior in a free basis (Q = I, C free): what mixes, what does not, and what the verdict says.

python benchmarks free_basis [--states 2,3,5] [--draws 1000]     # some minutes each, more with more states

d = 3, 50 sequences of 30 steps, drawn from as many states as are fitted; the fit begins where it would for a user, and
the posterior is the default one. Rotations of the states change the likelihood by nothing: entries of A follow from the
data only as far as the prior on A tells rotations apart.
"""

import argparse
import time
import warnings

import jax
import numpy as np
import pandas as pd

from sparse_lds.inference import diagnose, fit_map, sample_posterior
from sparse_lds.models import Laplace, LDSParams, simulate


def truth_of(l: int, d: int = 3) -> LDSParams:
    """Draw a stable system of l states with Q = I and well-conditioned observations."""
    rng = np.random.default_rng(l)
    A = np.diag(np.linspace(0.9, 0.3, l)) + np.diag(0.3 * rng.choice([-1, 1], l - 1), -1)
    C = rng.normal(size=(d, l))
    return LDSParams(A, C, np.eye(l), 0.5 * np.eye(d), np.zeros(l), np.eye(l))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--states", default="2,3,5")
    parser.add_argument("--draws", type=int, default=1000, help="of each of four chains")
    parser.add_argument("--beta", type=float, default=10.0)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    rows, words = {}, {}
    for l in map(int, args.states.split(",")):
        cohort = simulate(jax.random.key(l), truth_of(l), [30] * 50).cohort
        fit = fit_map(cohort, l, Laplace(args.beta), Q="identity", priors="weak")
        start = time.perf_counter()
        options = {"num_samples": args.draws, "num_predictive": 0}
        posterior = sample_posterior(jax.random.key(1), cohort, fit, **options)
        seconds = time.perf_counter() - start
        verdict = diagnose(posterior)
        stats, data = posterior["sample_stats"], posterior["posterior"]
        for name, part in verdict.table.groupby("basis_free"):
            rows[f"l = {l}, " + ("basis-free" if name else "entries, aligned")] = {
                "quantities": len(part),
                "worst R-hat": part["r_hat"].max(),
                "R-hat <= 1.01": (part["r_hat"] <= 1.01).mean(),
                "least ESS": part[["ess_bulk", "ess_tail"]].min(axis=None),
                "gradients": float(stats["n_steps"].mean()),
                "divergences": int(stats["diverging"].sum()),
                "seconds": seconds,
            }
        words[l] = f"free: {data.attrs['free']}\n{verdict}"
        print(f"l = {l}: {words[l]}\n", flush=True)
    print(pd.DataFrame(rows).T.to_string(float_format=lambda x: f"{x:.4g}"))


if __name__ == "__main__":
    main()
