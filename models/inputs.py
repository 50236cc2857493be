"""Inputs of a cohort, read at the door: known at every step of every sequence, and ahead of its end where given.

An input is a treatment, a covariate or a constant, u_t in z_t = A z_{t-1} + B u_t + e_t and y_t = C z_t + D u_t + v_t.
Observations may be missing, inputs may not: what to put in their place is a decision, which `fill_inputs` states.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .frames import check_unique, floats

INTERCEPT = "intercept"  # the name of the input that is 1 at every step, also of the future
ACTS_ON = ("emission", "state", "both")  # what an intercept acts on
_FILLS = (None, "forward", "zero")


class Inputs(NamedTuple):
    """Inputs of N sequences, with their names."""

    names: tuple[str, ...]
    u: np.ndarray  # (N, T, p), 0 beyond a sequence's length
    ahead: (
        np.ndarray | None
    )  # (N, H, p) of the H steps after each sequence's own end, NaN where not given


def read_inputs(
    sequences: Sequence[Any], lengths: np.ndarray, ids: tuple, names: Any, fill: str | None
) -> Inputs:
    """Return the inputs of all sequences from arrays (T_n or more, p); raise where one is missing, or too short.

    `fill` says what takes the place of NaN: None, nothing; "forward", the sequence's last value; "zero", 0.
    """
    if fill not in _FILLS:
        raise ValueError(f"fill_inputs is {fill!r}; it must be None, 'forward' or 'zero'")
    sequences = list(sequences)
    if len(sequences) != len(ids):
        raise ValueError(f"inputs has {len(sequences)} sequences, and y has {len(ids)}")
    p = _count(sequences, lengths, ids)
    names = _names(names, p)
    arrays = [
        floats(x, lambda at, n=n: f"sequence {ids[n]!r}, step {at[0]}, input {names[at[1]]!r}")
        for n, x in enumerate(sequences)
    ]
    arrays = [_filled(x, fill) for x in arrays]
    T, H = int(lengths.max()), max(len(x) - T_n for x, T_n in zip(arrays, lengths, strict=True))
    u, ahead = np.zeros((len(arrays), T, p)), np.full((len(arrays), max(H, 0), p), np.nan)
    for n, (x, T_n) in enumerate(zip(arrays, lengths, strict=True)):
        for t, j in np.argwhere(~np.isfinite(x)):
            what = "missing" if np.isnan(x[t, j]) else x[t, j]
            raise ValueError(
                f"sequence {ids[n]!r}, step {t}, input {names[j]!r} is {what}, and inputs must be known; give it, or "
                "say what takes its place: fill_inputs='forward' (the last value) or 'zero'"
            )
        u[n, :T_n], ahead[n, : len(x) - T_n] = x[:T_n], x[T_n:]
    return Inputs(names, u, ahead if H > 0 else None)


def _count(sequences: list[Any], lengths: np.ndarray, ids: tuple) -> int:
    """Return the number p of inputs; raise unless every sequence has (T_n or more, p) of them."""
    p = None
    for name, T_n, x in zip(ids, lengths, sequences, strict=True):
        shape = np.shape(x)
        if len(shape) != 2 or shape[1] == 0:
            hint = "; for one input use x.reshape(-1, 1)" if len(shape) == 1 else ""
            raise ValueError(f"inputs of sequence {name!r} are {shape}, not (steps, inputs){hint}")
        p = shape[1] if p is None else p
        if shape[1] != p:
            raise ValueError(f"sequence {name!r} has {shape[1]} inputs, the first has {p}")
        if shape[0] < T_n:
            raise ValueError(f"sequence {name!r} has inputs at {shape[0]} steps, and {T_n} steps")
    return int(p or 0)


def _names(names: Any, p: int) -> tuple[str, ...]:
    """Return the names of p inputs, u0, u1, … by default."""
    if isinstance(names, str):
        raise TypeError(f"input_names is the string {names!r}; give a list of names")
    found = tuple(f"u{j}" for j in range(p)) if names is None else tuple(map(str, names))
    if len(found) != p:
        raise ValueError(f"input_names has {len(found)} names, and the data has {p} inputs")
    check_unique(found, "input_names")
    if INTERCEPT in found:
        raise ValueError(f"an input is named {INTERCEPT!r}: use cohort.with_intercept() for that")
    return found


def _filled(x: np.ndarray, fill: str | None) -> np.ndarray:
    """Return inputs (T, p) with their gaps filled; before the first value there is nothing to carry forward."""
    if fill == "zero":
        return np.where(np.isnan(x), 0.0, x)
    if fill == "forward":
        last = np.maximum.accumulate(np.where(np.isnan(x), 0, np.arange(len(x))[:, None]), axis=0)
        return np.take_along_axis(x, last, axis=0)
    return x


def after_last_value(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the lengths (N,) up to the last step with an observed cell of values (N, T, d), at least 1."""
    seen: Any = ~np.isnan(values).all(2)
    last = np.where(seen.any(1), values.shape[1] - np.argmax(seen[:, ::-1], axis=1), 1)
    return np.minimum(last, lengths)


def steps_ahead(
    names: tuple[str, ...], u: Any, ahead: Any, lengths: Any, H: int, xp: Any = np
) -> Any:
    """Return the inputs of T + H steps, (N, T + H, p): NaN past a sequence's end where none were given, but 1 for an
    intercept."""
    N, T, p = u.shape
    t = np.arange(T + H)[None]
    lengths = xp.asarray(lengths)[:, None]
    inside = xp.concatenate([u, xp.zeros((N, H, p), u.dtype)], axis=1) if H else u
    constant = np.array([name == INTERCEPT for name in names])
    later = xp.where(constant, 1.0, xp.full((N, T + H, p), xp.nan, u.dtype))
    if ahead is not None:
        at = xp.clip(t - lengths, 0, ahead.shape[1] - 1)
        known = ((t - lengths) < ahead.shape[1])[..., None]
        later = xp.where(known, xp.take_along_axis(xp.asarray(ahead), at[..., None], axis=1), later)
        later = xp.where(constant, 1.0, later)
    return xp.where((t < lengths)[..., None], inside, later)
