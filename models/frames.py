"""Numbers, times and names read from the user's tables and arrays; an error names the place of a wrong one."""

from collections import Counter
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types


class LongTable(NamedTuple):
    """The content of a long table: values on a grid of steps, with their names and times."""

    values: np.ndarray  # (N, T, d), NaN where missing
    lengths: np.ndarray  # (N,)
    ids: list
    channels: list[str]
    starts: tuple  # each sequence's first time
    step: Any  # the time between two steps


def read_long(frame, id, time, channel, value, channels, step) -> LongTable:
    """Read a table with a row for each (id, time, channel); see `Cohort.from_long`."""
    table = check_frame(frame, [id, time, channel, value])
    code, found = factorize(table, channel)
    names = found = [str(c) for c in found]
    if channels is not None:
        names = [str(c) for c in channels]
        if not names or set(names) - set(found):
            raise ValueError(f"channels={channels} are not all in column {channel!r}: {found}")
        code = np.array([names.index(c) if c in names else -1 for c in found])[code]
        table, code = table[code >= 0], code[code >= 0]

    def name_row(row, j=None):
        who, when = (table[c].iloc[[row]].tolist()[0] for c in (id, time))
        what = "" if j is None else f", channel {names[j]!r}"
        return f"sequence {who!r}, time {when}{what}"

    cells = floats(table[value], lambda at: name_row(at[0], code[at[0]]))
    person, ids = factorize(table, id)
    index, starts, step = steps(table[time], person, step, name_row)
    check_unique(names, "channels")
    values = np.full((len(ids), index.max() + 1, len(names)), np.nan)
    place = np.ravel_multi_index((person, index, code), values.shape)
    for row in np.flatnonzero(pd.Series(place).duplicated()):
        raise ValueError(f"{name_row(row, code[row])} is there twice; average or drop repeats")
    values.reshape(-1)[place] = cells
    lengths = np.zeros(len(ids), dtype=int)
    np.maximum.at(lengths, person, index + 1)
    return LongTable(values, lengths, ids, names, starts, step)


def wide_to_long(frame, id, time, channels) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return a table with a column for each channel as a long one, and the names of its two new columns."""
    table = check_frame(frame, [id, time, *([] if channels is None else channels)])
    names = [c for c in table if c not in (id, time)] if channels is None else list(channels)
    if not names:
        raise ValueError(f"frame has no column for a channel beside {id!r} and {time!r}")
    channel, value = f"channel beside {id}, {time}", f"value beside {id}, {time}"  # new names
    parts = [table[[id, time, c]].rename(columns={c: value}).assign(**{channel: c}) for c in names]
    return pd.concat(parts), {"channel": channel, "value": value}


def check_frame(frame, columns) -> Any:  # pandas types tell a checker little
    """Return the frame; raise unless it has rows, the given columns, and no column name twice."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame is a {type(frame).__name__}; give a pandas DataFrame")
    for c in columns:
        if c not in frame:
            raise ValueError(
                f"frame has no column {c!r}; it has {list(frame)} (an index becomes a column by reset_index)"
            )
    check_unique(frame, "frame.columns")
    check_unique(columns, "the columns to read")
    if len(frame) == 0:
        raise ValueError("frame has no rows; a cohort needs at least one sequence")
    return frame


def factorize(frame, column) -> tuple[np.ndarray, list]:
    """Return integer codes in order of first appearance, and the distinct values."""
    code, found = pd.factorize(frame[column])
    for row in np.flatnonzero(code < 0):
        raise ValueError(f"column {column!r} is missing in row {frame.index[row]}; fill or drop it")
    return code, found.tolist()


