"""The labels of a cohort: ids, channel names, units and times of its values."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .frames import check_unique


@dataclass(frozen=True)
class Labels:
    """Names, units and times of a cohort's values: the static, hashable part of a jit argument.

    user's value = shift + scale · stored value, channel by channel; for a logged channel that is its natural logarithm.
    """

    ids: tuple
    channels: tuple[str, ...]
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    starts: tuple | None = None  # each sequence's first time; None: all start at 0
    step: Any = 1  # the time between two steps: a number or a pandas Timedelta
    time_unit: str = ""  # what numbers in starts and step count, such as "days"; empty if not known
    logged: tuple[str, ...] = ()  # the channels that are stored as logarithms, in their order
    inputs: tuple[str, ...] = ()
    intercept: str = ""  # what the input named "intercept" acts on: "emission", "state" or "both"

    @cached_property
    def _key(self) -> tuple:
        of_times = self.starts, self.step, self.time_unit
        of_inputs = self.inputs, self.intercept
        return self.ids, self.channels, self.shift, self.scale, *of_times, self.logged, *of_inputs

    @cached_property
    def _hash(self) -> int:  # cached, because jit hashes its static fields at every call
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other) -> bool:
        same = isinstance(other, Labels) and self._hash == other._hash
        return self is other or (same and self._key == other._key)

    def __reduce__(self):  # not the cached hash: that of a string differs between processes
        return Labels, self._key

    def time_of(self, n: int, step: int) -> Any:
        """Return the time of a step (counted from 0, it may be past the end) of the n-th sequence."""
        start = 0 if self.starts is None else self.starts[n]
        return start + int(step) * self.step


def checked_ids(ids, n: int) -> tuple:
    """Return n ids, 0, 1, … by default; raise unless there are n, at least one, and all differ."""
    if n == 0:
        raise ValueError("a cohort needs at least one sequence, and there is none")
    ids = tuple(range(n) if ids is None else ids)
    ids = tuple(i.item() if isinstance(i, np.generic) else i for i in ids)
    if len(ids) != n:
        raise ValueError(f"ids has {len(ids)} entries for {n} sequences")
    check_unique(ids, "ids")
    return ids


def make_labels(ids: tuple, channels, d, starts=None, step=1) -> Labels:
    """Return the labels of d channels in the user's units; raise unless their names fit."""
    if isinstance(channels, str):
        raise TypeError(f"channels is the string {channels!r}; give a list of names")
    names = tuple(f"y{j}" for j in range(d)) if channels is None else tuple(map(str, channels))
    if d == 0 or len(names) != d:
        raise ValueError(f"channels has {len(names)} names, and the data has {d} channels")
    check_unique(names, "channels")
    return Labels(ids, names, (0.0,) * d, (1.0,) * d, starts, step)


def name_cell(labels: Labels, n, t, j) -> str:
    """Return the name of a cell, for an error message."""
    return f"sequence {labels.ids[n]!r}, step {t}, channel {labels.channels[j]!r}"
