"""Inputs of lab results on the grid of their cohort: treatments and covariates that are known, and not modelled.

An input is a test of the file that is named as one. A bin has the mean of its values, as for tests. What takes the
place of a bin without a value is said for each input: nothing (an error that names it), 0, the last value, or the one
value that a patient has, of a covariate such as age or sex that never changes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...models import Cohort
from .gathering import Labs

FILLS = ("zero", "forward", "constant")


def fills_of(text: str, names: Sequence[str]) -> dict[str, str]:
    """Read what fills the gaps of inputs: one word for all, or name=word with commas.

    >>> fills_of("dose=zero, age=constant", ["dose", "age", "bp"])
    {'dose': 'zero', 'age': 'constant'}
    >>> fills_of("forward", ["dose", "age"])
    {'dose': 'forward', 'age': 'forward'}
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) == 1 and "=" not in parts[0]:
        parts = [f"{name}={parts[0]}" for name in names]
    found = {}
    for part in parts:
        name, _, how = (x.strip() for x in part.partition("="))
        if name not in names:
            raise ValueError(
                f"--fill-inputs names {name!r}; the inputs are {', '.join(names) or 'none'}"
            )
        if how not in FILLS:
            raise ValueError(f"--fill-inputs is {part!r}; it must be one of {', '.join(FILLS)}")
        found[name] = how
    return found


def parted(labs: Labs, names: Sequence[str]) -> tuple[Labs, Labs]:
    """Return the lab results of the tests, and those of the inputs, in the order of `names`."""
    absent = [name for name in names if name not in labs.tests]
    if absent:
        raise ValueError(f"--inputs names {absent[0]!r}; the file has {', '.join(labs.tests)}")
    others = [name for name in labs.tests if name not in names]
    if not others:
        raise ValueError(f"all of {', '.join(names)} are inputs, and no test is left")
    return _only(labs, others), _only(labs, names)


def _only(labs: Labs, names: Sequence[str]) -> Labs:
    """Return the lab results of some tests; all ids are kept."""
    index = np.full(len(labs.tests), -1)
    for k, name in enumerate(names):
        index[labs.tests.index(name)] = k
    new = index[labs.test]
    rows = new >= 0
    kept = {name: getattr(labs, name)[rows] for name in ("patient", "hours", "value")}
    return labs._replace(tests=tuple(names), test=new[rows].astype(labs.test.dtype), **kept)


def with_inputs(
    cohort: Cohort, inputs: Labs, patient: np.ndarray, start: np.ndarray, hours: float, fills: dict[str, str]
) -> Cohort:  # fmt: skip
    """Return the cohort with inputs; those after a sequence's last step are of the future.

    `patient` (N,) has the index of each sequence among the ids of the labs, `start` (N,) the time of its first bin in
    hours.
    """
    us = []
    for n, (p, T) in enumerate(zip(patient, np.asarray(cohort.lengths), strict=True)):
        rows = inputs.patient == p
        at = np.floor((inputs.hours[rows] - start[n]) / hours + 1e-9).astype(int)
        test, value = inputs.test[rows], inputs.value[rows]
        us.append(_grid(at, test, value, int(T), inputs.tests, fills, cohort.ids[n]))
    channels = list(cohort.channels)
    return Cohort.from_sequences(
        cohort.sequences(), ids=list(cohort.ids), channels=channels, inputs=us, input_names=list(inputs.tests)
    )  # fmt: skip


def _grid(
    at: np.ndarray, test: np.ndarray, value: np.ndarray, T: int, names: Sequence[str], fills: dict[str, str], id: Any
) -> np.ndarray:  # fmt: skip
    """Return the inputs of one sequence, (T or more, p); NaN where a value is missing and nothing fills it."""
    moving = [k for k, name in enumerate(names) if fills.get(name) != "constant"]
    later = at[np.isin(test, moving)]
    H = int(max(T, later.max(initial=-1) + 1))
    u = np.full((H, len(names)), np.nan)
    for k, name in enumerate(names):
        where, x = at[test == k], value[test == k]
        how = fills.get(name)
        if how == "constant":
            if len(x) == 0:
                raise ValueError(f"input {name!r} is constant, and id {id!r} has no value of it")
            if x.min() != x.max():
                raise ValueError(
                    f"input {name!r} is said to be constant, and id {id!r} has {x.min():g} and {x.max():g} of it"
                )
            u[:, k] = x[0]
            continue
        inside = where >= 0
        total = np.bincount(where[inside], x[inside], minlength=H)
        count = np.bincount(where[inside], minlength=H)
        u[count > 0, k] = (total / np.maximum(count, 1))[count > 0]
        if how == "zero":
            u[np.isnan(u[:, k]), k] = 0.0
        elif how == "forward":
            before = x[~inside][np.argsort(where[~inside], kind="stable")]
            u[:, k] = _carried(u[:, k], before[-1] if len(before) else np.nan)
    return u


def _carried(x: np.ndarray, before: float) -> np.ndarray:
    """Return values (T,) with gaps that have the last value before them; `before` is the last one before the first."""
    padded = np.append(before, x)
    last = np.maximum.accumulate(np.where(np.isnan(padded), 0, np.arange(len(padded))))
    return padded[last][1:]


def known_ahead(
    cohort: Cohort, horizon: int, constants: Sequence[str], what_if: dict[str, float]
) -> np.ndarray | None:
    """Return the inputs of the next steps, (N, horizon, p): those given, constants as they were, `what_if` as it says.

    Where none of these gives one it is NaN, and a forecast says that it lacks it. None for a cohort without inputs.
    """
    for name in what_if:
        if name not in cohort.inputs:
            known = ", ".join(cohort.inputs) or "none"
            raise ValueError(f"--what-if names {name!r}; the inputs are {known}")
    if cohort.u is None:
        return None
    lengths = np.asarray(cohort.lengths)
    every = np.array(cohort.inputs_ahead(horizon))
    steps = lengths[:, None] + np.arange(horizon)
    u = np.take_along_axis(every, steps[..., None], axis=1)
    last = np.take_along_axis(np.asarray(cohort.u), (lengths - 1)[:, None, None], axis=1)
    for j, name in enumerate(cohort.inputs):
        if name in constants:
            u[..., j] = last[..., j]
        if name in what_if:
            u[..., j] = what_if[name]
    return u
