"""Reading lab results from a file or a table in memory: long, wide, or MIMIC's `labevents`.

A file is read in chunks. The log of the result says how many values were kept, and why the others were dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from . import durations
from .files import check_columns, column_names, read_chunks, separator
from .gathering import LabGatherer, Labs
from .numbers import Marks

MIMIC_ITEMS = {51249: "MCHC", 51248: "MCH", 51250: "MCV"}
_CHUNK = 500_000  # rows

_Made = Callable[[list[str] | None], LabGatherer]  # a gatherer of tests
Tests = Sequence[str] | Mapping[int, str] | None  # names to keep, or itemids and names; None: all


def read_labs(
    path: str | Path,
    *,
    kind: str = "auto",
    id: str = "id",
    time: str = "time",
    test: str = "test",
    value: str = "value",
    tests: Tests = None,
    time_unit: str = "",
    decimal: str = ".",
    thousands: str = "",
    any_times: bool = False,
    inputs: Sequence[str] = (),
    chunk: int = _CHUNK,
) -> Labs:
    """Read lab results from a CSV (also .gz) or Parquet file.

    `kind` is the layout of the table:

    - long: a row for each value, columns `id`, `time`, `test`, `value`;
    - wide: a row for each panel, columns `id`, `time` and one for each test;
    - mimic: `labevents` as downloaded (III or IV), by admission; `tests` maps itemids to names (by default those
      of MCHC, MCH and MCV);
    - auto, the default, tells them apart by their columns.

    `time` is a timestamp, or a number of `time_unit`: s, min, h, d, w, mo, y, where a year is 365.25 days; by default
    what the column's name says (`day`, `weeks`), else hours. Times that cannot be right (numbers of over 200 years,
    timestamps 150 years apart) are an error, unless `any_times`. `decimal` and `thousands` are the marks of numbers;
    columns may be separated by , ; | or tabs. `tests` names the tests to keep, in the order of the channels; by default
    all of them. `inputs` are kept besides, see `bin_labs`. The file is read
    `chunk` rows at a time, and only values that are kept stay in memory.
    """
    path = Path(path)
    named: dict[str, Any] = {"id": id, "time": time, "test": test, "value": value}
    written: dict[str, Any] = {"time_unit": time_unit, "decimal": decimal, "thousands": thousands}
    layout, kind, all_text = layout_of(
        path, kind=kind, tests=tests, any_times=any_times, inputs=inputs, **named, **written
    )
    for frame in read_chunks(path, layout.columns, chunk, layout.text, all_text=all_text):
        layout.add(frame)
    labs = layout.gatherer.finish(path.name, kind)
    mark = separator(path)
    return labs if mark == "," else labs._replace(log=(*labs.log, f"  columns end at {mark!r}"))


def layout_of(
    path: Path,
    *,
    kind: str = "auto",
    id: str = "id",
    time: str = "time",
    test: str = "test",
    value: str = "value",
    tests: Tests = None,
    time_unit: str = "",
    decimal: str = ".",
    thousands: str = "",
    any_times: bool = False,
    inputs: Sequence[str] = (),
    wrapped: Callable[[Any, Any], LabGatherer] | None = None,
) -> tuple["_Layout", str, bool]:
    """Return how a file is read (see `read_labs`), of which kind it is, and whether all its columns are read as text.

    `wrapped(make, tests)` may return a gatherer that is there already, for another file of the same layout.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if kind not in ("auto", "long", "wide", "mimic"):
        raise ValueError(f"kind is {kind!r}; it must be 'auto', 'long', 'wide' or 'mimic'")
    unit = durations.unit_of_times(time_unit, time)
    marks = Marks(decimal, thousands).check()
    columns = column_names(path)
    tests = _and_inputs(tests, inputs)
    gatherer: Any = partial(LabGatherer, unit=unit, marks=marks, any_times=any_times, inputs=inputs)
    if wrapped is not None:
        gatherer = partial(wrapped, gatherer)
    if kind == "auto":
        kind = _kind_of_table(columns, test, value)
    _check_used(kind, columns, id=id, time=time, test=test, value=value)
    if kind == "mimic":
        layout = _mimic_layout(path.name, columns, tests, gatherer)
    elif kind == "long":
        layout = _long_layout(path.name, columns, (id, time, test, value), tests, gatherer)
    else:
        layout = _wide_layout(path.name, columns, (id, time), tests, gatherer)
    # pandas would read 1.234 as a number where it means 1234
    return layout, kind, marks != Marks()


