"""The whole way on the built-in cohort: lab results, OLDS, SLDS with β chosen, NUTS, the MAP against its posterior."""

from pathlib import Path

from ...inference import fit_em
from ..labs import bin_labs, labs_from_frame
from ..protocol import evaluate, last_value, lds_forecaster
from ..synthetic import synthetic_labs
from .jobs import Say, compare_job, fit_job, forecast_job, posterior_job
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
    """Everything that the jobs write, in one folder; report.html is the one to look at."""
    labs = labs_from_frame(synthetic_labs().frame)
    binned = bin_labs(labs)
    log = ("The built-in cohort is synthetic: no patient is in it.", *binned.log)
    for line in log:
        say(line)
    cohort = binned.cohort
    if not 5 <= patients <= len(cohort) - 100:
        raise ValueError(f"--patients is {patients}; it must be from 5 to {len(cohort) - 100}")
    train = cohort.take(range(patients)).standardize()
    binned = binned._replace(
        cohort=train, log=log
    )  # rows beyond the training patients are not used
    test = cohort.take(range(patients, len(cohort))).standardize_like(train)

    olds = fit_em(train, n_states, max_iter=300, seed=seed)
    if olds.interrupted:
        raise KeyboardInterrupt
    say(f"OLDS: {olds.reason}")
    slds = fit_job(train, folder, n_states, None, starts=1, seed=seed, say=say, progress=progress)
    errors = {
        "last value carried forward": evaluate(last_value, test),
        "OLDS": evaluate(lds_forecaster(olds.params), test),
        "SLDS": evaluate(lds_forecaster(slds.params), test),
    }
    lines = [f"{name:<28} {e.mean:.4f} ± {e.spread:.4f}" for name, e in errors.items()]
    text = "\n".join(
        [
            f"AMAE on {len(test)} test patients, standardised units, mean ± sd of 10 repetitions",
            *lines,
        ]
    )
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
