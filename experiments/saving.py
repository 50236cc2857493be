"""Fits as JSON files, readable and exact in doubles, and posteriors as netCDF: enough to go on from."""

import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..inference import FitResult
from ..inference.map.mstep import Spec
from ..inference.posterior import arviz_compat as az
from ..models import Flat, GroupLaplace, Laplace, LDSParams, Prior
from ..models.files import write_whole


def save_fit(path: str | os.PathLike, fit: FitResult) -> Path:
    """Write a fit; the file appears whole or not at all."""
    path = Path(path)
    content = {
        "params": {k: np.asarray(v).tolist() for k, v in fit.params._asdict().items()},
        "prior": _prior_to_json(fit.prior),
        "spec": fit.spec._asdict(),
        **{
            k: getattr(fit, k)
            for k in ("n_iter", "converged", "reason", "kkt_residual", "log_likelihood", "steps")
        },
        "warnings": list(fit.warnings),
        "objective": np.asarray(fit.objective).tolist(),
        "restarts": np.asarray(fit.restarts).tolist(),
    }
    return write_whole(path, json.dumps(content, indent=1))


def load_fit(path: str | os.PathLike) -> FitResult:
    """What `save_fit` wrote."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        found = json.loads(path.read_text())
        spec = found["spec"]
        return FitResult(
            params=LDSParams(**{k: jnp.asarray(np.array(v)) for k, v in found["params"].items()}),
            objective=np.array(found["objective"]),
            prior=_prior_from_json(found["prior"]),
            spec=Spec(
                spec["variant"], tuple(spec["hold"]), tuple(spec["diagonal"]), spec["unit_Q"]
            ),
            warnings=tuple(found["warnings"]),
            restarts=np.array(found["restarts"]),
            **{
                k: found[k]
                for k in (
                    "n_iter",
                    "converged",
                    "reason",
                    "kkt_residual",
                    "log_likelihood",
                    "steps",
                )
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} is not a fit that `save_fit` wrote: {error!r}") from error


def _prior_to_json(prior: Prior) -> dict[str, Any]:
    beta = np.asarray(prior.beta, float)
    found: dict[str, Any] = {"kind": type(prior).__name__, "beta": beta.tolist()}
    if isinstance(prior, GroupLaplace):
        found["by"] = prior.by
    return found


def _prior_from_json(found: dict[str, Any]) -> Prior:
    if found["kind"] == "Flat":
        return Flat()
    if found["kind"] == "GroupLaplace":
        return GroupLaplace(found["beta"], found["by"])
    return Laplace(found["beta"])


def save_posterior(result: Any, path: str | os.PathLike) -> Path:
    """To netCDF, which either version of ArviZ, xarray and other tools read."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    result.to_netcdf(str(unfinished), engine="h5netcdf")
    unfinished.replace(path)
    return path


def load_posterior(path: str | os.PathLike) -> Any:
    """What `save_posterior` wrote, in memory: the file may be moved or deleted."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    found = az.az.from_netcdf(str(path), engine="h5netcdf")
    groups = {name: az.group(found, name).load() for name in az.group_names(found)}
    found.close()
    return az.assemble(groups)
