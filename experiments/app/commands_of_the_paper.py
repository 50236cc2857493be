"""The commands that show the package: `demo`, and those of the paper, `path` and `table1`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import PAPER, START, app, progress, told
from .arguments import (
    Chains,
    Data,
    Draws,
    Force,
    Levels,
    Noise,
    Out,
    OwnLevels,
    Priors,
    Pull,
    Seed,
    Starts,
    States,
    Warmup,
)
from .help import SETTINGS, ShortHelp
from .options import DataOptions, check_states, not_ignored, reads_data
from .workspace import (
    AFTER_A_FIT,
    OF_A_FIT,
    OF_THE_DEMO,
    bin_cohort,
    check_free,
    folder_for,
    load_cohort,
    remove,
    say,
)


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=START)
@told
def demo(
    out: Out = Path("results/demo"), draws: Draws = 600, warmup: Warmup = 300, chains: Chains = 4, seed: Seed = 0,
    force: Force = False,
) -> None:  # fmt: skip
    """See it all on synthetic data whose truth is known.

    Example: sparse-lds demo --out results/demo
    """
    from .demo import run_demo

    check_free(out, force, *OF_A_FIT, *AFTER_A_FIT)
    folder = folder_for(out)
    check_free(out, force, *OF_A_FIT, *AFTER_A_FIT)
    remove(folder, "source.json", *OF_A_FIT, *AFTER_A_FIT, *OF_THE_DEMO)
    run_demo(
        folder, draws=draws, warmup=warmup, chains=chains, seed=seed, say=say, progress=progress()
    )
    say(f"wrote {folder}/report.html: open it in a browser")


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=PAPER)
@told
@reads_data
def path(
    data: Data, out: Out = Path("results/path"), states: States = None, levels: Levels = False, pull: Pull = "",
    own_levels: OwnLevels = "no", noise: Noise = "auto", priors: Priors = "weak",
    betas: Annotated[int, typer.Option(help="values of β")] = 20, force: Force = False, *,
    options: DataOptions,
) -> None:  # fmt: skip
    """Fit over a grid of β.

    Example: sparse-lds path labs.csv --states 5 --betas 20
    """
    from .fitting import Model
    from .jobs import path_job

    check_states(states, levels)
    not_ignored(options, anonymous=False, why="the results of path hold no ids")
    model = Model(states, None, pull, own_levels, noise, priors=priors)
    check_free(out, force, "path.csv")
    binned = load_cohort(data, options)
    folder = folder_for(out)
    check_free(out, force, "path.csv")
    path_job(binned.cohort.standardize(), folder, model, betas, say=say, progress=progress())
    say(f"wrote {folder}/path.csv, path.png")


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=PAPER)
@told
@reads_data
def table1(
    data: Annotated[str, typer.Argument(help="a file, or synthetic for the built-in cohort")] = "synthetic",
    out: Out = Path("results/table1"),
    states: Annotated[str, typer.Option(help="numbers of states, with commas")] = "2,3,4,5,6,7,8,9,12,15",
    sizes: Annotated[str, typer.Option(help="training patients, with commas")] = "50,100",
    repetitions: Annotated[int, typer.Option(help="repetitions of the random tasks")] = 10,
    starts: Starts = None, workers: Annotated[int, typer.Option(help="processes")] = 2, seed: Seed = 0,
    force: Force = False, *, options: DataOptions,
) -> None:  # fmt: skip
    """Make the paper's Table 1; killed, it goes on.

    Example: sparse-lds table1 synthetic --out results/table1
    """
    from ..labs import labs_from_frame
    from ..synthetic import synthetic_labs
    from ..table1 import Plan, run_table1, write_table1

    not_ignored(options, anonymous=False, why="the results of table1 hold no ids")
    if data == "synthetic":
        of_a_file = (
            "kind",
            "id",
            "time",
            "time_unit",
            "any_times",
            "decimal",
            "thousands",
            "test",
            "value",
        )
        defaults = DataOptions._field_defaults
        not_ignored(
            options, **{k: defaults[k] for k in of_a_file}, why="the built-in cohort is no file"
        )
    options = options._replace(gaps=options.gaps or "interpolate")
    if options.hours is None:
        options = options._replace(step=options.step or "8h")
    folder = folder_for(out)
    if force:
        made = ("table1.csv", "table1.txt", "cells.csv", "figure1.png", "figure2.png")
        remove(folder, "cells", "run.json", *made)
    if data == "synthetic":
        binned = bin_cohort(labs_from_frame(synthetic_labs().frame), options)
    else:
        binned = load_cohort(Path(data), options)
    plan = Plan(
        states=_numbers("states", states), sizes=_numbers("sizes", sizes), repetitions=repetitions,
        n_starts=starts or 3, seed=seed,
    )  # fmt: skip
    table = run_table1(binned.cohort, folder, plan, workers=workers, progress=progress())
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
