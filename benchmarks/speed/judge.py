"""Time the full posterior with β unknown and with spikes, with gaps and without, against plain NumPyro NUTS.

    python benchmarks judge                 # several minutes, on a machine that does nothing else
    python benchmarks judge --hard 4        # and gradients a draw on cohorts of the study of coverage

The cohort of notebook 3: l = d = 4, C = I held, R = 0.2 I, 40 sequences of 25 steps, complete and with a quarter of the
cells missing. Everything but C is sampled, by 2 chains of 300 + 500 draws. Seconds are of a second call, which compiles
nothing, with warm-up and all else that `sample_posterior` does. NumPyro's NUTS has the same model, our likelihood, its
own defaults, and 300 + 500 draws of one chain; its warm-up is not counted. Ratios are of one chain each.
"""

import argparse
import sys
import warnings
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from posterior import run
from timing import timed

from sparse_lds.inference import fit_map, sample_posterior
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.models import (
    Cohort,
    GammaLaplace,
    Laplace,
    LDSParams,
    SpikeSlab,
    lds_model,
    prepare,
    simulate,
)

sys.path.append(str(Path(__file__).parents[1] / "studies"))
from coverage import truth_of  # noqa: E402

warnings.filterwarnings("ignore")
A = np.array([[0.9, 0, 0, 0], [0.4, 0.6, 0, 0], [0.1, 0, 0.8, 0], [0, 0, -0.4, 0.5]])
DRAWS = {"num_warmup": 300, "num_samples": 500, "num_predictive": 0}


def cohort_of(truth: LDSParams, share: float, seed: int = 0) -> Cohort:
    """Draw 40 sequences of 25 steps, a share of whose cells is missing."""
    y = np.array(simulate(jax.random.key(seed), truth, [25] * 40).cohort.y)
    y[np.random.default_rng(seed).random(y.shape) < share] = np.nan
    return Cohort.from_sequences(list(y))


def least_ess(posterior, spikes: bool) -> float:
    """Return the least bulk ESS over the entries of A, or over the indicators that are undecided (5 to 95 %)."""
    data = az.group(posterior, "posterior")
    if not spikes:
        return float(az.ess(data[["A"]], "bulk")["A"].min())
    share = data["included"].values.mean((0, 1))
    ess = az.ess(data[["included"]].astype(float), "bulk")["included"].values
    return float(ess[(share > 0.05) & (share < 0.95)].min(initial=np.inf))


def ours(cohort, fit, prior, chains: int) -> dict[str, float]:
    """Time `sample_posterior`."""
    spikes = isinstance(prior, SpikeSlab)
    sample = partial(
        sample_posterior, cohort=cohort, fit=fit, prior=prior, num_chains=chains, **DRAWS
    )
    sample(jax.random.key(1))  # compiles
    posterior, took = timed(lambda: sample(jax.random.key(2)))
    ess, steps = least_ess(posterior, spikes), posterior["sample_stats"]["n_steps"]
    return {"gradients": float(steps.mean()), "ESS": ess, "seconds": took, "ESS/s": ess / took}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hard", type=int, default=2, help="cohorts of the study of coverage")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    I = np.eye(4)
    truth = LDSParams(A, I, 0.2 * I, 0.2 * I, np.zeros(4), I)
    common = {"hold": ("C",), "priors": "weak"}
    rows = {}
    for name, share in (("complete", 0.0), ("25 % missing", 0.25)):
        cohort = cohort_of(truth, share)
        fit = fit_map(cohort, 4, Laplace(15.0), init=truth, **common)
        for kind, prior in (("β unknown", GammaLaplace()), ("spikes", SpikeSlab(0.5))):
            for chains in (2, 1):
                rows[f"{name}, {kind}, {chains} chains"] = ours(cohort, fit, prior, chains)
        if args.peer:
            held = {"C": fit.params.C}
            options = {"priors": fit.priors, "held": held, "prepared": prepare(cohort, I.dtype)}
            plain = run(
                lds_model, (cohort, 4, GammaLaplace()), options, fit.params.A, 300, 500, repeats=3
            )
            one = rows[f"{name}, β unknown, 1 chains"]["ESS/s"]
            rows[f"{name}, plain NumPyro, 1 chain"] = {
                "gradients": plain["steps a draw"],
                "ESS": plain["ESS"],
                "ESS/s": plain["ESS/s"],
                "ours / this": one / plain["ESS/s"],
            }
        print(pd.DataFrame(rows).T.to_string(float_format=lambda x: f"{x:.3g}"), "\n", flush=True)
    for seed in range(args.hard):
        truth = truth_of(seed)
        cohort = cohort_of(truth, 0.0, seed)
        fit = fit_map(cohort, 4, Laplace(15.0), init=truth, **common)
        rows[f"hard, {seed}"] = ours(cohort, fit, GammaLaplace(), 2)
    print(pd.DataFrame(rows).T.to_string(float_format=lambda x: f"{x:.3g}"))


if __name__ == "__main__":
    main()
