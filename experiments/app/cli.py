"""The command line: `sparse-lds demo`, `fit`, `path`, `posterior`, `compare`, `forecast`, `table1`."""

import functools
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from .options import DataOptions, reads_data
from .workspace import (
    AFTER_A_FIT,
    AFTER_A_POSTERIOR,
    OF_THE_DEMO,
    bin_cohort,
    check_free,
    folder_for,
    from_folder,
    load_cohort,
    remove,
    save_source,
    say,
    set_up,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    Path, typer.Argument(help="CSV, CSV.gz or Parquet: long, wide, or MIMIC labevents")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="folder for the results")]
Force = Annotated[bool, typer.Option("--force", help="overwrite results that are there")]
States = Annotated[
    int | None,
    typer.Option(
        "--states",
        "-l",
        min=1,
        help="number of hidden states; without it there is a state for each test, its true level",
        show_default="a state for each test",
    ),
]
Levels = Annotated[
    bool, typer.Option("--levels", help="a state for each test: the default, said in words")
]
Pull = Annotated[
    str,
    typer.Option(
        help="what A is pulled to: zero (the paper), off-diagonal (links alone to zero), or persistence (the identity)",
        show_default="persistence; with own levels off-diagonal; for hidden states zero",
    ),
]
OwnLevels = Annotated[
    str, typer.Option(help="whether each patient has a level of their own: auto, yes or no")
]
Noise = Annotated[str, typer.Option(help="Q of states that are tests: auto, diagonal or full")]
RuleName = Annotated[
    str,
    typer.Option(
        help="how held-out patients choose: best_error (forecasts), best_density, one_se (sparse) or best_bic"
    ),
]
Priors = Annotated[
    str, typer.Option(help="of noise and first states: weak, or none as in the paper")
]
Iterations = Annotated[int, typer.Option("--max-iter", min=1, help="iterations of the fit")]
Beta = Annotated[str, typer.Option(help="penalty on A: a number, 0 for the ordinary LDS, or auto")]
Starts = Annotated[int, typer.Option(help="starting points of the fit")]
Seed = Annotated[int, typer.Option(help="of everything random")]
Draws = Annotated[int, typer.Option(help="draws of each chain")]
Warmup = Annotated[int, typer.Option(help="warm-up of each chain")]
Chains = Annotated[int, typer.Option(help="chains")]


def _version(wanted: bool) -> None:
    """Print the version and end, if asked for."""
    if wanted:
        print(f"sparse-lds {version('sparse-lds')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show it")
    ] = False,
) -> None:
    """Sparse linear dynamical systems: a MAP fit with exact zeros, and the posterior that judges them."""


def told(command):
    """Return the command with its errors as one line and an exit code: 2 for what the user can mend, 130 for Ctrl-C."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            print("sparse-lds: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except (ValueError, TypeError, OSError, ImportError) as error:
            print(f"sparse-lds: {error}", file=sys.stderr)
            raise typer.Exit(2) from None

    return run


def _beta(text: str) -> float | None:
    """Return the number in --beta, None for auto."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--beta is {text!r}; it must be a number or auto") from None


@app.command()
@told
@reads_data
def fit(
    data: Data, out: Out = Path("results/fit"), states: States = None, levels: Levels = False, beta: Beta = "auto",
    pull: Pull = "", own_levels: OwnLevels = "auto", noise: Noise = "auto", rule: RuleName = "best_error",
    priors: Priors = "weak", starts: Starts = 3, seed: Seed = 0, max_iter: Iterations = 2000, force: Force = False, *,
    options: DataOptions,
) -> None:  # fmt: skip
    """Fit lab results, with a state for each test, or hidden states; say how well it forecasts beside baselines.

    Example: sparse-lds fit labs.csv --out results/mine

    Hidden states, as in the paper: sparse-lds fit labs.csv --states 5 --own-levels no --priors none

    Yearly visits, positive values: sparse-lds fit labs.csv --step 1y --log CREA,CRP
    """
    from .fitting import Model, fit_job

    if levels and states is not None:
        raise ValueError(f"--levels is given, and --states {states} besides; give one of them")
    model = Model(states, _beta(beta), pull, own_levels, noise, rule, priors)
    check_free(out, force, "fit.json", *AFTER_A_FIT)
    binned = load_cohort(data, options)
    folder = folder_for(out)
    remove(folder, *AFTER_A_FIT)
    fit_job(
        binned.cohort.standardize(),
        folder,
        model,
        starts=starts,
        seed=seed,
        max_iter=max_iter,
        say=say,
        progress=_progress(),
    )
    save_source(folder, data, options, binned.cohort)
    say(f"wrote {folder}/fit.json, params.json, A.csv, selection.csv, skill.csv, variance.csv")


@app.command()
@told
@reads_data
def path(
    data: Data, out: Out = Path("results/path"), states: States = None, pull: Pull = "", own_levels: OwnLevels = "no",
    noise: Noise = "auto", priors: Priors = "weak",
    betas: Annotated[int, typer.Option(help="values of β")] = 20, force: Force = False, *,
    options: DataOptions,
) -> None:  # fmt: skip
    """Fits over a grid of β.

    Example: sparse-lds path labs.csv --states 5 --betas 20
    """
    from .fitting import Model
    from .jobs import path_job

    model = Model(states, None, pull, own_levels, noise, priors=priors)
    check_free(out, force, "path.csv")
    binned = load_cohort(data, options)
    folder = folder_for(out)
    path_job(binned.cohort.standardize(), folder, model, betas, say=say, progress=_progress())
    say(f"wrote {folder}/path.csv, path.png")


