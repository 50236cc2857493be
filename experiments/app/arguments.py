"""The arguments and options that commands share, each written once; names are those of the Python functions."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _among(*values: str) -> Any:
    """Return what lets a shell complete the values of an option."""
    return lambda: list(values)


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
        metavar="N",
        help="number of hidden states",
        show_default="a state for each test, its true level",
    ),
]
Levels = Annotated[
    bool, typer.Option("--levels", help="a state for each test: the default, said in words")
]
Pull = Annotated[
    str,
    typer.Option(
        autocompletion=_among("zero", "off-diagonal", "persistence"),
        help="what A is pulled to: zero (the paper), off-diagonal (links alone to zero), or persistence (the identity)",
        show_default="persistence; with own levels off-diagonal; for hidden states zero",
    ),
]
OwnLevels = Annotated[
    str,
    typer.Option(
        autocompletion=_among("auto", "yes", "no"),
        help="whether each patient has a level of their own: auto, yes or no",
    ),
]
Noise = Annotated[
    str,
    typer.Option(
        autocompletion=_among("auto", "diagonal", "full"),
        help="Q of states that are tests: auto, diagonal or full",
    ),
]
RuleName = Annotated[
    str,
    typer.Option(
        autocompletion=_among("best_error", "best_density", "one_se", "best_bic"),
        help="how held-out patients choose: best_error (forecasts), best_density, one_se (sparse) or best_bic",
    ),
]
Priors = Annotated[
    str,
    typer.Option(
        autocompletion=_among("weak", "none"),
        help="of noise and first states: weak, or none as in the paper",
    ),
]
Iterations = Annotated[int, typer.Option("--max-iter", min=1, help="iterations of the fit")]
Beta = Annotated[str, typer.Option(help="penalty on A: a number, 0 for the ordinary LDS, or auto")]
Starts = Annotated[
    int | None,
    typer.Option(help="starting points of a fit with hidden states", show_default="3"),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="of everything random")]
Draws = Annotated[int, typer.Option(help="draws of each chain")]
Warmup = Annotated[int, typer.Option(help="warm-up of each chain")]
Chains = Annotated[int, typer.Option(help="chains")]
TargetAccept = Annotated[
    float, typer.Option(min=0.5, max=0.999, help="of NUTS: more is slower, and diverges less")
]
Free = Annotated[
    str,
    typer.Option(
        help="parameters that are sampled, with commas, as A,Q,R; the others are held at the fit",
        show_default="all that the basis allows",
    ),
]
PriorName = Annotated[
    str,
    typer.Option(
        autocompletion=_among("unknown", "fit", "spike-slab"),
        help="of A: unknown (β unknown), fit (the one that was maximised) or spike-slab (exact zeros)",
    ),
]
Epsilon = Annotated[float, typer.Option(help="what counts as nearly zero")]
WhatIf = Annotated[
    str,
    typer.Option(
        help="inputs of the steps ahead, as dose=1,ventilated=0", show_default="those of the file"
    ),
]
Horizon = Annotated[int, typer.Option(help="steps ahead")]
Prob = Annotated[float, typer.Option(help="probability of the intervals of forecasts")]
