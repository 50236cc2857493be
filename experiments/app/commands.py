"""The commands on a user's own data: `run`, and its steps `fit`, `posterior`, `compare` and `forecast`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .application import START, STEPS, app, progress, record, told
from .arguments import (
    Beta,
    Chains,
    Data,
    Draws,
    Epsilon,
    Force,
    Free,
    Horizon,
    Iterations,
    Levels,
    Noise,
    Out,
    OwnLevels,
    PriorName,
    Priors,
    Prob,
    Pull,
    RuleName,
    Seed,
    Starts,
    States,
    TargetAccept,
    Warmup,
    WhatIf,
)
from .help import SETTINGS, ShortHelp
from .options import DataOptions, check_states, reads_data
from .runs import interrupted, staged
from .workspace import (
    AFTER_A_FIT,
    AFTER_A_POSTERIOR,
    OF_A_COMPARISON,
    OF_A_FIT,
    anonymous,
    check_free,
    folder_for,
    from_folder,
    load_cohort,
    remove,
    save_key,
    save_source,
    say,
    source_of,
)


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=START)
@told
@reads_data
def run(
    data: Data, out: Out = Path("results/run"), states: States = None, levels: Levels = False, beta: Beta = "auto",
    pull: Pull = "", own_levels: OwnLevels = "auto", noise: Noise = "auto", rule: RuleName = "best_error",
    priors: Priors = "weak", starts: Starts = None, max_iter: Iterations = 2000, free: Free = "",
    prior: PriorName = "unknown", draws: Draws = 1000, warmup: Warmup = 300, chains: Chains = 4,
    target_accept: TargetAccept = 0.8, epsilon: Epsilon = 0.1, horizon: Horizon = 6, prob: Prob = 0.9,
    seed: Seed = 0, force: Force = False, *,
    options: DataOptions,
) -> None:  # fmt: skip
    """Go the whole way from a file to a report: all the steps.

    Example: sparse-lds run labs.csv --out results/mine
    """
    from ...models.forecasting import MissingInputError
    from .fitting import Model
    from .jobs import compare_job, forecast_job, posterior_job

    check_states(states, levels, starts)
    model = Model(states, _beta(beta), pull, own_levels, noise, rule, priors)
    chosen = _prior_named(prior)
    common = {"seed": seed, "say": say}
    folder, binned, found = _fitted(
        data, out, options, force, model, starts=starts or 3, max_iter=max_iter, progress=progress(), **common
    )  # fmt: skip
    drawn = posterior_job(
        binned.cohort, folder, found, warmup=warmup, draws=draws, chains=chains, free=_free(free), prior=chosen(found),
        target_accept=target_accept,
        progress=progress(), **common,
    )  # fmt: skip
    try:
        forecast_job(binned, folder, found, drawn, horizon, prob=prob, **common)
    except MissingInputError as error:
        say(f"no forecasts: {error}")
        say(f"under inputs of your own: sparse-lds forecast {folder} --what-if NAME=VALUE")
    compare_job(
        binned, folder, found, drawn, epsilon=epsilon, title=_title(source_of(folder)), **common
    )
    say(f"wrote {folder}/report.html: open it in a browser")


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=STEPS)
@told
@reads_data
def fit(
    data: Data, out: Out = Path("results/fit"), states: States = None, levels: Levels = False, beta: Beta = "auto",
    pull: Pull = "", own_levels: OwnLevels = "auto", noise: Noise = "auto", rule: RuleName = "best_error",
    priors: Priors = "weak", starts: Starts = None, seed: Seed = 0, max_iter: Iterations = 2000,
    force: Force = False, *, options: DataOptions,
) -> None:  # fmt: skip
    """Fit a file; say first whether it beats simple forecasts.

    There is a state for each test, or as many hidden ones as --states says.

    Example: sparse-lds fit labs.csv --out results/mine

    Hidden states, as in the paper: sparse-lds fit labs.csv --states 5 --own-levels no --priors none

    Yearly visits, positive values: sparse-lds fit labs.csv --step 1y --log CREA,CRP
    """
    from .fitting import Model

    check_states(states, levels, starts)
    model = Model(states, _beta(beta), pull, own_levels, noise, rule, priors)
    folder, _, _ = _fitted(
        data, out, options, force, model, starts=starts or 3, seed=seed, max_iter=max_iter, say=say,
        progress=progress(),
    )  # fmt: skip
    say(
        f"wrote {folder}/fit.json, params.json, A.csv, selection.csv, skill.csv, structures.csv, variance.csv"
    )


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=STEPS)
@told
def posterior(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit")],
    free: Free = "", prior: PriorName = "unknown", draws: Draws = 1000, warmup: Warmup = 300,
    chains: Chains = 4, target_accept: TargetAccept = 0.8, seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """Sample the posterior; interrupted, it goes on.

    Example: sparse-lds posterior results/mine --draws 1000
    """
    from .jobs import posterior_job

    chosen = _prior_named(prior)
    binned, found = from_folder(folder)
    check_free(folder, force, "posterior.nc", other="")
    if force:
        remove(folder, *AFTER_A_POSTERIOR)
    record(folder)
    posterior_job(
        binned.cohort, folder, found, warmup=warmup, draws=draws, chains=chains, free=_free(free), prior=chosen(found),
        target_accept=target_accept,
        seed=seed, say=say,
        progress=progress(),
    )  # fmt: skip
    say(f"wrote {folder}/posterior.nc, verdict.txt")


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=STEPS)
@told
def compare(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit and posterior")],
    epsilon: Epsilon = 0.1,
    seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """Judge the fit's zeros: report.html, tables, the graph.

    Example: sparse-lds compare results/mine --epsilon 0.1
    """
    from ..saving import load_posterior
    from .jobs import compare_job

    binned, found = from_folder(folder)
    check_free(folder, force, "report.html", other="")
    file = folder / "posterior.nc"
    if not file.exists():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no posterior; run sparse-lds posterior {folder} first"
        )
    draws = load_posterior(file)
    remove(folder, *OF_A_COMPARISON)
    record(folder)
    title = _title(source_of(folder))
    compare_job(binned, folder, found, draws, epsilon=epsilon, seed=seed, say=say, title=title)
    say(f"wrote {folder}/report.html, comparison.csv, links.csv, links.graphml and figures")


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=STEPS)
@told
def forecast(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit")],
    horizon: Horizon = 6, prob: Prob = 0.9, what_if: WhatIf = "",
    seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """Forecast what comes after each patient's last value.

    With the posterior's uncertainty, if it was sampled.

    Example: sparse-lds forecast results/mine --horizon 6
    """
    from ..saving import load_posterior
    from .jobs import forecast_job

    binned, found = from_folder(folder)
    check_free(folder, force, "forecast.csv", other="")
    file = folder / "posterior.nc"
    draws = load_posterior(file) if file.exists() else None
    record(folder)
    forecast_job(
        binned,
        folder,
        found,
        draws,
        horizon,
        prob=prob,
        seed=seed,
        say=say,
        what_if=_what_if(what_if),
    )
    say(f"wrote {folder}/forecast.csv")


def _fitted(
    data: Path, out: Path, options: DataOptions, force: bool, model: Any, **how: Any
) -> tuple[Path, Any, Any]:
    """Fit a file into a folder, in which all files of the fit appear together; return folder, data and fit."""
    from .fitting import fit_job

    force = force or interrupted(out)
    check_free(out, force, *OF_A_FIT, *AFTER_A_FIT)
    binned = load_cohort(data, options)
    folder = folder_for(out)
    check_free(out, force, *OF_A_FIT, *AFTER_A_FIT)  # now that no other command is at work there
    raw, ids = binned.cohort, binned.cohort.ids
    binned = anonymous(binned) if options.anonymous else binned
    binned = binned._replace(cohort=binned.cohort.standardize())
    with staged(folder, (*OF_A_FIT, *AFTER_A_FIT), say) as part:
        found = fit_job(binned.cohort, part, model, **how)
        if options.anonymous:
            save_key(folder, data, ids)
        save_source(part, data, options, raw)
    record(folder)
    return folder, binned, found


def _beta(text: str) -> float | None:
    """Return the number in --beta, None for auto."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--beta is {text!r}; it must be a number or auto") from None


def _what_if(text: str) -> dict[str, float]:
    """Return the inputs of --what-if, as dose=1,ventilated=0."""
    found = {}
    for part in (x.strip() for x in text.split(",") if x.strip()):
        name, _, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--what-if is {part!r}; write it as dose=1,ventilated=0") from None
    return found


def _free(text: str) -> tuple[str, ...] | None:
    """Return the parameters that --free names, None for all that the basis allows."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else None


def _prior_named(name: str) -> Callable[[Any], Any]:
    """Return a function of the fit that gives the prior of A that --prior names."""
    known = {"unknown": lambda fit: None, "fit": lambda fit: fit.prior, "spike-slab": _spike_slab}
    if name not in known:
        raise ValueError(f"--prior is {name!r}; it must be one of {', '.join(known)}")
    return known[name]


def _spike_slab(fit: Any) -> Any:
    from ...models import SpikeSlab

    return SpikeSlab()


def _title(data: Path) -> str:
    """Return the title of a report on a file; of anonymous results its name is not known."""
    return f"{data.name or 'Anonymous data'}: what moves it, and what is known of it"
