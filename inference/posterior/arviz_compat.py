"""All calls of ArviZ, in one code path for its versions 0.23 (InferenceData) and 1.x (DataTree)."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ...models import Cohort

with warnings.catch_warnings():  # 0.23 announces 1.x at the first import of a day
    warnings.simplefilter("ignore", FutureWarning)
    import arviz

az: Any = arviz  # its two versions have no types in common
_OLD = int(az.__version__.split(".")[0]) == 0

# dimensions of the variables, after (chain, draw) where they are draws
DIMS: dict[str, tuple[str, ...]] = {
    "A": ("state", "from_state"),
    "C": ("channel", "state"),
    "Q": ("state", "state_bis"),
    "R": ("channel", "channel_bis"),
    "pi1": ("state",),
    "V1": ("state", "state_bis"),
    "B": ("state", "input"),
    "D": ("channel", "input"),
    "u": ("sequence", "time", "input"),
    "y": ("sequence", "time", "channel"),
    "lengths": ("sequence",),
    "log_likelihood": ("sequence",),
    "eigenvalue_modulus": ("eigenvalue",),
    "eigenvalue_real": ("eigenvalue",),
    "eigenvalue_imag": ("eigenvalue",),
    "markov": ("lag", "channel", "channel_bis"),
}


def coordinates(cohort: Cohort, n_states: int) -> dict[str, Any]:
    """Return the names of states, channels, sequences and steps."""
    ids = list(cohort.ids)
    if not all(isinstance(i, int | np.integer) for i in ids):
        ids = [str(i) for i in ids]  # netCDF has no other objects
    states, channels = np.arange(n_states), [str(c) for c in cohort.channels]
    return {
        "state": states,
        "from_state": states,
        "state_bis": states,
        "eigenvalue": states,
        "channel": channels,
        "channel_bis": channels,
        "input": [str(name) for name in cohort.inputs],
        "sequence": ids,
        "time": np.arange(1, cohort.n_steps + 1),
    }


def dataset(
    values: Mapping[str, Any],
    coords: Mapping[str, Any],
    *,
    draws: bool = True,
    draw: Any = None,
    dims: Mapping[str, tuple[str, ...]] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Return arrays with named dimensions. Draws have chain and draw first; `draw` numbers them, by default 0, 1, …"""
    known = {**DIMS, **(dims or {})}
    variables, used = {}, {}
    for name, x in values.items():
        x = np.asarray(x)
        own = known.get(name.removeprefix("map_"), ())
        axes = (("chain", "draw") if draws else ()) + own
        if len(axes) != x.ndim:
            raise ValueError(f"{name} has shape {x.shape}, and its dimensions are {axes}")
        variables[name] = axes, x
        used |= {k: coords[k] for k in own if k in coords}
        if draws:
            used |= {"chain": np.arange(x.shape[0])}
            used |= {"draw": np.arange(x.shape[1]) if draw is None else draw}
    return xr.Dataset(variables, used, attrs=dict(attrs or {}))


def assemble(groups: Mapping[str, xr.Dataset]) -> Any:
    """Return ArviZ's object: InferenceData up to 0.23, xarray's DataTree from 1.0 on."""
    if _OLD:
        return az.InferenceData(**groups)
    return xr.DataTree.from_dict(dict(groups))


def group(result: Any, name: str) -> xr.Dataset:
    """Return one group of ArviZ's object, of either version, as a Dataset."""
    try:
        found = result[name]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"there is no group {name!r} here; give what `sample_posterior` returns"
        ) from error
    return found if isinstance(found, xr.Dataset) else found.to_dataset()


def group_names(result: Any) -> list[str]:
    """Return the names of the groups of ArviZ's object."""
    return list(result.groups() if _OLD else result.children)


def hdi(data: xr.Dataset, prob: float) -> xr.Dataset:
    """Return highest-density intervals of every variable; the last axis is (low, high), called `bound`."""
    if _OLD:
        return az.hdi(data, hdi_prob=prob).rename(hdi="bound")
    return az.hdi(data, prob=prob).rename(ci_bound="bound")


def rhat(data: xr.Dataset) -> xr.Dataset:
    """Return R-hat of every variable; NaN where there is one chain only, and for a constant."""
    if data.sizes["chain"] < 2:
        return data.isel(chain=0, draw=0, drop=True) * np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return az.rhat(data)


def ess(data: xr.Dataset, method: str) -> xr.Dataset:
    """Return the effective sample size of every variable, for `method` "bulk" or "tail"."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return az.ess(data, method=method)


def bfmi(sample_stats: xr.Dataset) -> np.ndarray:
    """Return the energy's Bayesian fraction of missing information (Betancourt, 2016), (chains,)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return az.bfmi(sample_stats["energy"].values)
