"""Figures of a MAP fit and its posterior; each function draws one figure and returns it."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jax import Array
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from ..inference import Comparison, FitResult, Path, posterior_forecast
from ..inference.posterior import arviz_compat as az
from ..inference.posterior.forecast import PosteriorForecast
from ..models import Cohort, Forecast, forecast
from .time_axis import time_axis

_MAP, _POSTERIOR = "C3", "C0"
_Z90 = 1.6448536269514722  # half the width of a 90% interval, in standard deviations


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
    titles = ("MAP", "posterior mean", f"P(|A| < {comparison.epsilon:g})")
    for axis, values, title in zip(axes, grid.values(), titles, strict=True):
        small = title == titles[2]
        image = axis.imshow(
            values,
            **(
                {"cmap": "Greys", "vmin": 0, "vmax": 1}
                if small
                else {"cmap": "RdBu_r", "norm": norm}
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
        color=_POSTERIOR,
        lw=2,
        label=f"{comparison.prob:.0%} HDI",
    )
    axis.plot(t["mean"], rows, "o", color=_POSTERIOR, ms=4, label="posterior mean")
    zero = t["map_zero"].to_numpy()
    axis.plot(t["map"][~zero], rows[~zero], "x", color=_MAP, ms=6, mew=1.6, label="MAP")
    axis.plot(t["map"][zero], rows[zero], "o", color=_MAP, ms=7, mfc="none", label="MAP, exactly 0")
    axis.set_yticks(rows, [f"A[{i}, {j}]" for i, j in t.index], fontsize=7)
    axis.set(
        xlabel="value", ylim=(-1, n), title=f"Entries of A (grey: |A| < {comparison.epsilon:g})"
    )
    figure.legend(fontsize=8, loc="outside lower center", ncols=4, frameon=False)
    return figure


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
            color=_POSTERIOR,
            alpha=0.6,
            lw=1.2,
            label=f"{comparison.prob:.0%} HDI",
        )
        axis.plot(shift, t["map"], "x", color=_MAP, ms=4, label="MAP")
        axis.axvline(beta, color="0.5", ls=":", lw=1)
        axis.legend(fontsize=8, frameon=False)
    axis.set(
        xscale="log", xlabel="β", ylabel="entries of A", title="Regularisation path of the MAP"
    )
    return figure


def plot_eigenvalues(fit: FitResult, posterior: Any, n: int = 400) -> Figure:
    """Draw the eigenvalues of the MAP's A, and of draws, in the complex plane with the unit circle."""
    data = az.group(posterior, "posterior")
    if "A" not in data:
        raise ValueError(
            "A was held when this posterior was sampled; its eigenvalues are the fit's"
        )
    k = fit.n_states  # own levels of the sequences have eigenvalues of 1
    A = data["A"].values[..., :k, :k].reshape(-1, k, k)
    A = A[np.unique(np.linspace(0, len(A) - 1, min(n, len(A))).astype(int))]
    values, mode = np.linalg.eigvals(A).ravel(), np.linalg.eigvals(np.asarray(fit.moving.A))
    figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angle), np.sin(angle), color="0.7", lw=0.8)
    axis.plot(
        values.real,
        values.imag,
        ".",
        color=_POSTERIOR,
        ms=3,
        alpha=0.25,
        mew=0,
        label=f"{len(A)} draws",
    )
    axis.plot(mode.real, mode.imag, "x", color=_MAP, ms=8, mew=2, label="MAP")
    limit = 1.1 * max(1.0, float(np.abs(np.append(values, mode)).max()))
    axis.set(
        xlim=(-limit, limit),
        ylim=(-limit, limit),
        aspect="equal",
        xlabel="real part",
        ylabel="imaginary part",
    )
    axis.set_title("Eigenvalues of A")
    legend = axis.legend(fontsize=8, loc="upper right", frameon=False, markerscale=1.5)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
    return figure


