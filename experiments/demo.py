"""A small run from data to posterior: `make demo`, or `python -m sparse_lds.experiments.demo`."""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from numpyro.infer import MCMC, NUTS

from ..models import (
    Cohort,
    Laplace,
    LDSParams,
    expected_statistics,
    forecast,
    kalman_smoother,
    lds_model,
    log_likelihood,
    simulate,
)


def example_params() -> LDSParams:
    """Three states with a sparse A: a slow one that drives a fast one, and one on its own."""
    A = np.array([[0.95, 0.0, 0.0], [0.4, 0.5, 0.0], [0.0, 0.0, 0.8]])
    C = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.0], [0.2, 0.0, 1.0]])
    Q, R = 0.1 * np.eye(3), 0.2 * np.eye(3)
    return LDSParams(*(jnp.asarray(x) for x in (A, C, Q, R, np.zeros(3), np.eye(3))))


def example_cohort(key, params: LDSParams, n_sequences: int, missing: float) -> Cohort:
    """Ragged sequences with cells missing at random."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(15, 40, n_sequences)
    complete = simulate(key, params, lengths, channels=("a", "b", "c")).cohort
    gappy = [np.where(rng.random(y.shape) < missing, np.nan, y) for y in complete.sequences()]
    return Cohort.from_sequences(gappy, channels=complete.channels)


def forecast_figure(params: LDSParams, cohort: Cohort, sequence: int, given: int):
    """Observations, smoothed signal up to `given`, and the forecast from there with its 90% band."""
    y = cohort.sequence(sequence)
    seen = Cohort.from_sequences([y[:given]], channels=cohort.channels)
    smooth, ahead = kalman_smoother(params, seen), forecast(params, seen, len(y) - given)
    C = params.C
    signal = smooth.mean[0] @ C.T
    sd_signal = jnp.sqrt(jnp.einsum("ij,tjk,ik->ti", C, smooth.cov[0], C))
    sd_ahead = jnp.sqrt(jnp.diagonal(ahead.cov[0], axis1=-2, axis2=-1))
    steps = np.arange(1, len(y) + 1)
    figure, axes = plt.subplots(
        cohort.n_channels, 1, sharex=True, figsize=(7, 6), layout="constrained"
    )
    for j, axis in enumerate(axes):
        for t, mean, sd, color, label in (
            (steps[:given], signal[:, j], sd_signal[:, j], "C0", "smoothed signal, 90%"),
            (steps[given:], ahead.mean[0, :, j], sd_ahead[:, j], "C1", "forecast of y, 90%"),
        ):
            axis.plot(t, mean, color=color, label=label)
            axis.fill_between(t, mean - 1.645 * sd, mean + 1.645 * sd, color=color, alpha=0.2, lw=0)
        axis.plot(steps, y[:, j], "k.", ms=4, label="observed")
        axis.axvline(given + 0.5, color="0.7", lw=0.8)
        axis.set_ylabel(f"channel {cohort.channels[j]}")
    axes[0].legend(
        ncols=3, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.3)
    )
    axes[-1].set_xlabel("step")
    return figure


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description="A small run from data to posterior.")
    parser.add_argument("--out", type=Path, default=Path("results/demo"), help="folder to write")
    args = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("Agg")  # a file is written, no window opened
    start = time.perf_counter()

    def say(text):
        print(f"[{time.perf_counter() - start:5.1f} s] {text}", flush=True)

    params = example_params()
    cohort = example_cohort(jax.random.key(0), params, n_sequences=60, missing=0.15)
    say(f"simulated {cohort}")
    say(f"log-likelihood at the truth: {log_likelihood(params, cohort).sum():.2f}")
    stats = expected_statistics(params, cohort)
    A_hat = np.linalg.solve(stats.S00, stats.S10.T).T
    say(f"one E-step from the truth moves A by at most {np.abs(A_hat - params.A).max():.3f}")

    given = np.asarray(cohort.lengths) - 5
    ahead = forecast(params, cohort, 5, given)
    half = 1.645 * np.sqrt(np.diagonal(ahead.cov, axis1=-2, axis2=-1))
    rows = np.arange(len(cohort))[:, None], given[:, None] + np.arange(5)
    error = np.where(cohort.mask[rows], cohort.y[rows] - ahead.mean, np.nan)
    covered = np.nanmean(np.where(np.isnan(error), np.nan, np.abs(error) < half))
    say(f"forecasts of the last 5 steps: 90% intervals cover {covered:.1%} of the observed values")

    held = {name: x for name, x in params._asdict().items() if name != "A"}
    mcmc = MCMC(NUTS(lds_model), num_warmup=200, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(1), cohort, 3, Laplace(5.0), held=held)
    A = np.asarray(mcmc.get_samples()["A"])
    say("posterior of A given the rest (NUTS, 300 draws), mean ± sd beside the truth:")
    for i in range(3):
        cells = (
            f"{A[:, i, j].mean():6.2f} ± {A[:, i, j].std():.2f} ({params.A[i, j]:.2f})"
            for j in range(3)
        )
        print("          " + "   ".join(cells))

    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "forecast.png"
    forecast_figure(params, cohort, sequence=0, given=20).savefig(path, dpi=150)
    say(f"wrote {path}")


if __name__ == "__main__":
    main()
