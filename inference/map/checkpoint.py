"""Checkpoints of a fit: its state in a folder, written whole or not at all, from which the same call goes on."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...models import Cohort, DiskCohort, LDSParams
from ...models.files import fingerprint, run_folder, write_whole
from ..result import Stop
from .loop import Climb, init
from .program import Problem

_FILE = "fit.npz"


class Begun(NamedTuple):
    """A fit that was saved: its state, why it stopped if it did, and the objectives of its starts."""

    climb: Climb
    stop: Stop | None
    restarts: np.ndarray


class Checkpoint:
    """The folder of one fit. Of several processes the first one writes; all of them read."""

    def __init__(self, folder: Any, every: int, fit: Mapping[str, Any]) -> None:
        self.folder, self.every = run_folder(folder, fit), every
        self.saved = 0  # iterations that the last file has

    def load(self, start: LDSParams, problem: Problem, options: Any) -> Begun | None:
        """Return the fit that was begun, or None."""
        file = self.folder / _FILE
        if not file.exists():
            return None
        try:
            with np.load(file) as found:
                arrays = dict(found)
            plain = json.loads(str(arrays["plain"]))
        except (OSError, ValueError, KeyError) as error:
            advice = "delete it, or give another folder"
            raise ValueError(f"{str(file)!r} is damaged ({error}); {advice}") from error
        fresh = init(start, problem, options)
        leaves, form = jax.tree.flatten((fresh.point, problem.floors))
        kept = [jnp.asarray(arrays[f"leaf{i}"], x.dtype) for i, x in enumerate(leaves)]
        point, floors = jax.tree.unflatten(form, kept)
        climb = Climb(
            point,
            problem._replace(floors=floors),
            tuple(arrays["objective"].tolist()),
            plain["steps"],
            plain["next_em"],
            plain["tried"],
            arrays.get("signs"),
        )
        self.saved = len(climb.objective)
        stop = None if plain["stop"] is None else Stop[plain["stop"]]
        if stop is Stop.MAX_ITER and climb.left(options) > 0:
            stop = None  # more iterations are asked for
        return Begun(climb, stop, arrays["restarts"])

    def keep(self, climb: Climb, stop: Stop | None, restarts: np.ndarray) -> None:
        """Save a fit that has stopped, or has gone on for `every` iterations."""
        due = len(climb.objective) - self.saved >= self.every
        if jax.process_index() or not (due or stop is not None):
            return
        leaves = jax.tree.leaves((climb.point, climb.problem.floors))
        arrays: dict[str, Any] = {f"leaf{i}": np.asarray(x) for i, x in enumerate(leaves)}
        arrays |= {"objective": np.array(climb.objective), "restarts": restarts}
        if climb.signs is not None:
            arrays["signs"] = np.asarray(climb.signs)
        plain = {"steps": climb.steps, "next_em": climb.next_em, "tried": climb.tried}
        plain["stop"] = None if stop is None else stop.name
        content = io.BytesIO()
        np.savez(content, plain=np.array(json.dumps(plain)), **arrays)
        write_whole(self.folder / _FILE, content.getvalue())
        self.saved = len(climb.objective)


def described(
    cohort: Cohort | DiskCohort,
    weights: Any,
    starts: list[LDSParams],
    problem: Problem,
    options: Any,
) -> dict[str, Any]:
    """Return what tells one fit from another: data, starts, priors and constraints, as text."""
    if isinstance(cohort, DiskCohort):
        moments = cohort.summary.moments
        units = np.array(cohort.labels.shift), np.array(cohort.labels.scale)
        data = fingerprint(moments, units, np.array(cohort.left_out), len(cohort))
    else:
        data = fingerprint(cohort, () if weights is None else np.asarray(weights, float))
    return {
        "data": data,
        "starts": fingerprint(starts),
        "prior": f"{options.prior!r} {fingerprint(problem.prior, problem.priors)}",
        "constraints": str(options.constraints),
        "tol": float(options.tol),
        "accelerate": bool(options.accelerate),
        "warm": bool(options.warm),
    }


def inside(options: Mapping[str, Any], *names: Any) -> dict[str, Any]:
    """Return options of a fit whose checkpoint, if it has one, is in a folder below."""
    if options.get("checkpoint") is None:
        return dict(options)
    folder = Path(options["checkpoint"]).joinpath(*(str(name).replace("/", "-") for name in names))
    return {**options, "checkpoint": folder}
