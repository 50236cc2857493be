"""The jobs that the commands run: each takes a cohort and a folder, and writes files that other tools open."""

from collections.abc import Callable, Mapping, Sequence
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
    regularization_path,
    sample_posterior,
)
from ...inference.comparison.table import check_belongs
from ...inference.posterior.arviz_compat import group
from ...models import Cohort, Prior
from ...models.arguments import probability, whole
from ...models.files import write_whole
from ..figures import plot_path
from ..labs import Binned
from ..network import to_networkx, write_graph
from ..outputs import write_csv, write_figure
from ..saving import save_posterior
from .fitting import Model, Say, state_names
from .forecasts import forecast_table
from .report import Results, Section, write_report


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
    progress: bool, free: Sequence[str] | None = None, prior: Prior | None = None, target_accept: float = 0.8,
) -> Any:  # fmt: skip
    """Sample the posterior, write posterior.nc and verdict.txt; an interrupted run goes on from posterior_parts/."""
    say(f"posterior: {chains} chains of {warmup} warm-up steps and {draws} draws")
    posterior = sample_posterior(
        jax.random.key(seed),
        cohort,
        fit,
        free=free,
        prior=prior,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        target_accept=target_accept,
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
    truth: np.ndarray | None = None, extra: Sequence[Section] = (),
    notes: Callable[[Comparison], Sequence[str]] | None = None,
) -> Comparison:  # fmt: skip
    """Compare MAP and posterior, and write comparison.csv, confusion.csv, links.csv and .graphml, report.html, figures.

    `truth` is A where it is known, in the units of the fit; `extra` sections come first in the report, and what
    `notes` says of the comparison is at its head.
    """
    states = state_names(fit, binned.cohort)
    comparison = compare_map_posterior(fit, posterior, epsilon=epsilon, names=states, truth=truth)
    write_csv(folder / "comparison.csv", comparison.table)
    if comparison.inputs is not None:
        write_csv(folder / "comparison_inputs.csv", comparison.inputs)
    write_csv(folder / "confusion.csv", comparison.confusion, index_label="rule")
    write_graph(to_networkx(comparison), folder / "links.graphml")
    write_graph(to_networkx(comparison, every=True), folder / "links.csv")
    say(str(comparison))
    results = Results(
        folder,
        binned,
        fit,
        posterior,
        comparison,
        title,
        seed,
        truth,
        extra,
        () if notes is None else notes(comparison),
    )
    write_report(results)
    return comparison


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
    what_if: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Write forecast.csv: for each id, step ahead and test the median and an interval, in the units of the labs."""
    prob = probability("prob", prob)
    horizon = whole("horizon", horizon)
    if posterior is not None:
        check_belongs(fit, posterior)
    table = forecast_table(binned, fit, posterior, horizon, prob, seed, what_if)
    write_csv(folder / "forecast.csv", table)
    ahead = f"{horizon} step{'s' * (horizon > 1)} of {binned.step} ahead"
    say(f"forecasts of {len(binned.cohort)} ids, {ahead}, {prob:.0%} intervals")
    return table
