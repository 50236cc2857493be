"""Figures of whether to trust: the coverage of forecast intervals, and how well chains have mixed."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ...inference import diagnose
from ...inference.posterior import arviz_compat as az
from ...inference.posterior.diagnostics import limits
from ..coverage import Coverage
from .style import BLUE, GREEN, GREY, ORANGE, VERMILION, bare, styled


@styled
def plot_coverage(coverage: Coverage) -> Figure:
    """Draw how often later values were within intervals of each probability, and where they fell in the forecast.

    Left: on the line intervals are right, below it too narrow, above it too wide; the band is two standard errors over
    sequences. Right: flat is right, heaped at the ends too narrow, in the middle too wide.
    """
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    probs = np.linspace(0.05, 0.99, 48)
    share, se = coverage.within(probs)
    axes[0].plot([0, 1], [0, 1], color="0.6", lw=0.9)
    axes[0].fill_between(probs, share - 2 * se, share + 2 * se, color=BLUE, alpha=0.2, lw=0)
    axes[0].plot(probs, share, color=BLUE, lw=1.6)
    at, _ = coverage.within(np.array([0.9]))
    axes[0].plot(0.9, at, "o", color=BLUE)
    axes[0].annotate(f"90% intervals: {at[0]:.0%}", (0.9, at[0]), (0.42, 0.12), fontsize=8,
                     arrowprops={"arrowstyle": "-", "color": "0.5"})  # fmt: skip
    axes[0].set(xlabel="probability of the interval", ylabel="share of values inside")
    axes[0].set(xlim=(0, 1), ylim=(0, 1.02))
    ranks = coverage.ranks[np.isfinite(coverage.ranks)]
    axes[1].hist(ranks, 10, range=(0, 1), color=BLUE, rwidth=0.92)
    axes[1].axhline(len(ranks) / 10, color="0.5", lw=0.9)
    axes[1].set(xlabel="place of the value among the forecast's draws", yticks=[])
    for axis in axes:
        bare(axis)
    return figure


@styled
def plot_mixing(posterior: Any) -> Figure:
    """Draw R-hat and ESS of every quantity with their limits, and the trace of the one that has mixed worst."""
    data = az.group(posterior, "posterior")
    table = diagnose(posterior).table
    names = [str(q).split("[")[0] for q in table.index]
    kinds = list(dict.fromkeys(names))
    rows = np.array([kinds.index(name) for name in names])
    rows = rows + np.random.default_rng(0).uniform(-0.28, 0.28, len(rows))
    most, least = limits(data.sizes["chain"] * data.sizes["draw"])
    figure, axes = plt.subplots(
        1, 3, figsize=(11, 1.6 + 0.24 * len(kinds)), layout="constrained", width_ratios=[1, 1, 1.3]
    )
    ess = table[["ess_bulk", "ess_tail"]].min(axis=1)
    shown = (
        (table["r_hat"], most, "R-hat (left of the line is good)"),
        (ess, least, "ESS (right of the line)"),
    )
    for axis, (values, limit, label) in zip(axes, shown, strict=False):
        bad = values > limit if axis is axes[0] else values < limit
        axis.plot(values[~bad], rows[~bad], ".", color=BLUE, ms=5, alpha=0.7)
        axis.plot(values[bad], rows[bad], "x", color=VERMILION, ms=6)
        axis.axvline(limit, color=VERMILION, lw=1, ls="--")
        axis.set_yticks(
            range(len(kinds)), kinds if axis is axes[0] else [""] * len(kinds), fontsize=7
        )
        axis.set(xlabel=label, ylim=(len(kinds) - 0.4, -0.6))
        bare(axis)
    if len(table):
        worst = (
            str(table["r_hat"].fillna(0).idxmax()) if data.sizes["chain"] > 1 else str(ess.idxmin())
        )
        name, _, at = worst.partition("[")
        place = tuple(int(k) for k in at.rstrip("]").split(",")) if at else ()
        draws = data[name].values[(..., *place)]
        for chain, color in zip(draws, (BLUE, ORANGE, GREEN, GREY), strict=False):
            axes[2].plot(chain, color=color, lw=0.5, alpha=0.8, rasterized=True)
        axes[2].set(xlabel="draw", title=f"the worst: {worst}")
        bare(axes[2])
    return figure
