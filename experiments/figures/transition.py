"""Figures of A: the MAP beside the posterior as matrices, and the intervals of all entries."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from ...inference import Comparison
from .style import DIVERGING, MAP, POSTERIOR, styled


@styled
def plot_transition(comparison: Comparison) -> Figure:
    """Draw the MAP of A, its posterior mean, and P(|A_ij| < ε), with a ✕ where most rules contradict the MAP."""
    t = comparison.table
    l = int(np.sqrt(len(t)))
    states = [str(name) for name in t.index.get_level_values("state").unique()]
    grid = {name: t[name].to_numpy().reshape(l, l) for name in ("map", "mean", "p_small")}
    zero, apart = (t[name].to_numpy().reshape(l, l) for name in ("map_zero", "agreement"))
    apart = apart < 0.5
    limit = max(np.abs(grid["map"]).max(), np.abs(grid["mean"]).max(), 1e-12)
    width = 3.2 + 0.12 * l
    figure, axes = plt.subplots(1, 3, figsize=(3 * width, width + 0.4), layout="constrained")
    norm = TwoSlopeNorm(0.0, -limit, limit)
    titles = ("MAP", "posterior mean", f"P(|A_ij| < {comparison.epsilon:g})")
    for axis, values, title in zip(axes, grid.values(), titles, strict=True):
        small = title == titles[2]
        image = axis.imshow(
            values,
            **(
                {"cmap": "Greys", "vmin": 0, "vmax": 1}
                if small
                else {"cmap": DIVERGING, "norm": norm}
            ),
        )
        for i, j in np.ndindex(l, l):
            if l <= 8:
                strong = values[i, j] > 0.6 if small else abs(values[i, j]) > 0.6 * limit
                text = (
                    "0"
                    if title == "MAP" and zero[i, j]
                    else f"{values[i, j]:.2f}".replace("-0.00", "0.00")
                )
                axis.text(
                    j, i, text, ha="center", va="center", fontsize=8, color="w" if strong else "k"
                )
            if apart[i, j]:
                axis.plot(j + 0.33, i - 0.33, "x", color="w", ms=7, mew=3.5)
                axis.plot(j + 0.33, i - 0.33, "x", color="k", ms=6, mew=1.5)
            elif zero[i, j] and l > 8:
                axis.plot(j, i, "o", color="0.5", ms=3, mfc="none")
        axis.set(title=title, xlabel="from state")
        long = max(map(len, states)) > 3
        axis.set_xticks(
            range(l), states, rotation=35 if long else 0, ha="right" if long else "center"
        )
        axis.set_yticks(range(l), states)
        figure.colorbar(image, ax=axis, shrink=0.75)
    axes[0].set_ylabel("to state")
    marks = (
        "✕: most rules contradict the MAP"
        if apart.any()
        else "no entry where most rules contradict the MAP"
    )
    figure.suptitle(f"Transition matrix A ({marks})", fontsize=10)
    return figure


@styled
def plot_forest(comparison: Comparison) -> Figure:
    """Draw the posterior's interval of every entry of A, with the MAP as a cross; exact zeros are hollow circles."""
    t = comparison.table
    n = len(t)
    figure, axis = plt.subplots(figsize=(6, 1.2 + 0.19 * n), layout="constrained")
    rows = np.arange(n)[::-1]
    axis.axvline(0, color="0.7", lw=0.8)
    axis.axvspan(-comparison.epsilon, comparison.epsilon, color="0.93", zorder=0)
    axis.hlines(
        rows,
        t["hdi_low"],
        t["hdi_high"],
        color=POSTERIOR,
        lw=2,
        label=f"{comparison.prob:.0%} HDI",
    )
    axis.plot(t["mean"], rows, "o", color=POSTERIOR, ms=4, label="posterior mean")
    zero = t["map_zero"].to_numpy()
    axis.plot(t["map"][~zero], rows[~zero], "x", color=MAP, ms=6, mew=1.6, label="MAP")
    axis.plot(t["map"][zero], rows[zero], "o", color=MAP, ms=7, mfc="none", label="MAP, exactly 0")
    axis.set_yticks(rows, [f"A[{i}, {j}]" for i, j in t.index], fontsize=7)
    axis.set(
        xlabel="value", ylim=(-1, n), title=f"Entries of A (grey: |A| < {comparison.epsilon:g})"
    )
    figure.legend(fontsize=8, loc="outside lower center", ncols=4, frameon=False)
    return figure
