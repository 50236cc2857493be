"""Figures of inputs: B, which input moves which state, and forecasts of one sequence under two scenarios."""

from collections.abc import Sequence
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from ...inference import FitResult, posterior_forecast
from ...models import Cohort, forecast
from ..time_axis import time_axis
from .style import DIVERGING, MAP, bare, styled

_Z90 = 1.6448536269514722  # half the width of a 90% interval, in standard deviations
_DRAWS = 400  # of the posterior
_BEFORE = 10  # steps before the forecast that are shown


@styled
def plot_inputs(
    fit: FitResult, inputs: Sequence[str], states: Sequence[str] | None = None
) -> Figure:
    """Draw B of a fit as a heat map, a row for each state and a column for each input that acts on states.

    Exact zeros are written 0.
    """
    if fit.moving.B is None:
        raise ValueError("the fit has no inputs")
    acting = list(fit.constraints.columns("B", fit.params.n_inputs))
    B, inputs = np.asarray(fit.moving.B)[:, acting], [inputs[j] for j in acting]
    l, p = B.shape
    states = [f"z{i}" for i in range(l)] if states is None else list(states)
    limit = max(float(np.abs(B).max()), 1e-12)
    size = 2.2 + 0.6 * p, 1.4 + 0.4 * l
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    image = axis.imshow(B, cmap=DIVERGING, norm=TwoSlopeNorm(0.0, -limit, limit), aspect="auto")
    for i, j in np.ndindex(l, p):
        text = "0" if B[i, j] == 0 else f"{B[i, j]:.2f}"
        color = "w" if abs(B[i, j]) > 0.6 * limit else "k"
        axis.text(j, i, text, ha="center", va="center", fontsize=8, color=color)
    axis.set_xticks(range(p), list(inputs), rotation=35, ha="right")
    axis.set_yticks(range(l), states)
    axis.set(title="B: what an input adds to a state", xlabel="input", ylabel="state")
    figure.colorbar(image, ax=axis, shrink=0.8)
    return figure


@styled
def plot_what_if(
    fit: FitResult,
    cohort: Cohort,
    sequence: int,
    scenarios: dict[str, Any],
    horizon: int,
    posterior: Any | None = None,
    seed: int = 0,
) -> Figure:
    """Draw forecasts of one sequence under scenarios, side by side: medians and 90% intervals, in units.

    They are those of the posterior's draws, the parameters' uncertainty with them, or of the fit alone without one.
    `scenarios` maps a title to the inputs of the steps ahead, (horizon, p). See docs/how_to/inputs.md on when a
    difference may be read as an effect.
    """
    if not 0 <= sequence < len(cohort):
        raise ValueError(f"sequence is {sequence}; the cohort has {len(cohort)}, counted from 0")
    one = cohort.take([sequence])
    length, d = int(one.lengths[0]), one.n_channels
    first = max(0, length - _BEFORE)
    size = 3.6 * len(scenarios), 1.0 + 1.6 * d
    figure, axes = plt.subplots(
        d, len(scenarios), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )  # fmt: skip
    y = one.to_units(np.where(one.mask[0], one.y[0], np.nan))[first:length]
    times = time_axis(one, 0, extra=horizon)
    before, after = times.at[first:length], times.at[length : length + horizon]
    for k, (title, u) in enumerate(scenarios.items()):
        low, middle, high = _quantiles(fit, posterior, one, horizon, u, seed)
        for j, axis in enumerate(axes[:, k]):
            axis.plot(before, y[:, j], "o-", color="0.4", ms=3, lw=0.8, label="values")
            axis.fill_between(after, low[:, j], high[:, j], color=MAP, alpha=0.2, lw=0)
            axis.plot(after, middle[:, j], "s-", color=MAP, ms=3, lw=1.2, label="forecast")
            bare(axis)
        axes[0, k].set_title(title, fontsize=9)
        times.draw(axes[-1, k])
    for j, name in enumerate(one.channels):
        axes[j, 0].set_ylabel(name)
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def _quantiles(
    fit: FitResult, posterior: Any | None, one: Cohort, horizon: int, u: Any, seed: int
) -> tuple[np.ndarray, ...]:
    """Return 5 %, 50 % and 95 % quantiles (horizon, d) of the forecasts of a cohort of one sequence, in units.

    Draws have the same noise under every u, so that scenarios differ by their inputs alone.
    """
    if posterior is not None:
        key = jax.random.key(seed)
        drawn = posterior_forecast(key, posterior, one, horizon, inputs=u, num_draws=_DRAWS)
        found = np.quantile(np.asarray(one.to_units(drawn.draws[:, 0])), [0.05, 0.5, 0.95], axis=0)
        return tuple(found)
    ahead = forecast(fit.params, one, horizon, inputs=u)
    mean = np.asarray(ahead.mean)[0]
    sd = np.sqrt(np.diagonal(np.asarray(ahead.cov)[0], axis1=-2, axis2=-1))
    return tuple(np.asarray(one.to_units(mean + z * sd)) for z in (-_Z90, 0.0, _Z90))
