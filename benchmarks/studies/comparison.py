"""Judge the MAP's zeros by the posterior: 5 true states and a sparse A, and 8 states on such data.

    python benchmarks comparison --out results/comparison    # some minutes

In the first part C is held at the truth, so that entries of A have a meaning and can be scored. In the second the basis
is free, there are more states than the data has, and the verdict is to say what goes wrong. Figures go to the folder.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

from sparse_lds.experiments.figures import (
    plot_eigenvalues,
    plot_forecast_fan,
    plot_forest,
    plot_path,
    plot_transition,
)
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    fit_map,
    regularization_path,
    sample_posterior,
)
from sparse_lds.models import Laplace, LDSParams, simulate


def truth(l=5, d=5) -> LDSParams:
    """Make a truth: A has 9 of 25 entries; C is square and well conditioned, so that it pins the basis."""
    A = np.diag([0.9, 0.7, 0.8, 0.5, 0.6])
    A[1, 0], A[3, 2], A[4, 1], A[0, 4] = 0.3, -0.4, 0.3, -0.25
    rng = np.random.default_rng(1)
    C = np.eye(d, l) + 0.3 * rng.normal(size=(d, l))
    parts = A, C, 0.3 * np.eye(l), 0.2 * np.eye(d), np.zeros(l), np.eye(l)
    return LDSParams(*(jnp.asarray(x) for x in parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/comparison"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    matplotlib.use("Agg")
    args.out.mkdir(parents=True, exist_ok=True)
    true = truth()
    cohort = simulate(jax.random.key(0), true, [30] * 50).cohort
    beta = 40.0
    print(f"l = 5, C held at the truth, β = {beta:g}\n")
    fit = fit_map(cohort, 5, Laplace(beta), init=true, hold=("C",))
    print(fit.reason)
    posterior = sample_posterior(jax.random.key(1), cohort, fit)
    print(diagnose(posterior), "\n")
    comparison = compare_map_posterior(fit, posterior, truth=true.A)
    print(comparison, "\n", flush=True)
    path = regularization_path(cohort, 5, init=true, hold=("C",), n_betas=15)
    figures = {
        "transition": plot_transition(comparison),
        "forest": plot_forest(comparison),
        "path": plot_path(path, comparison, beta),
        "eigenvalues": plot_eigenvalues(fit, posterior),
        "fan": plot_forecast_fan(jax.random.key(2), fit, posterior, cohort, 0, 15),
    }
    for name, figure in figures.items():
        figure.savefig(args.out / f"{name}.png", dpi=120)

    three = true._replace(C=true.C[:3], R=true.R[:3, :3])
    cohort = simulate(jax.random.key(0), three, [30] * 50).cohort
    print("l = 8 on data of 5 states and 3 channels, basis free, β = 5\n")
    fit = fit_map(cohort, 8, Laplace(5.0))
    print(fit.reason, *fit.warnings, sep="\n")
    posterior = sample_posterior(jax.random.key(1), cohort, fit)
    print(diagnose(posterior), "\n")
    print(compare_map_posterior(fit, posterior))


if __name__ == "__main__":
    main()
