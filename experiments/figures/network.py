"""The figure of the links between states: which speaks to which, how strongly, and what the data say of it."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from ...inference import Comparison
from ..network import circle, links
from .style import LOWERS, RAISES, VERDICTS, mark_of, styled


@styled
def plot_network(comparison: Comparison, *, truth: np.ndarray | None = None) -> Figure:
    """Draw the links of A: colour and sign at the arrow, width by size, line by the verdict on what the MAP says.

    A link that the MAP leaves out against the data is drawn with the posterior's mean. With `truth`, an A (l, l), links
    that are not there in truth say so.
    """
    names = [str(x) for x in comparison.table.index.get_level_values("state").unique()]
    places, found = circle(names), links(comparison)
    figure, axis = plt.subplots(figsize=(6.4, 6.6), layout="constrained")
    largest = max((abs(link.value) for link in found), default=1.0)
    for link in found:
        start, end = np.array(places[link.source]), np.array(places[link.target])
        share = abs(link.value) / largest
        color = RAISES if link.value > 0 else LOWERS
        axis.add_patch(
            FancyArrowPatch(
                places[link.source],
                places[link.target],
                connectionstyle="arc3,rad=0.16",
                arrowstyle="-|>",
                mutation_scale=9 + 8 * share,
                shrinkA=23,
                shrinkB=23,
                lw=0.8 + 4 * share,
                color=color,
                alpha=0.35 + 0.6 * share,
                linestyle=VERDICTS[link.verdict][2],
                zorder=1,
            )  # fmt: skip
        )
        # arc3 bends to the right of its way; its middle is half of `rad` of its length aside
        way = end - start
        middle = (start + end) / 2 + 0.08 * np.array([way[1], -way[0]]) + 0.1 * way
        text = f"{link.value:+.2f} {mark_of(link.verdict)}"
        if truth is not None and not truth[names.index(link.target), names.index(link.source)]:
            text += " (not true)"
        if share > 0.12 or link.verdict in ("supported", "contradicted"):
            axis.text(
                float(middle[0]), float(middle[1]), text, fontsize=7.5, ha="center", va="center", color=color,
                bbox={"fc": "w", "ec": "none", "pad": 0.6, "alpha": 0.85}, zorder=3,
            )  # fmt: skip
    A = comparison.table["map"].to_numpy().reshape(len(names), -1)
    for k, name in enumerate(names):
        x, y = places[name]
        axis.plot(x, y, "o", ms=40, mfc="w", mec="0.35", mew=1.2, zorder=2)
        axis.text(x, y + 0.02, name[:8], ha="center", va="bottom", fontsize=9, zorder=4)
        axis.text(x, y - 0.03, f"{A[k, k]:.2f}", ha="center", va="top", fontsize=7, color="0.35")
    axis.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axis.set_axis_off()
    axis.set_title("Which state speaks to which (in a circle: its own persistence)", fontsize=10)
    if not found:
        axis.text(0, 0, "the MAP has no link,\nand the data ask for none", ha="center")
    kinds = [name for name in VERDICTS if any(link.verdict == name for link in found)]
    lines = [Line2D([], [], color="0.3", ls=VERDICTS[k][2], lw=1.8) for k in kinds]
    words = [f"{mark_of(k)} {_meaning(k)}" for k in kinds]
    signs = [Line2D([], [], color=c, lw=3) for c in (RAISES, LOWERS)]
    figure.legend(
        lines + signs, [*words, "+ raises", "- lowers"], loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )  # fmt: skip
    return figure


def _meaning(verdict: str) -> str:
    """Return a verdict on a link that is drawn, in words."""
    return {
        "supported": "supported by the data",
        "contradicted": "contradicted: see the sign and interval",
    }.get(verdict, verdict)
