"""Figures of what is chosen: the path of β, the choice of β by held-out patients, the number of states."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...inference import Comparison, Path
from .style import BLUE, GREEN, MAP, ORANGE, POSTERIOR, SKY, VERMILION, bare, logarithmic, styled

_LINES: list[Any] = list(zip((BLUE, ORANGE, GREEN, VERMILION, SKY), "osD^v", strict=True))
_METHODS: list[Any] = [(ORANGE, "s"), (BLUE, "o"), (GREEN, "D")]


@styled
def plot_path(
    path: Path, comparison: Comparison | None = None, beta: float | None = None
) -> Figure:
    """Draw the entries of A along the path of β, each in the basis of its own fit, with the HDIs at the chosen β."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    A = path.A.reshape(len(path.betas), -1)
    alive = np.abs(A).max(0) > 0
    colors = plt.get_cmap("tab20")(np.linspace(0, 1, max(int(alive.sum()), 1)))
    axis.axhline(0, color="0.7", lw=0.8)
    for color, k in zip(colors, np.flatnonzero(alive), strict=False):
        axis.plot(path.betas, A[:, k], color=color, lw=1.3)
    if comparison is not None and beta is not None:
        t = comparison.table
        shift = beta * 10 ** np.linspace(-0.15, 0.15, len(t))
        axis.vlines(
            shift,
            t["hdi_low"],
            t["hdi_high"],
            color=POSTERIOR,
            alpha=0.6,
            lw=1.2,
            label=f"{comparison.prob:.0%} HDI",
        )
        axis.plot(shift, t["map"], "x", color=MAP, ms=4, label="MAP")
        axis.axvline(beta, color="0.5", ls=":", lw=1)
        axis.legend(fontsize=8, frameon=False)
    logarithmic(axis)
    axis.set(xlabel="β", ylabel="entries of A", title="Regularisation path of the MAP")
    return figure


@styled
def plot_beta(
    table: pd.DataFrame, *, beta: float, candidate: str | None = None, rule: str = ""
) -> Figure:
    """Draw held-out error and density against β, a line a structure, with the choice marked.

    `table` is that of a `Selection`, or selection.csv; `candidate` names the structure that was chosen.
    """
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    shown = (
        ("error", "held-out error (sd)", "lower"),
        ("density", "held-out log density", "higher"),
    )
    names = list(dict.fromkeys(table["candidate"]))
    for axis, (column, label, better) in zip(axes, shown, strict=True):
        for k, name in enumerate(names):
            part = table[table["candidate"] == name].sort_values("beta")  # type: ignore[call-overload]
            color, marker = _LINES[k % len(_LINES)]
            values = part[column].to_numpy(float)
            spread = part["error_gap_se"].to_numpy(float) if column == "error" else None
            spread = part["density_gap_se"].to_numpy(float) if spread is None else spread
            axis.fill_between(
                part["beta"], values - spread, values + spread, color=color, alpha=0.15, lw=0
            )
            axis.plot(part["beta"], values, color=color, marker=marker, ms=4, lw=1.3, label=name)
        here = table[np.isclose(table["beta"], beta)]
        if candidate is not None:
            here = here[here["candidate"] == candidate]
        axis.axvline(beta, color="0.4", ls=":", lw=1)
        axis.plot(here["beta"], here[column], "o", ms=12, mfc="none", mec="k", mew=1.6)
        logarithmic(axis)
        axis.set(xlabel="β", ylabel=label, title=f"{better} is better")
        bare(axis)
    by = f" by {rule}" if rule else ""
    axes[0].plot([], [], "o", ms=9, mfc="none", mec="k", label=f"chosen{by}: β = {beta:.3g}")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )  # fmt: skip
    return figure


@styled
def plot_states(
    errors: Mapping[str, pd.DataFrame],
    baselines: Mapping[str, float] | None = None,
    *,
    label: str = "AMAE (standardised units)",
    title: str = "",
) -> Figure:
    """Draw forecast error against the number of states: the paper's Figures 1 and 2.

    `errors` has for each method a table with the numbers of states as index and columns `error` and `spread`;
    `baselines` are lines across. A baseline far above is named with its number only: it would flatten the curves.
    """
    figure, axis = plt.subplots(figsize=(6, 4.3), layout="constrained")
    for (name, part), (color, marker) in zip(errors.items(), _METHODS, strict=False):
        axis.errorbar(
            part.index, part["error"], part["spread"], color=color, marker=marker, ms=5, capsize=2, label=name
        )  # fmt: skip
    low, high = axis.get_ylim()
    ticks = sorted({int(l) for part in errors.values() for l in part.index})
    for (name, value), style in zip((baselines or {}).items(), (":", "--", "-."), strict=False):
        near = value < high + (high - low)
        text = f"{name}: {value:.3f}" + ("" if near else ", off the scale")
        axis.plot(
            ticks, [value if near else np.nan] * len(ticks), color="0.6", ls=style, lw=1, label=text
        )
    axis.set(xlabel="number of states", ylabel=label, xticks=ticks)
    axis.set_title(title, fontsize=10)
    bare(axis)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    return figure
