"""Figures of what the data added: prior against posterior of each entry of A, and probabilities of zero."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ...inference import Comparison
from ...inference.comparison.evidence import prior_draws
from ...inference.posterior import arviz_compat as az
from ...inference.posterior.constant import prior_of
from ...models import GammaLaplace
from .style import MAP, POSTERIOR, PRIOR, TRUTH, VERDICTS, legend_of_verdicts, styled

_WIDE, _HIGH = 0.46, 0.62  # of a curve in a cell of width and height 1


@styled
def plot_prior_posterior(
    comparison: Comparison, posterior: Any, *, truth: np.ndarray | None = None
) -> Figure:
    """Draw prior and posterior of each A_ij in its place in the matrix, and join their densities at the prior's centre.

    The ratio of the two dots is the Bayes factor of zero, up to what other entries tell of a β that is unknown: the
    prior is drawn with β as the posterior has it. With spike and slab the bars at zero are its probability before and
    after. The MAP is a cross, hollow where it is exactly zero; `truth`, an A (l, l), a diamond. An entry that
    is off the scale is written as a number.
    """
    t: Any = comparison.table
    l = int(np.sqrt(len(t)))
    draws, before = prior_and_posterior(posterior, l)
    limit = _limit(t, l)
    size = 1.6 + l * (1.15 if l <= 8 else 0.8)
    figure, axis = plt.subplots(figsize=(size, size + 0.5), layout="constrained")
    for at, (_, row) in enumerate(t.iterrows()):
        i, j = divmod(at, l)
        color, mark, _ = VERDICTS[row["verdict"]]
        axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fc=color, alpha=0.1, ec="w", lw=2))
        axis.text(j - 0.46, i - 0.44, mark, fontsize=8, va="top", color=color, weight="bold")
        axis.plot([j - _WIDE, j + _WIDE], [i + 0.36] * 2, color="0.8", lw=0.6)
        factor = row["bayes_factor_zero"]
        if np.isfinite(factor) and l <= 8:
            text = _factor(float(factor))
            axis.text(j + 0.47, i - 0.44, text, fontsize=6, va="top", ha="right", color="0.3")
        if abs(row["mean"]) > 0.95 * limit:
            axis.text(j, i + 0.05, f"{row['mean']:.2f}", ha="center", va="center", color=POSTERIOR)
            continue
        prior = None if before is None else before[:, i, j]
        _draw_entry(axis, i, j, draws[:, i, j], prior, limit, row["center"])
        _mark(axis, i, j, row, limit, None if truth is None else float(truth[i, j]))
    names = [str(name) for name in t.index.get_level_values("state").unique()]
    long = max(map(len, names)) > 3
    axis.set_xticks(range(l), names, rotation=35 if long else 0, ha="right" if long else "center")
    axis.set_yticks(range(l), names)
    axis.set(xlim=(-0.5, l - 0.5), ylim=(l - 0.5, -0.5), aspect="equal")
    axis.set(xlabel=f"from state (each cell: -{limit:.2g} to {limit:.2g})", ylabel="to state")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.set_title(
        f"Prior against posterior; in the corner the Bayes factor of {_value(t)}\n"
        + legend_of_verdicts(set(t["verdict"])),
        fontsize=9,
    )
    handles: list[Any] = [Patch(color=PRIOR, alpha=0.5), Patch(color=POSTERIOR, alpha=0.5)]
    handles += [Line2D([], [], color=MAP, marker=m, mfc="none", ls="") for m in "xo"]
    words = ["prior", "posterior", "MAP", "MAP, exactly 0"]
    if truth is not None:
        handles.append(Line2D([], [], color=TRUTH, marker="d", ms=4, ls=""))
        words.append("truth")
    figure.legend(
        handles, words, loc="outside lower center", ncols=len(words), fontsize=8, frameon=False
    )
    return figure


@styled
def plot_inclusion(comparison: Comparison, *, truth: np.ndarray | None = None) -> Figure:
    """Draw the probability that each A_ij is not zero; the MAP's zeros are circles, disagreements are crossed.

    With spike and slab it is the share of draws; else that of one who gave zero as much as the rest before the data.
    """
    t: Any = comparison.table
    l = int(np.sqrt(len(t)))
    p = 1 - t["p_zero"].to_numpy().reshape(l, l)
    zero = t["map_zero"].to_numpy().reshape(l, l)
    names = [str(name) for name in t.index.get_level_values("state").unique()]
    size = 2.2 + 0.55 * l
    figure, axis = plt.subplots(figsize=(size + 0.8, size), layout="constrained")
    shown = axis.imshow(np.ma.masked_invalid(p), cmap="cividis", vmin=0, vmax=1)
    apart = 0
    for i, j in np.ndindex(l, l):
        ink = "w" if not p[i, j] > 0.6 else "k"
        if zero[i, j]:
            axis.plot(j, i, "o", ms=23, mfc="none", mec=ink, mew=1.1)
        if np.isnan(p[i, j]):
            axis.text(j, i, "–", ha="center", va="center", color="0.4")
            continue
        axis.text(j, i, f"{p[i, j]:.2f}", ha="center", va="center", fontsize=7, color=ink)
        if zero[i, j] == (p[i, j] > 0.5):
            apart += 1
            axis.plot(j + 0.36, i - 0.36, "x", color=ink, ms=6, mew=1.8)
        if truth is not None and truth[i, j] != 0:
            axis.plot(j - 0.36, i - 0.36, "d", color=ink, ms=4)
    figure.colorbar(shown, ax=axis, shrink=0.8, label="P(not zero)")
    long = max(map(len, names)) > 3
    axis.set_xticks(range(l), names, rotation=35 if long else 0, ha="right" if long else "center")
    axis.set_yticks(range(l), names)
    axis.set(xlabel="from state", ylabel="to state")
    diamonds = "" if truth is None else "; ◆: not zero in truth"
    axis.set_title(
        f"○: the MAP is exactly zero; ✕: the posterior says otherwise ({apart}){diamonds}",
        fontsize=8,
    )
    return figure


def prior_and_posterior(posterior: Any, l: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return draws (n, l, l) of A from the posterior, and from its prior with β as the posterior has it, or None."""
    data = az.group(posterior, "posterior")
    if "A" not in data:
        raise ValueError("A was held when this posterior was sampled; there is nothing to compare")
    draws = data["A"].values[..., :l, :l].reshape(-1, l, l)
    prior = prior_of(data.attrs)
    if isinstance(prior, GammaLaplace) and "beta" in data:
        before = prior_draws(prior.base, l)
        if before is not None:
            beta = np.resize(data["beta"].values.ravel(), len(before))
            M = prior.center_of(l)
            return draws, M + (before - M) / beta[:, None, None]
    return draws, prior_draws(prior, l)


