"""The style of all figures: colours that colour-blind readers tell apart, and a mark beside each colour."""

import functools
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's palette (2008)
BLACK, BLUE, SKY, GREEN, ORANGE, VERMILION, GREY = (
    "#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#8A8A8A",
)  # fmt: skip
MAP, POSTERIOR, PRIOR, TRUTH = VERMILION, BLUE, GREY, BLACK
RAISES, LOWERS = BLUE, VERMILION  # the sign of a link
DIVERGING = "RdBu_r"  # of matrices with signs: told apart by all

# verdict: colour, mark, line. None is told by its colour alone
VERDICTS: dict[str, tuple[str, str, Any]] = {
    "supported": (GREEN, "✓", "-"),
    "contradicted": (VERMILION, "✕", (0, (6, 2, 1, 2))),
    "undecided": (ORANGE, "?", (0, (5, 3))),
    "prior only": (GREY, "○", (0, (1, 2))),
    "not judged": ("#BBBBBB", "–", "-"),
}


def styled(plot: Callable[..., Figure]) -> Callable[..., Figure]:
    """Return a plot function that draws in this style; a $ in the name of a test or patient is a $."""

    @functools.wraps(plot)
    def drawn(*args: Any, **kwargs: Any) -> Figure:
        with plt.rc_context({"text.parse_math": False, "axes.titlesize": 10}):
            return plot(*args, **kwargs)

    return drawn


def bare(axis: Any) -> None:
    """Take the upper and right frame from an axis."""
    axis.spines[["top", "right"]].set_visible(False)


def logarithmic(axis: Any) -> None:
    """Make the x axis logarithmic, with plain numbers: matplotlib's own labels are formulas, which are switched off."""
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())


def mark_of(verdict: str) -> str:
    """Return the mark of a verdict."""
    return VERDICTS[verdict][1]


def legend_of_verdicts(found: Any) -> str:
    """Return marks and words of the verdicts that were found, in their order, as one line."""
    return "   ".join(f"{mark} {name}" for name, (_, mark, _) in VERDICTS.items() if name in found)
