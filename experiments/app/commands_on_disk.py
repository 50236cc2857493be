"""The command for data that are larger than memory: `bin`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import STEPS, app, told
from .arguments import Out
from .help import SETTINGS, ShortHelp
from .options import DataOptions, not_ignored, reads_data
from .workspace import reading_options, say


@app.command(cls=ShortHelp, context_settings=SETTINGS, rich_help_panel=STEPS)
@told
@reads_data
def bin(
    data: Annotated[Path, typer.Argument(help="a lab file, or a folder of them with one layout")],
    out: Out = Path("results/cohort"),
    *,
    options: DataOptions,
) -> None:
    """Bin lab files that are larger than memory, for Python.

    The cohort is a folder, which fits take: fit_map(open_cohort("cohort").standardize(), …)

    Example: sparse-lds bin labs/ --out cohort
    """
    from ..labs import bin_to_disk

    kept = "a cohort on disk has the values as they are"
    not_ignored(
        options, log="", anonymous=False, inputs="", fill_inputs="", intercepts="", why=kept
    )
    step = options.step if options.hours is None else options.hours
    made = bin_to_disk(
        data,
        out,
        step=step,
        min_panels=options.panels,
        gaps=options.gaps or "missing",
        say=say,
        **reading_options(options),
    )
    say(f"wrote {made.n_sequences} sequences into {made.path}")