def _limit(t: Any, l: int) -> float:
    """Return how far from zero a cell goes: twice as far as three of four intervals off the diagonal."""
    ends = np.abs(t[["hdi_low", "hdi_high"]].to_numpy()).max(1)
    other = ~np.eye(l, dtype=bool).ravel() if l > 1 else np.ones(1, bool)
    return max(2.0 * float(np.quantile(ends[other], 0.75)), 1e-3)


def _value(t: Any) -> str:
    """Return what the Bayes factors are of, in words."""
    return "what the prior pulls to" if t["center"].any() else "zero"


def _draw_entry(
    axis: Any, i: int, j: int, after: Any, before: Any, limit: float, center: float
) -> None:
    """Draw the densities of an entry in its cell, each as a part of the higher one, and join them at the centre."""
    x = np.linspace(-limit, limit, 81)
    curves, bars = [], []
    for draws, color in ((before, PRIOR), (after, POSTERIOR)):
        if draws is None:
            continue
        at_zero = float((draws == center).mean())
        rest = draws[draws != center]
        curves.append(((1 - at_zero) * _density(rest, x), color))
        bars.append((at_zero, color))
    top = max((float(y.max()) for y, _ in curves), default=0.0) or 1.0
    base = i + 0.36
    for y, color in curves:
        high = base - _HIGH * y / top
        at = j + _WIDE * np.concatenate([x[:1], x, x[-1:]]) / limit
        axis.fill(at, np.concatenate([[base], high, [base]]), fc=(color, 0.25), ec=color, lw=0.9)
    if abs(center) > limit:
        return
    at_center = j + _WIDE * center / limit
    if any(share for share, _ in bars):  # spike and slab
        for (share, color), aside in zip(bars, (-0.03, 0.03), strict=True):
            axis.plot([at_center + aside] * 2, [base, base - _HIGH * share], color=color, lw=2.5)
        return
    dots = [base - _HIGH * np.interp(center, x, y) / top for y, _ in curves]
    axis.plot([at_center] * len(dots), dots, color="0.35", lw=0.7)
    for (_, color), y in zip(curves, dots, strict=True):
        axis.plot(at_center, y, ".", color=color, ms=5)


def _mark(axis: Any, i: int, j: int, row: Any, limit: float, truth: float | None) -> None:
    """Draw the MAP, and the truth, below the curves of a cell."""
    if abs(row["map"]) <= limit:
        shape = "o" if row["map_zero"] else "x"
        axis.plot(j + _WIDE * row["map"] / limit, i + 0.36, shape, color=MAP, mfc="none", ms=5)
    if truth is not None and abs(truth) <= limit:
        axis.plot(j + _WIDE * truth / limit, i + 0.44, "d", color=TRUTH, ms=3)


def _density(draws: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return a kernel estimate of the density of draws (n,) at x, with Silverman's robust bandwidth."""
    if len(draws) < 2 or np.ptp(draws) == 0:
        return np.zeros_like(x)
    draws = draws[np.unique(np.linspace(0, len(draws) - 1, 2000).astype(int))]
    low, high = np.quantile(draws, [0.25, 0.75])
    h = 0.9 * min(draws.std(ddof=1), (high - low) / 1.34 or np.inf) * len(draws) ** -0.2
    return np.exp(-0.5 * ((x[:, None] - draws) / h) ** 2).mean(1) / (h * np.sqrt(2 * np.pi))


def _factor(x: float) -> str:
    """Return a Bayes factor with two digits; very small or large ones as bounds."""
    if x < 0.001:
        return "<0.001"
    return ">1000" if x > 1000 else f"{x:.2g}"