def labs_from_frame(
    frame: pd.DataFrame,
    *,
    id="id",
    time="time",
    test="test",
    value="value",
    time_unit="",
    any_times: bool = False,
) -> Labs:
    """Return the lab results of a table in memory with a row for each value; the arguments name its columns.

    Times that are numbers count `time_unit`; see `read_labs` for that and for `any_times`.
    """
    check_columns("the table", list(frame.columns))
    _require_columns("the table", list(frame.columns), (id, time, test, value))
    unit = durations.unit_of_times(time_unit, time)
    gatherer = LabGatherer(None, unit, any_times=any_times)
    gatherer.add_long(frame, id, time, test, value)
    return gatherer.finish("the table", "long")


def _and_inputs(tests: Tests, inputs: Sequence[str]) -> Tests:
    """Return the tests to keep with the inputs among them; None, for all, has them anyhow."""
    if tests is None or isinstance(tests, Mapping) or not inputs:
        return tests
    return [*tests, *(name for name in inputs if name not in tests)]


class _Layout(NamedTuple):
    """The columns to read of a file, and the function that gathers lab results from a chunk of it."""

    columns: list[Any]  # to read
    text: list[str]  # those of them that are read as text
    gatherer: LabGatherer
    add: Callable[[pd.DataFrame], None]  # adds a chunk to the gatherer


def _kind_of_table(columns: list[str], test: str, value: str) -> str:
    """Return the layout of a table, told by its columns."""
    if {"hadm_id", "itemid", "charttime"} <= {c.lower() for c in columns}:
        return "mimic"
    return "long" if {test, value} <= set(columns) else "wide"


def _check_used(kind: str, columns: list[str], **named: str) -> None:
    """Raise if a column is named that a table of this kind does not have: the name would be ignored."""
    of_no_use = {"long": (), "wide": ("test", "value"), "mimic": ("id", "time", "test", "value")}
    for argument in of_no_use[kind]:
        if named[argument] != argument:
            raise ValueError(
                f"{argument} is {named[argument]!r}, and this looks like a {kind} table, which has no such column; "
                f"its columns are {', '.join(map(str, columns))}"
            )


def _long_layout(
    name: str, columns: list[str], named: tuple[str, str, str, str], tests: Tests, made: _Made
) -> _Layout:
    """Return the layout of a table with a row for each value; `named` are its columns of ids, times, tests, values."""
    id, time, test, value = named
    _require_columns(name, columns, named)
    gatherer = made(None if tests is None else [str(t) for t in tests])
    add = partial(gatherer.add_long, id=id, time=time, test=test, value=value)
    return _Layout([*named], [id, test], gatherer, add)


def _wide_layout(
    name: str, columns: list[str], named: tuple[str, str], tests: Tests, made: _Made
) -> _Layout:
    """Return the layout of a table with a row for each panel; `named` are its columns of ids and times."""
    id, time = named
    _require_columns(name, columns, [id, time, *(tests or ())])
    measured = list(tests or [c for c in columns if c not in named])
    gatherer = made(None if tests is None else [str(t) for t in tests])
    add = partial(gatherer.add_wide, id=id, time=time, measured=measured)
    return _Layout([id, time, *measured], [id], gatherer, add)


def _mimic_layout(name: str, columns: list[str], tests: Tests, made: _Made) -> _Layout:
    """Return the layout of MIMIC's `labevents`, whose columns are in upper case (III) or in lower case (IV)."""
    of_file = {c.lower(): c for c in columns}
    needed = {k: of_file.get(k, k) for k in ("hadm_id", "itemid", "charttime", "valuenum")}
    _require_columns(name, columns, needed.values())
    items = MIMIC_ITEMS if tests is None else tests
    if not isinstance(items, Mapping):
        raise ValueError("tests of a MIMIC table must map itemids to names, {51249: 'MCHC', …}")
    used = needed | {k: of_file[k] for k in ("value", "valueuom") if k in of_file}
    gatherer = made(list(dict.fromkeys(items.values())))
    add = partial(gatherer.add_mimic, columns=used, items=items)
    return _Layout(list(used.values()), [], gatherer, add)


def _require_columns(name: str, columns: list[str], needed: Iterable[Any]) -> None:
    """Raise unless the table called `name` has all columns that are needed."""
    needed = list(needed)
    absent = [c for c in needed if c not in columns]
    check_columns(f"what is read of {name}", needed)
    if absent:
        raise ValueError(
            f"{name} has no column {absent[0]!r}; it has {', '.join(map(repr, columns))}: name yours with --id, "
            "--time, --test, --value (in Python id=, time=, …)"
        )
