"""The table for B: one row for each input and state, and what the data say of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..posterior import arviz_compat as az
from ..posterior.input_prior import InputPrior, input_prior
from ..result import FitResult
from .evidence import Added, contraction, odds_of_zero, savage_dickey, verdicts

_PRIOR_DRAWS = 4000


def table_of_inputs(
    fit: FitResult,
    posterior: Any,
    prob: float,
    odds: float,
    least: float,
    names: Sequence[str] | None,
) -> pd.DataFrame | None:
    """Return the table for B, (state, input) by rows; None if the model has no inputs, or B was held.

    Its columns are those of the table for A but for the rules, which speak of A.
    """
    data = az.group(posterior, "posterior")
    if "B" not in fit.params._fields or "B" not in data:
        return None
    k = fit.n_states
    columns = fit.constraints.columns("B", fit.params.n_inputs)  # inputs that act on states
    there = np.ix_(range(k), columns)
    B_map = np.asarray(fit.params.B, float)[there]
    draws = data["B"].values[..., :k, :][..., columns]
    flat = draws.reshape(-1, *B_map.shape)
    prior = input_prior(data.attrs)
    found = _added(flat, None if prior is None else prior._replace(scale=prior.scale[there]))
    interval = az.hdi(az.dataset({"B": draws}, {}), prob)["B"].values
    values = {
        "map": B_map,
        "map_zero": B_map == 0,
        "verdict": verdicts(B_map == 0, found, odds, least),
        **found._asdict(),
        "mean": flat.mean(0),
        "sd": flat.std(0, ddof=1),
        "hdi_low": interval[..., 0],
        "hdi_high": interval[..., 1],
        "p_sign": np.maximum((flat > 0).mean(0), (flat < 0).mean(0)),
    }
    states = range(k) if names is None else list(names)
    inputs = [str(data["input"].values[j]) for j in columns]
    at = pd.MultiIndex.from_product([states, inputs], names=["state", "input"])
    return pd.DataFrame({name: x.ravel() for name, x in values.items()}, index=at)


def _added(draws: np.ndarray, prior: InputPrior | None) -> Added:
    """Return what the data added to the prior of B, from draws (n, k, p)."""
    if prior is None:
        unknown = np.full(draws.shape[1:], np.nan)
        return Added(unknown, unknown, unknown)
    before = prior.draws(_PRIOR_DRAWS)
    narrowed = contraction(draws, before)
    if prior.spikes is not None:
        zero = draws == 0
        factor = odds_of_zero(zero, prior.spikes, np.ones(zero.shape[1:], bool))
        return Added(factor, zero.mean(0), narrowed)
    factor = savage_dickey(draws, prior.density_at_zero(), prior.density_at_zero)
    return Added(factor, factor / (1 + factor), narrowed)
