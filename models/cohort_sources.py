"""What a cohort is made of, read and checked: from sequences, from one array, and from tables of two layouts."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .frames import floats, read_long
from .inputs import Inputs, after_last_value, read_inputs
from .labels import Labels, checked_ids, make_labels, name_cell


class Source(NamedTuple):
    """Values with their labels, and inputs if there are any; `Cohort` takes it from here."""

    values: np.ndarray  # (N, T, d), NaN for missing
    lengths: np.ndarray  # (N,)
    labels: Labels
    inputs: Inputs | None = None


def of_sequences(
    sequences: list[Any],
    ids: Any,
    channels: Any,
    inputs: Any,
    input_names: Any,
    fill_inputs: str | None,
) -> Source:
    """Return what arrays (T_n, d) and inputs (T_n or more, p) of each sequence hold; raise where they do not fit."""
    ids = checked_ids(ids, len(sequences))
    d = None
    for name, x in zip(ids, sequences, strict=True):
        try:
            shape = np.shape(x)
        except ValueError as error:
            raise ValueError(f"sequence {name!r} is not an array: {error}") from error
        if len(shape) != 2:
            hint = "; for one channel use x.reshape(-1, 1)" if len(shape) == 1 else ""
            raise ValueError(f"sequence {name!r} is {shape}, not (steps, channels){hint}")
        d = shape[1] if d is None else d
        if shape[1] != d:
            raise ValueError(f"sequence {name!r} has {shape[1]} channels, the first has {d}")
    labels = make_labels(ids, channels, d)
    arrays = [floats(x, lambda at, n=n: name_cell(labels, n, *at)) for n, x in enumerate(sequences)]
    lengths = np.array([len(x) for x in arrays])
    values = np.full((len(arrays), lengths.max(), len(labels.channels)), np.nan)
    values[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(arrays)
    found = None
    if inputs is not None:
        found = read_inputs(list(inputs), lengths, ids, input_names, fill_inputs)
    return Source(values, lengths, labels, found)


def of_array(
    y: Any,
    lengths: Any,
    ids: Any,
    channels: Any,
    inputs: Any,
    input_names: Any,
    fill_inputs: str | None,
) -> Source:
    """Return what an array (N, T, d) holds, with inputs (N, T or more, p)."""
    shape = np.shape(y)
    if len(shape) != 3:
        raise ValueError(f"y has shape {shape}; it must be (sequences, steps, channels)")
    labels = make_labels(checked_ids(ids, shape[0]), channels, shape[2])
    lengths = np.full(shape[0], shape[1]) if lengths is None else np.asarray(lengths)
    if lengths.shape != shape[:1] or lengths.dtype.kind not in "iu":
        raise ValueError(f"lengths is {lengths}; give {shape[0]} integers, one a sequence")
    values, found = floats(y, lambda at: name_cell(labels, *at)), None
    if inputs is not None:
        check_lengths(lengths, shape[1], labels)
        each = [_without_end(x, T_n) for x, T_n in zip(inputs, lengths, strict=False)]
        found = read_inputs(each, lengths, labels.ids, input_names, fill_inputs)
    return Source(values, lengths, labels, found)


def of_long(
    frame: pd.DataFrame,
    id: Any,
    time: Any,
    channel: Any,
    value: Any,
    channels: Any,
    step: Any,
    inputs: Any,
    fill_inputs: str | None,
) -> Source:
    """Return what a table with a row for each (id, time, channel) holds; some of its channels may be inputs."""
    inputs = listed(inputs)
    if inputs and channels is None and channel in frame:
        channels = [c for c in map(str, frame[channel].unique()) if c not in inputs]
    wanted = None if channels is None else [*channels, *inputs]
    found = read_long(frame, id, time, channel, value, wanted, step)
    ids, d = checked_ids(found.ids, len(found.ids)), len(found.channels) - len(inputs)
    labels = make_labels(ids, found.channels[:d], d, found.starts, found.step)
    if not inputs:
        return Source(found.values, found.lengths, labels)
    values, u = found.values[..., :d], found.values[..., d:]
    lengths = after_last_value(values, found.lengths)
    each = [x[:n] for x, n in zip(u, found.lengths, strict=True)]
    return Source(values, lengths, labels, read_inputs(each, lengths, ids, inputs, fill_inputs))


def check_lengths(lengths: np.ndarray, T: int, labels: Labels) -> None:
    """Raise unless every length is from 1 to T."""
    for n in np.flatnonzero((lengths < 1) | (lengths > T)):
        raise ValueError(f"sequence {labels.ids[n]!r} has length {lengths[n]}, not 1 to {T} steps")


def listed(names: Any) -> list[str]:
    """Return the names of inputs as a list."""
    if isinstance(names, str):
        raise TypeError(f"inputs is the string {names!r}; give a list of names")
    return [str(name) for name in names or ()]


def _without_end(x: Any, length: int) -> Any:
    """Return inputs (T, p) up to the last step past `length` at which one is known."""
    known = np.flatnonzero(~np.isnan(np.asarray(x, float)).all(-1))
    return x[: max(length, known.max(initial=-1) + 1)]
