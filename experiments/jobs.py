"""What the commands do: each job takes a cohort and a folder, and writes files that other tools open."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.stats import norm

from ..inference import (
    FitResult,
    compare_map_posterior,
    diagnose,
    effective_states,
    fit_em,
    fit_map,
    identifiability_report,
    posterior_forecast,
    regularization_path,
    sample_posterior,
    select,
)
from ..inference.comparison import check_belongs
from ..inference.draws import group
from ..models import Cohort, Laplace, LDSParams, forecast, save_params
from ..models.files import write_whole
from .figures import (
    plot_eigenvalues,
    plot_forecast_fan,
    plot_forest,
    plot_path,
    plot_transition,
)
from .labs import Binned
from .report import Report
from .saving import save_fit, save_posterior

Say = Callable[[str], None]
_BASIS = (
    "identity"  # Q of penalised fits: with Q free the penalty on A has no minimum, and scales drift
)


def fit_job(
    cohort: Cohort,
    folder: Path,
    n_states: int,
    beta: float | None,
    *,
    starts: int,
    seed: int,
    say: Say,
    progress: bool,
) -> FitResult:
    """fit.json, params.json, A.csv. beta: None chooses it by held-out sequences, 0 is the ordinary LDS."""
    options: dict[str, Any] = {"seed": seed, "n_restarts": starts, "progress": progress}
    if beta is None:
        say("choosing β: fits along a path of 8 values, on 3 folds and on all")
        chosen = select(
            cohort,
            n_states,
            n_betas=8,
            n_folds=3,
            seed=seed,
            max_iter=500,
            Q=_BASIS,
            progress=progress,
        )
        chosen.table.to_csv(folder / "selection.csv", index=False)
        beta = chosen.one_se.beta
        if chosen.fit.interrupted:
            raise KeyboardInterrupt
        say(f"β = {beta:.4g} by held-out sequences (one-standard-error rule)")
    if beta == 0:
        fit = fit_em(cohort, n_states, **options)
    else:
        fit = fit_map(cohort, n_states, Laplace(beta), Q=_BASIS, **options)
    if fit.interrupted:
        raise KeyboardInterrupt
    save_fit(folder / "fit.json", fit)
    save_params(folder / "params.json", LDSParams(*(np.asarray(x) for x in fit.params)))
    names = [f"z{i}" for i in range(n_states)]
    pd.DataFrame(np.asarray(fit.params.A), names, names).to_csv(
        folder / "A.csv", index_label="to \\ from"
    )
    A = np.asarray(fit.params.A)
    say(
        f"{fit.reason}; {int((A == 0).sum())} of {A.size} entries of A are zero, "
        f"{len(effective_states(fit.params))} of {n_states} states are active"
    )
    for warning in fit.warnings:
        say(f"warning: {warning}")
    return fit


def path_job(
    cohort: Cohort, folder: Path, n_states: int, n_betas: int, *, say: Say, progress: bool
):
    """path.csv, path.png."""
    path = regularization_path(cohort, n_states, n_betas=n_betas, Q=_BASIS, progress=progress)
    path.table().to_csv(folder / "path.csv", index=False)
    plot_path(path).savefig(folder / "path.png", dpi=150)
    say(path.table().to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    return path


def posterior_job(
    cohort: Cohort, folder: Path, fit: FitResult, *, warmup: int, draws: int, chains: int, seed: int, say: Say,
    progress: bool,
) -> Any:  # fmt: skip
    """posterior.nc, verdict.txt; an interrupted run goes on from posterior_parts/."""
    say(f"NUTS: {chains} chains of {warmup} warm-up steps and {draws} draws")
    posterior = sample_posterior(
        jax.random.key(seed),
        cohort,
        fit,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        folder=folder / "posterior_parts",
        progress=progress,
    )
    if group(posterior, "posterior").attrs["interrupted"]:
        say("the draws so far are kept: the same command goes on from there")
        raise KeyboardInterrupt
    verdict = str(diagnose(posterior))
    write_whole(folder / "verdict.txt", verdict + "\n")
    save_posterior(posterior, folder / "posterior.nc")  # last: it says that all is there
    say(verdict)
    return posterior


def compare_job(
    binned: Binned, folder: Path, fit: FitResult, posterior: Any, *, epsilon: float, seed: int, say: Say, title: str,
    extra: Callable[[Report], None] | None = None,
) -> None:  # fmt: skip
    """comparison.csv, confusion.csv, four figures, report.html."""
    cohort = binned.cohort
    comparison = compare_map_posterior(fit, posterior, epsilon=epsilon)
    comparison.table.to_csv(folder / "comparison.csv")
    comparison.confusion.to_csv(folder / "confusion.csv", index_label="rule")
    say(str(comparison))
    report = Report(title)
    report.heading("Data")
    report.lines(str(binned))
    if extra is not None:
        extra(report)
    report.heading("MAP fit")
    report.lines(str(fit))
    report.text(
        "C, what a unit of each state adds to each test, in the tests' standard deviations:"
    )
    states = [f"z{i}" for i in range(fit.params.n_states)]
    report.table(pd.DataFrame(np.asarray(fit.params.C), list(cohort.channels), states))
    report.heading("Posterior of A, the rest held at the MAP")
    report.lines(str(diagnose(posterior)))
    report.heading("Does the posterior agree with the MAP's zeros?")
    report.lines(str(comparison))
    report.figure(
        plot_transition(comparison), "A by MAP and by posterior", folder / "transition.png"
    )
    report.figure(plot_forest(comparison), "Intervals of all entries", folder / "forest.png")
    report.figure(
        plot_eigenvalues(fit, posterior),
        "Eigenvalues, which no basis changes",
        folder / "eigenvalues.png",
    )
    n = int(np.argmax(np.asarray(cohort.lengths)))
    given = int(cohort.lengths[n]) // 2
    fan = plot_forecast_fan(
        jax.random.key(seed), fit, posterior, cohort, n, given, measured=binned.measured
    )
    report.figure(fan, f"Forecast of {cohort.ids[n]}", folder / "forecast.png")
    report.heading("What is identified")
    held = tuple(name for name in LDSParams._fields if name != "A")
    report.lines(f"Conditional posterior. {identifiability_report(fit.params, held)}")
    report.lines(f"The fit itself. {identifiability_report(fit.params, fit.spec.hold)}")
    report.heading("All entries")
    report.table(comparison.table.reset_index())
    report.write(folder / "report.html")


def forecast_job(
    binned: Binned,
    folder: Path,
    fit: FitResult,
    posterior: Any | None,
    horizon: int,
    *,
    prob: float,
    seed: int,
    say: Say,
) -> pd.DataFrame:
    """forecast.csv: for each id, step ahead and test the mean and an interval, in the units of the labs."""
    cohort = binned.cohort
    if not 0 < prob < 1:
        raise ValueError(f"prob is {prob}; it must be between 0 and 1")
    if posterior is not None:
        check_belongs(fit, posterior)
    if posterior is None:
        ahead = forecast(fit.params, cohort, horizon)
        half = norm.ppf((1 + prob) / 2) * np.sqrt(np.diagonal(ahead.cov, axis1=-2, axis2=-1))
        mean = np.asarray(ahead.mean)
        low, high = mean - half, mean + half
    else:
        draws = posterior_forecast(jax.random.key(seed), posterior, cohort, horizon)
        mean, (low, high) = draws.mean, draws.interval(prob)
    mean, low, high = (np.asarray(cohort.to_units(x)) for x in (mean, low, high))
    index = pd.MultiIndex.from_product(
        [cohort.ids, range(1, horizon + 1), cohort.channels], names=["id", "steps_ahead", "test"]
    )
    hours = binned.hours * index.get_level_values("steps_ahead")
    found = {"hours_ahead": hours, "mean": mean.ravel(), "low": low.ravel(), "high": high.ravel()}
    table = pd.DataFrame(found, index=index)
    table.to_csv(folder / "forecast.csv")
    say(f"forecasts of {len(cohort)} ids, {horizon} steps ahead, {prob:.0%} intervals")
    return table
