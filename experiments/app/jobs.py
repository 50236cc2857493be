"""The jobs that the commands run: each takes a cohort and a folder, and writes files that other tools open."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ...inference import (
    Comparison,
    FitResult,
    compare_map_posterior,
    diagnose,
    identifiability_report,
    regularization_path,
    sample_posterior,
)
from ...inference.comparison.rules import explained
from ...inference.comparison.table import check_belongs
from ...inference.posterior.arviz_compat import group
from ...models import Cohort
from ...models.arguments import probability, whole
from ...models.files import write_whole
from ..figures import (
    plot_eigenvalues,
    plot_forecast_fan,
    plot_forest,
    plot_path,
    plot_transition,
)
from ..labs import Binned
from ..outputs import write_csv, write_figure
from ..saving import save_posterior
from .fitting import Model, Say, state_names, variance_table
from .forecasts import forecast_table
from .report import Report


def path_job(cohort: Cohort, folder: Path, model: Model, n_betas: int, *, say: Say, progress: bool):
    """Fit along a path of β, and write path.csv and path.png."""
    wanted = model.candidates(cohort)[0]
    path = regularization_path(
        cohort, wanted.n_states, wanted.prior, n_betas=n_betas, constraints=wanted.constraints, progress=progress,
        **model.options,
    )  # fmt: skip
    write_figure(folder / "path.png", plot_path(path), dpi=150)
    write_csv(folder / "path.csv", path.table(), index=False)
    say(path.table().to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    return path


def posterior_job(
    cohort: Cohort, folder: Path, fit: FitResult, *, warmup: int, draws: int, chains: int, seed: int, say: Say,
    progress: bool,
) -> Any:  # fmt: skip
    """Sample the posterior, write posterior.nc and verdict.txt; an interrupted run goes on from posterior_parts/."""
    say(f"posterior: {chains} chains of {warmup} warm-up steps and {draws} draws")
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
    save_posterior(
        posterior, folder / "posterior.nc"
    )  # last: its presence means that the job is done
    say(verdict)
    return posterior


def compare_job(
    binned: Binned, folder: Path, fit: FitResult, posterior: Any, *, epsilon: float, seed: int, say: Say, title: str,
    extra: Callable[[Report], None] | None = None,
) -> None:  # fmt: skip
    """Compare MAP and posterior, and write comparison.csv, confusion.csv, four figures and report.html."""
    cohort = binned.cohort
    states = state_names(fit, cohort)
    comparison = compare_map_posterior(fit, posterior, epsilon=epsilon, names=states)
    write_csv(folder / "comparison.csv", comparison.table)
    write_csv(folder / "confusion.csv", comparison.confusion, index_label="rule")
    say(str(comparison))
    report = Report(title)
    _add_skill(report, folder)
    report.heading("Data")
    report.lines(str(binned))
    if extra is not None:
        extra(report)
    report.heading("MAP fit")
    report.lines(str(fit))
    if fit.constraints.free("C"):
        report.text(
            "C, what a unit of each state adds to each test, in the tests' standard deviations:"
        )
        report.table(pd.DataFrame(np.asarray(fit.moving.C), list(cohort.channels), states))
    report.text("Shares of each test's variance:")
    report.table(variance_table(fit, cohort))
    if cohort.labels.logged:
        names = ", ".join(cohort.labels.logged)
        report.text(
            f"Of {names} the model has the logarithms: a unit is a standard deviation of these."
        )
    report.heading("Posterior")
    report.lines(str(diagnose(posterior)))
    _add_verdict(report, comparison)
    report.figure(
        plot_transition(comparison), "A by MAP and by posterior", folder / "transition.png"
    )
    report.figure(plot_forest(comparison), "Intervals of all entries", folder / "forest.png")
    report.figure(
        plot_eigenvalues(fit, posterior),
        "Eigenvalues, which no basis changes",
        folder / "eigenvalues.png",
    )
    _add_forecast(report, binned, folder, fit, posterior, seed)
    _add_identified(report, fit)
    report.heading("All entries")
    report.table(comparison.table.reset_index())
    report.write(folder / "report.html")


def _add_skill(report: Report, folder: Path) -> None:
    """Add how well the model forecasts held-out patients beside baselines, if the fit had patients to hold out."""
    file = folder / "skill.txt"
    if file.exists():
        verdict, *rest = file.read_text().split("\n")
        report.heading("Does it forecast?")
        report.text(verdict)
        report.lines("\n".join(rest))


def _add_verdict(report: Report, comparison: Comparison) -> None:
    """Add the comparison, and what its rules and columns mean."""
    report.heading("Does the posterior agree with the MAP's zeros?")
    report.lines(str(comparison))
    report.text(
        f"The rules call an entry zero if the following holds. {explained()}. MAP zero only: the MAP's zero is "
        "not confirmed; rule zero only: the MAP keeps an entry that the rule would not; kappa: agreement beyond "
        "chance, 1 at best. p_small is P(|A| < ε), p_sign the probability of the more probable sign, agreement the "
        "share of rules that say what the MAP says."
    )


def _add_forecast(
    report: Report, binned: Binned, folder: Path, fit: FitResult, posterior: Any, seed: int
) -> None:
    """Add the forecast of the second half of the longest sequence."""
    cohort = binned.cohort
    n = int(np.argmax(np.asarray(cohort.lengths)))
    given = int(cohort.lengths[n]) // 2
    fan = plot_forecast_fan(
        jax.random.key(seed), fit, posterior, cohort, n, given, measured=binned.measured
    )
    report.figure(fan, f"Forecast of {cohort.ids[n]}", folder / "forecast.png")
    report.text(
        f"A step is {binned.step}. This patient is one that the model was fitted to; where gaps are filled by "
        "lines, a line before the forecast may lead to a value after it."
    )


def _add_identified(report: Report, fit: FitResult) -> None:
    """Add which changes of basis the likelihood leaves open."""
    report.heading("What is identified")
    identified = identifiability_report(fit.params, fit.constraints)
    report.text("The posterior is in the basis of this fit.")
    if identified.n_directions:
        report.text("That basis is the penalty's choice and not the data's:")
    report.lines(str(identified))


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
    """Write forecast.csv: for each id, step ahead and test the median and an interval, in the units of the labs."""
    prob = probability("prob", prob)
    horizon = whole("horizon", horizon)
    if posterior is not None:
        check_belongs(fit, posterior)
    table = forecast_table(binned, fit, posterior, horizon, prob, seed)
    write_csv(folder / "forecast.csv", table)
    ahead = f"{horizon} step{'s' * (horizon > 1)} of {binned.step} ahead"
    say(f"forecasts of {len(binned.cohort)} ids, {ahead}, {prob:.0%} intervals")
    return table
