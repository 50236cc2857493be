"""Check by simulation that the posterior is calibrated: A alone, all with C held, with β unknown, with spikes.

    python benchmarks sbc --simulations 200 --out results/sbc    # some minutes

Writes a figure and a CSV of ranks for each, and prints the tests of uniformity. `--only spikes` runs one of them.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro.distributions as dist

from sparse_lds.experiments.calibration import calibrate
from sparse_lds.models import GammaLaplace, Laplace, LDSParams, SpikeSlab


def system(l=2, d=3) -> LDSParams:
    """Make what is held: all of Ω but A."""
    rng = np.random.default_rng(0)
    C = rng.normal(size=(d, l))
    parts = np.zeros((l, l)), C, 0.5 * np.eye(l), 0.5 * np.eye(d), np.zeros(l), np.eye(l)
    return LDSParams(*(jnp.asarray(x) for x in parts))


def held_C_priors(l=2, d=3) -> dict:
    """Make the priors of what is free beside A."""
    return {
        "Q": dist.InverseWishart(l + 4.0, scale_matrix=1.5 * jnp.eye(l)),
        "R": dist.InverseWishart(d + 4.0, scale_matrix=1.5 * jnp.eye(d)),
        "pi1": dist.Normal(jnp.zeros(l), 1.0).to_event(1),
        "V1": dist.InverseWishart(l + 4.0, scale_matrix=3.0 * jnp.eye(l)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--only", default="", help="names of runs, with commas")
    parser.add_argument("--out", type=Path, default=Path("results/sbc"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    matplotlib.use("Agg")
    args.out.mkdir(parents=True, exist_ok=True)
    lengths = [8] * 8
    every = {"free": ("A", "Q", "R", "pi1", "V1"), "priors": held_C_priors()}
    runs = {
        "conditional": (Laplace(3.0), {"free": ("A",)}),
        "held_C": (Laplace(3.0), every),
        "beta_unknown": (GammaLaplace(6.0, 2.0), every),
        "spikes": (SpikeSlab(0.5), every),
    }
    wanted = args.only.split(",") if args.only else list(runs)
    for name, (prior, options) in ((name, runs[name]) for name in wanted):
        found = calibrate(
            jax.random.key(0),
            system(),
            lengths,
            prior,
            n_simulations=args.simulations,
            progress=True,
            **options,
        )
        found.ranks.to_csv(args.out / f"{name}.csv", index=False)
        found.figure().savefig(args.out / f"{name}.png", dpi=150)
        table = found.table()
        print(f"{name}: {args.simulations} simulations, {len(table)} scalars")
        print(table.to_string(float_format=lambda x: f"{x:.3f}"))
        smallest = table[["chi2_p", "ks_p"]].min().min()
        print(
            f"smallest p-value {smallest:.4f}; Bonferroni bound at 5%: {0.05 / (2 * len(table)):.4f}\n"
        )


if __name__ == "__main__":
    main()