def steps(times, person, step: Any, name_row) -> tuple[np.ndarray, tuple, Any]:
    """Return the step index of every row, the first time of every sequence, and the step as stored."""
    times = times.infer_objects()
    kind = f"column {times.name!r} has dtype {times.dtype}"
    for row in np.flatnonzero(times.isna()):
        raise ValueError(f"{name_row(row)}: column {times.name!r} is missing; fill or drop the row")
    dates = types.is_datetime64_any_dtype(times) or types.is_timedelta64_dtype(times)
    if types.is_integer_dtype(times):
        times, step = times.astype("int64"), 1 if step is None else step
    elif not dates and not types.is_float_dtype(times):
        raise TypeError(f"{kind}; give integers, real numbers or dates (see pandas.to_datetime)")
    if step is None:
        raise ValueError(f"{kind}: give step=, the time between two steps, such as 0.5 or '8h'")
    if (isinstance(step, Real) and not isinstance(step, np.timedelta64)) == dates:
        raise TypeError(f"{kind}, and step is {step!r}: numbers go with numbers, '8h' with dates")
    step = pd.Timedelta(step) if dates else step
    if not step > 0 * step:  # a duration cannot be compared with 0; false for NaN and infinity
        raise ValueError(f"step is {step!r}; it must be positive and finite")

    by_sequence = times.groupby(person)
    with np.errstate(invalid="ignore"):
        exact = ((times - by_sequence.transform("min")) / step).to_numpy(dtype=np.float64)
        index = np.rint(exact)
        off_grid = ~(np.abs(exact - index) <= 1e-6)  # true for an infinite time, too
    for row in np.flatnonzero(off_grid):
        raise ValueError(
            f"{name_row(row)} is {exact[row]:.6g} steps of {step} after the sequence's first time; "
            "bin the times to a grid first, or give another step"
        )
    # A cohort is one padded array: unix seconds taken for steps would not fit into memory.
    last = index.argmax()
    grid = (person.max() + 1) * (index[last] + 1)
    if grid > 1000 * len(times):
        raise ValueError(
            f"{name_row(last)} is step {index[last]:.0f} of its sequence: {grid:.3g} steps in all "
            f"for {len(times)} values; give step= larger than {step}, or mend the times"
        )
    return index.astype(np.int64), tuple(by_sequence.min().tolist()), step


def floats(x, name_cell) -> np.ndarray:
    """Return a float64 copy, with NaN for None, pd.NA and masked cells; raise where a cell is not a number."""
    if isinstance(x, np.ma.MaskedArray):  # np.asarray would bring up the values under the mask
        x = np.ma.filled(x.astype(object), np.nan)
    a = np.asarray(x)
    if a.dtype.kind in "fiub":
        return a.astype(np.float64)
    # Dates become text here, which is refused below: as objects numpy would turn them into integers.
    a = a.astype(str) if a.dtype.kind in "mM" else np.asarray(x, dtype=object)
    out = np.full(a.shape, np.nan)
    for at, v in np.ndenumerate(a):
        if isinstance(v, Real | Decimal | np.bool_):
            out[at] = float(v)
        elif v is not None and v is not pd.NA:
            raise TypeError(f"{name_cell(at)} is {v!r}; give a real number, or NaN for missing")
    return out


def check_unique(names, argument: str) -> None:
    """Raise unless every name occurs once."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{argument} holds {name!r} {count} times; every name must be its own")


def to_wide(cohort: Any, units: bool, id: str, time: str) -> pd.DataFrame:
    """Return a cohort as a table with one row for each step, as `Cohort.to_dataframe` says."""
    if {id, time} & {*cohort.channels, *cohort.inputs}:
        raise ValueError(f"a column is named {id!r} or {time!r}: give other id=, time=")
    H = 0 if cohort.ahead is None else cohort.ahead.shape[1]
    inside = np.arange(cohort.n_steps + H) < np.asarray(cohort.lengths)[:, None]
    known = [j for j in range(cohort.n_inputs) if j != cohort.intercept]
    u = cohort.inputs_ahead(H)[..., known] if known else np.zeros((*inside.shape, 0))
    if H:
        inside |= np.isfinite(u).all(2)
    n, t = np.nonzero(inside)
    values = np.where(cohort.mask, cohort.to_units(cohort.y) if units else cohort.y, np.nan)
    values = np.pad(values, [(0, 0), (0, H), (0, 0)], constant_values=np.nan)[inside]
    starts = pd.Series(cohort.labels.starts or [0] * len(cohort))
    times = starts.iloc[n].reset_index(drop=True) + pd.Series(t) * cohort.labels.step
    frame = pd.DataFrame({id: pd.Series(cohort.ids).iloc[n].to_numpy(), time: times})
    columns = [*cohort.channels, *(cohort.inputs[j] for j in known)]
    return frame.join(pd.DataFrame(np.hstack([values, u[inside]]), columns=columns))
