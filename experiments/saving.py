"""Saving and loading: fits as JSON files, readable and exact in doubles, and posteriors as netCDF."""

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..inference import Constraints, FitResult, Stop
from ..inference.posterior import arviz_compat as az
from ..models import LDSParams, Prior, conjugate
from ..models.files import write_whole
from ..models.priors import as_penalty

_PLAIN = ("reason", "kkt_residual", "log_likelihood", "steps")


def save_fit(path: str | os.PathLike, fit: FitResult) -> Path:
    """Write a fit to a JSON file, which appears whole or not at all."""
    path = Path(path)
    content = {
        "params": {k: np.asarray(v).tolist() for k, v in fit.params._asdict().items()},
        "prior": fit.prior.to_dict(),
        "priors": conjugate.to_dict(fit.priors),
        "constraints": asdict(fit.constraints),
        "stop": fit.stop.name,
        **{name: getattr(fit, name) for name in _PLAIN},
        "warnings": list(fit.warnings),
        "objective": np.asarray(fit.objective).tolist(),
        "restarts": np.asarray(fit.restarts).tolist(),
    }
    return write_whole(path, json.dumps(content, indent=1))


def load_fit(path: str | os.PathLike) -> FitResult:
    """Read a fit that `save_fit` wrote."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        found = json.loads(path.read_text())
        if "spec" in found:
            raise ValueError("it was written by version 0.1; fit again")
        known = {field.name for field in fields(Constraints)}
        if (
            not known - {"own_levels"} <= found["constraints"].keys() <= known
        ):  # 0.2 had no own_levels
            raise ValueError(f"constraints has {sorted(found['constraints'])}")
        return FitResult(
            params=LDSParams(**{k: jnp.asarray(np.array(v)) for k, v in found["params"].items()}),
            objective=np.array(found["objective"]),
            stop=Stop[found["stop"]],
            prior=as_penalty(Prior.from_dict(found["prior"])),
            priors=conjugate.from_dict(found.get("priors", {})),
            constraints=Constraints(**found["constraints"]),
            warnings=tuple(found["warnings"]),
            restarts=np.array(found["restarts"]),
            **{name: found[name] for name in _PLAIN},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is not a fit that `save_fit` wrote: {error!r}") from error


def save_posterior(result: Any, path: str | os.PathLike) -> Path:
    """Write a posterior to netCDF, which either version of ArviZ, xarray and other tools read."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    result.to_netcdf(str(unfinished), engine="h5netcdf")
    unfinished.replace(path)
    return path


def load_posterior(path: str | os.PathLike) -> Any:
    """Read a posterior that `save_posterior` wrote, into memory: the file may then be moved or deleted."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    found = az.az.from_netcdf(str(path), engine="h5netcdf")
    groups = {name: az.group(found, name).load() for name in az.group_names(found)}
    found.close()
    return az.assemble(groups)