@app.command()
@told
def posterior(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit")],
    draws: Draws = 1000, warmup: Warmup = 300, chains: Chains = 4, seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """NUTS around a fit: the posterior of A. Interrupted, the same command goes on.

    Example: sparse-lds posterior results/mine --draws 1000
    """
    from .jobs import posterior_job

    check_free(folder, force, "posterior.nc", other="")
    binned, found = from_folder(folder)
    if force:
        remove(folder, *AFTER_A_POSTERIOR)
    posterior_job(
        binned.cohort, folder, found, warmup=warmup, draws=draws, chains=chains, seed=seed, say=say,
        progress=_progress(),
    )  # fmt: skip
    say(f"wrote {folder}/posterior.nc, verdict.txt")


@app.command()
@told
def compare(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit and posterior")],
    epsilon: Annotated[float, typer.Option(help="what counts as nearly zero")] = 0.1,
    seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """The MAP's zeros against the posterior: table, figures, report.html.

    Example: sparse-lds compare results/mine --epsilon 0.1
    """
    from ..saving import load_posterior
    from .jobs import compare_job

    check_free(folder, force, "comparison.csv", "report.html", other="")
    binned, found = from_folder(folder)
    file = folder / "posterior.nc"
    if not file.exists():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no posterior; run sparse-lds posterior {folder} first"
        )
    draws = load_posterior(file)
    title = "MAP against posterior"
    compare_job(binned, folder, found, draws, epsilon=epsilon, seed=seed, say=say, title=title)
    say(f"wrote {folder}/report.html, comparison.csv, confusion.csv and figures")


@app.command()
@told
def forecast(
    folder: Annotated[Path, typer.Argument(help="folder of an earlier fit")],
    horizon: Annotated[int, typer.Option(help="steps ahead")] = 6,
    prob: Annotated[float, typer.Option(help="probability of the intervals")] = 0.9,
    seed: Seed = 0, force: Force = False,
) -> None:  # fmt: skip
    """Forecasts of the patients that were kept, after their last value; with the posterior's uncertainty if sampled.

    Example: sparse-lds forecast results/mine --horizon 6
    """
    from ..saving import load_posterior
    from .jobs import forecast_job

    check_free(folder, force, "forecast.csv", other="")
    binned, found = from_folder(folder)
    file = folder / "posterior.nc"
    draws = load_posterior(file) if file.exists() else None
    forecast_job(binned, folder, found, draws, horizon, prob=prob, seed=seed, say=say)
    say(f"wrote {folder}/forecast.csv")


@app.command()
@told
@reads_data
def table1(
    data: Annotated[str, typer.Argument(help="a file, or synthetic for the built-in cohort")] = "synthetic",
    out: Out = Path("results/table1"),
    states: Annotated[str, typer.Option(help="numbers of states, with commas")] = "2,3,4,5,6,7,8,9,12,15",
    sizes: Annotated[str, typer.Option(help="training patients, with commas")] = "50,100",
    repetitions: Annotated[int, typer.Option(help="repetitions of the random tasks")] = 10,
    starts: Starts = 3, workers: Annotated[int, typer.Option(help="processes")] = 2, seed: Seed = 0,
    force: Force = False, *, options: DataOptions,
) -> None:  # fmt: skip
    """The paper's Table 1 and Figures 1 and 2. Killed at any time, the same command goes on.

    Example: sparse-lds table1 synthetic --out results/table1
    """
    from ..labs import labs_from_frame
    from ..synthetic import synthetic_labs
    from ..table1 import Plan, run_table1, write_table1

    options = options._replace(gaps=options.gaps or "interpolate")
    folder = folder_for(out)
    if force:
        remove(folder, "cells", "run.json", "table1.csv", "table1.txt", "cells.csv")
    if data == "synthetic":
        binned = bin_cohort(labs_from_frame(synthetic_labs().frame), options)
    else:
        binned = load_cohort(Path(data), options)
    plan = Plan(
        states=_numbers("states", states), sizes=_numbers("sizes", sizes), repetitions=repetitions, n_starts=starts,
        seed=seed,
    )  # fmt: skip
    table = run_table1(binned.cohort, folder, plan, workers=workers, progress=_progress())
    files = write_table1(table, folder)
    say(table.text())
    say("wrote " + ", ".join(str(f) for f in files))


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers of an option that has them with commas."""
    try:
        found = tuple(int(x) for x in text.split(","))
    except ValueError:
        raise ValueError(f"--{name} is {text!r}; it must be whole numbers with commas") from None
    if min(found) < 1:
        raise ValueError(f"--{name} is {text!r}; it must be positive")
    return found


@app.command()
@told
def demo(
    out: Out = Path("results/demo"), draws: Draws = 600, warmup: Warmup = 300, chains: Chains = 4, seed: Seed = 0,
    force: Force = False,
) -> None:  # fmt: skip
    """Show it all on synthetic data whose truth is known: how many states, which test speaks to which, a report.

    Example: sparse-lds demo --out results/demo
    """
    from .demo import run_demo

    check_free(out, force, "fit.json", *AFTER_A_FIT)
    folder = folder_for(out)
    remove(folder, *AFTER_A_FIT, *OF_THE_DEMO)
    run_demo(
        folder, draws=draws, warmup=warmup, chains=chains, seed=seed, say=say, progress=_progress()
    )
    say(f"wrote {folder}/report.html: open it in a browser")


def _progress() -> bool:
    """Tell whether to show progress bars: a terminal is there to show them."""
    return sys.stderr.isatty()


def main() -> None:
    """Run the command line."""
    # matrices are small: threads of BLAS wait for each other longer than they work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    set_up()
    app()


if __name__ == "__main__":
    main()
