"""Saving and loading: fits as JSON files, readable and exact in doubles, and posteriors as netCDF."""

import io
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import xarray as xr

from ..inference import Constraints, FitResult, Stop
from ..inference.posterior import arviz_compat as az
from ..models import LDSParams, Prior, check_params, conjugate
from ..models.files import read_json, write_whole
from ..models.params import PARAMETERS, check_array_shapes, host_arrays
from ..models.priors import as_penalty

_PLAIN = ("reason", "kkt_residual", "log_likelihood", "steps")
_FIELDS = ("params", "prior", "priors", "constraints", "stop", "warnings", "objective", "restarts")


def save_fit(path: str | os.PathLike, fit: FitResult) -> Path:
    """Write a fit to a JSON file, which appears whole or not at all."""
    path = Path(path)
    content = {
        "params": {k: np.asarray(v).tolist() for k, v in fit.params._asdict().items()},
        "prior": fit.prior.to_dict(),
        "priors": conjugate.to_dict(fit.priors),
        "constraints": _described(fit.constraints),
        "stop": fit.stop.name,
        **{name: getattr(fit, name) for name in _PLAIN},
        "warnings": list(fit.warnings),
        "objective": np.asarray(fit.objective).tolist(),
        "restarts": np.asarray(fit.restarts).tolist(),
    }
    return write_whole(path, json.dumps(content, indent=1))


def _described(constraints: Constraints) -> dict[str, Any]:
    """Return constraints as a dictionary; files of models without inputs are as they were before there were any."""
    found = asdict(constraints)
    return found if found["absent"] else {k: v for k, v in found.items() if k != "absent"}


def load_fit(path: str | os.PathLike) -> FitResult:
    """Read a fit that `save_fit` wrote; raise unless it is one that a fit could have ended with."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    found = read_json(path, "fit again")
    try:
        if "spec" in found:
            raise ValueError("it was written by version 0.1; fit again")
        other = found.keys() - {*_FIELDS, *_PLAIN}
        if other:
            raise ValueError(f"it has unknown fields {sorted(other)}")
        known = {field.name for field in fields(Constraints)}
        needed = known - {"own_levels", "absent"}  # 0.2 had no own_levels
        if not needed <= found["constraints"].keys() <= known:
            raise ValueError(f"constraints has {sorted(found['constraints'])}")
        fit = FitResult(
            params=_checked_params(found["params"]),
            objective=_vector(found, "objective"),
            stop=Stop[found["stop"]],
            prior=as_penalty(Prior.from_dict(found["prior"])),
            priors=conjugate.from_dict(found.get("priors", {})),
            constraints=Constraints(**found["constraints"]),
            warnings=tuple(found["warnings"]),
            restarts=_vector(found, "restarts"),
            **{name: found[name] for name in _PLAIN},
        )
        _check(fit)
        return fit
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{str(path)!r} is not a fit that `save_fit` wrote: {error!r}") from error


def _vector(found: dict[str, Any], name: str) -> np.ndarray:
    """Return a list of numbers as an array; raise if it is none."""
    x = np.array(found[name], float)
    if x.ndim != 1:
        raise ValueError(f"{name} has shape {x.shape}")
    return x


def _checked_params(found: dict[str, Any]) -> LDSParams:
    """Return the parameters as they are in the file; raise unless they are those of an LDS."""
    if found.keys() not in (set(LDSParams._fields), set(PARAMETERS)):
        raise ValueError(f"params has {sorted(found)}")
    arrays = host_arrays(found, "params")
    check_array_shapes(arrays, "params")
    params = LDSParams(**arrays)
    check_params(params)
    return LDSParams(*map(jnp.asarray, params))


def _check(fit: FitResult) -> None:
    """Raise unless the parts of a fit go together: numbers that are numbers, and a prior of its size."""
    for name in ("kkt_residual", "log_likelihood"):
        if not isinstance(getattr(fit, name), int | float):
            raise ValueError(f"{name} is {getattr(fit, name)!r}")
    if not np.isfinite(fit.log_likelihood) or not np.isfinite(fit.objective).all():
        raise ValueError("its log-likelihood or objective is not finite")
    if not len(fit.objective):
        raise ValueError("objective is empty")
    k = fit.n_states
    if k < 1:
        raise ValueError(f"it has {fit.params.n_states} states, and own levels for all of them")
    of_inputs = {*fit.constraints.hold, *(name for name, _ in fit.constraints.absent)} & {"B", "D"}
    if of_inputs and not fit.params.n_inputs:
        raise ValueError(f"its constraints name {sorted(of_inputs)}, and it has no inputs")
    fit.prior.log_prob(fit.moving.A)  # raises for a β of another size
    if fit.zeros.shape != (k, k):
        raise ValueError(f"its prior is not one on {k} states")
    if not isinstance(fit.steps, dict) or not isinstance(fit.reason, str):
        raise ValueError("steps or reason is damaged")


def save_posterior(result: Any, path: str | os.PathLike) -> Path:
    """Write a posterior to netCDF, which either version of ArviZ, xarray and other tools read.

    The file is made in memory: HDF5 ends the process with a segmentation fault where the disk is full.
    """
    groups = {name: az.group(result, name) for name in az.group_names(result)}
    content = xr.DataTree.from_dict(groups).to_netcdf(None, engine="h5netcdf")
    return write_whole(path, cast(memoryview, content))


def load_posterior(path: str | os.PathLike) -> Any:
    """Read a posterior that `save_posterior` wrote, into memory: the file may then be moved or deleted."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        # not by its path: xarray keeps open files, and would return a file that has been replaced since
        with xr.open_datatree(io.BytesIO(path.read_bytes()), engine="h5netcdf") as found:
            groups = {str(name): x.to_dataset().load() for name, x in found.children.items()}
        if "posterior" not in groups or "constant_data" not in groups:
            raise ValueError(f"it has the groups {sorted(groups)}")
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no posterior of ours ({error}); sample it again (posterior --force)"
        ) from error
    return az.assemble(groups)
