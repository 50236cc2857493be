"""A fit as a JSON file: readable, exact in doubles, and enough to go on from."""

import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..models import Flat, GroupLaplace, Laplace, LDSParams, Prior
from ..models.files import write_whole
from .em import FitResult
from .mstep import Spec


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
