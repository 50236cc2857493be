"""Posteriors of several processes as one: independent chains, side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from . import arviz_compat as az

_OWN = {"interrupted"}  # what may differ between runs of one posterior
_ONCE = ("observed_data", "constant_data", "prior", "prior_predictive")  # taken from the first run


def merge_posteriors(posteriors: Sequence[Any]) -> Any:
    """Return one posterior with the chains of several runs of `sample_posterior`, of one cohort and one fit.

    Chains do not know of each other, so that processes, or hosts, run some each, with keys of their own
    (`jax.random.fold_in(key, jax.process_index())`), and their results are put together at the end. Draws are cut to
    the number that all runs have. Raise if the runs are not of one posterior, or two of them have the same draws.
    """
    found = list(posteriors)
    if not found:
        raise ValueError("posteriors is empty; give the results of sample_posterior")
    first = az.group(found[0], "posterior")
    for number, other in enumerate(found[1:], 1):
        _check_same(found[0], other, number)
    _check_keys(found)
    groups = {}
    for name in az.group_names(found[0]):
        parts = [az.group(x, name) for x in found if name in az.group_names(x)]
        if name in _ONCE or "chain" not in parts[0].dims:
            groups[name] = parts[0]
            continue
        shared = sorted(set.intersection(*({*x["draw"].values.tolist()} for x in parts)))
        cut = [x.sel(draw=shared) for x in parts]
        joined = xr.concat(cut, dim="chain", combine_attrs="override", join="override")
        groups[name] = joined.assign_coords(chain=np.arange(joined.sizes["chain"]))
    stopped = max(int(az.group(x, "posterior").attrs.get("interrupted", 0)) for x in found)
    groups["posterior"].attrs = {**first.attrs, "interrupted": stopped}
    return az.assemble(groups)


def _check_same(first: Any, other: Any, number: int) -> None:
    """Raise unless two runs are of one posterior."""
    one, two = (az.group(x, "posterior") for x in (first, other))
    names = [k for k in one.attrs if k not in _OWN and one.attrs[k] != two.attrs.get(k)]
    fits = (az.group(x, "constant_data") for x in (first, other))
    if names or not next(fits).equals(next(fits)):
        what = ", ".join(names) or "fit"
        raise ValueError(f"posterior {number} has another {what} than the first; merge runs of one fit")  # fmt: skip


def _check_keys(found: Sequence[Any]) -> None:
    """Raise if two runs have the same draws."""
    energies = [az.group(x, "sample_stats")["energy"].values for x in found]
    for i, one in enumerate(energies):
        for j in range(i):
            if one.shape == energies[j].shape and np.array_equal(one, energies[j]):
                raise ValueError(
                    f"posteriors {j} and {i} have the same draws; give each process a key of its own, such as "
                    "jax.random.fold_in(key, jax.process_index())"
                )
