"""The demo on the built-in cohort: lab results, OLDS, SLDS with β chosen, NUTS, the MAP against its posterior."""

from pathlib import Path

from ...inference import FitResult, fit_em
from ...models import Cohort
from ..labs import Binned, bin_labs, labs_from_frame
from ..protocol import evaluate, last_value, lds_forecaster
from ..synthetic import synthetic_labs
from .fitting import Model, Say, fit_job
from .jobs import compare_job, forecast_job, posterior_job
from .report import Report


def run_demo(
    folder: Path,
    *,
    patients: int,
    n_states: int,
    draws: int,
    warmup: int,
    chains: int,
    seed: int,
    say: Say,
    progress: bool,
) -> None:
    """Run all jobs into one folder, where report.html is the file to look at."""
    binned, test = _patients(patients, say)
    train = binned.cohort
    olds = fit_em(train, n_states, max_iter=300, seed=seed)
    if olds.interrupted:
        raise KeyboardInterrupt
    say(f"OLDS: {olds.reason}")
    model = Model(n_states, own_levels="no", rule="one_se")  # a sparse picture
    slds = fit_job(train, folder, model, seed=seed, say=say, progress=progress)
    text = _errors(test, olds, slds)
    say(text)
    posterior = posterior_job(
        train,
        folder,
        slds,
        warmup=warmup,
        draws=draws,
        chains=chains,
        seed=seed,
        say=say,
        progress=progress,
    )
    forecast_job(binned, folder, slds, posterior, 6, prob=0.9, seed=seed, say=say)

    def extra(report: Report) -> None:
        report.heading("Forecasts of test patients")
        report.lines(text)

    compare_job(
        binned,
        folder,
        slds,
        posterior,
        epsilon=0.1,
        seed=seed,
        say=say,
        title="sparse-lds demo",
        extra=extra,
    )


def _patients(n: int, say: Say) -> tuple[Binned, Cohort]:
    """Return the first n patients, to train on, and the others, to test on, both standardised by the former."""
    labs = labs_from_frame(synthetic_labs().frame)
    binned = bin_labs(labs)
    log = ("The built-in cohort is synthetic: no patient is in it.", *binned.log)
    for line in log:
        say(line)
    cohort = binned.cohort
    if not 5 <= n <= len(cohort) - 100:
        raise ValueError(f"--patients is {n}; it must be from 5 to {len(cohort) - 100}")
    train = cohort.take(range(n)).standardize()
    test = cohort.take(range(n, len(cohort))).standardize_like(train)
    # rows of `measured` beyond the training patients are not used
    return binned._replace(cohort=train, log=log), test


def _errors(test: Cohort, olds: FitResult, slds: FitResult) -> str:
    """Return the forecast errors of both fits and of the last value on test patients, as lines of text."""
    errors = {
        "last value carried forward": evaluate(last_value, test),
        "OLDS": evaluate(lds_forecaster(olds.params), test),
        "SLDS": evaluate(lds_forecaster(slds.params), test),
    }
    lines = [f"{name:<28} {e.mean:.4f} ± {e.spread:.4f}" for name, e in errors.items()]
    head = f"AMAE on {len(test)} test patients, standardised units, mean ± sd of 10 repetitions"
    return "\n".join([head, *lines])