def plot_forecast_fan(
    key: Array,
    fit: FitResult,
    posterior: Any,
    cohort: Cohort,
    sequence: int,
    given: int,
    *,
    probs: Sequence[float] = (0.5, 0.9),
    measured: np.ndarray | None = None,
) -> Figure:
    """Draw forecasts of one sequence after its first `given` steps, by the MAP and by the posterior predictive.

    Medians and bands are in the user's units, over dates or times where the cohort has them, else over steps.
    `measured` (N, T, d) tells measurements from cells that were filled in, which are drawn hollow.
    """
    if not 0 <= sequence < len(cohort):
        raise ValueError(f"sequence is {sequence}; the cohort has {len(cohort)}, counted from 0")
    one = cohort.take([sequence])
    length = int(one.lengths[0])
    if not 0 <= given < length:
        raise ValueError(
            f"given is {given}; it must be from 0 to {length - 1}, the length less one"
        )
    horizon = length - given
    ahead = posterior_forecast(key, posterior, one, horizon, given)
    plug = forecast(fit.params, one, horizon, given)
    y = one.to_units(np.where(one.mask[0], one.y[0], np.nan))[:length]
    filled = np.zeros(y.shape, bool) if measured is None else ~measured[sequence, :length]
    figure, axes = plt.subplots(
        one.n_channels,
        1,
        sharex=True,
        figsize=(7, 1.2 + 1.7 * one.n_channels),
        layout="constrained",
        squeeze=False,
    )
    times = time_axis(one, 0)
    for j, axis in enumerate(axes[:, 0]):
        _draw_forecasts(axis, j, one, ahead, plug, times.at[given:], probs)
        _draw_values(axis, times.at, y[:, j], filled[:, j], bool((filled & np.isfinite(y)).any()))
        axis.axvline(times.at[given] - times.between, color="0.7", lw=0.8)
        axis.set_ylabel(str(one.channels[j]))
    times.draw(axes[-1, 0])
    after = f"step {given}" + (f" ({times.say(given - 1)})" if given and one.labels.starts else "")
    figure.suptitle(f"Sequence {one.ids[0]}, forecast after {after}", fontsize=10)
    axes[0, 0].legend(
        ncols=3, fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0)
    )
    return figure


def _draw_forecasts(
    axis: Any,
    j: int,
    one: Cohort,
    ahead: PosteriorForecast,
    plug: Forecast,
    future: np.ndarray,
    probs: Sequence[float],
) -> None:
    """Draw the forecasts of channel j by posterior and MAP at the `future` times: quantiles, in the user's units."""
    draws = np.asarray(one.to_units(ahead.draws))[:, 0, :, j]
    for prob in sorted(probs, reverse=True):
        low, high = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        axis.fill_between(
            future,
            low,
            high,
            color=_POSTERIOR,
            alpha=0.12 + 0.4 * (1 - prob),
            lw=0,
            label=f"posterior predictive, {prob:.0%}",
        )
    middle = np.median(draws, axis=0)
    axis.plot(future, middle, color=_POSTERIOR, lw=1.4, label="posterior median")
    mean, sd = np.asarray(plug.mean), np.sqrt(np.diagonal(plug.cov[0], axis1=-2, axis2=-1))
    for z, style, label in ((0, "--", "MAP, 90%"), (-_Z90, ":", None), (_Z90, ":", None)):
        line = np.asarray(one.to_units(mean + z * sd))[0, :, j]
        axis.plot(future, line, style, color=_MAP, lw=1.2 if label else 1.1, label=label)


def _draw_values(
    axis: Any, at: np.ndarray, y: np.ndarray, filled: np.ndarray, any_filled: bool
) -> None:
    """Draw the values y (T,) of a channel at times `at` (T,), hollow where they were filled in."""
    axis.plot(at, np.where(filled, np.nan, y), "k.", ms=5, label="measured")
    if any_filled:
        shown = np.where(filled, y, np.nan)
        axis.plot(at, shown, "o", color="0.5", ms=3, mfc="none", label="filled in")
