"""Tables and figures as files, which appear whole or not at all."""

import io
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..models.files import write_whole

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # begin what a spreadsheet would run as a formula


def write_csv(path: Path, table: pd.DataFrame, **options: Any) -> Path:
    """Write a table to a CSV file, with the options of `DataFrame.to_csv`; text that begins a formula gets a quote."""
    table = table.copy(deep=False)
    table.index, table.columns = _quiet_index(table.index), _quiet_index(table.columns)
    for k, kind in enumerate(table.dtypes):
        if not pd.api.types.is_numeric_dtype(kind) and kind.kind not in "mM":
            table.isetitem(k, table.iloc[:, k].map(quiet))
    return write_whole(path, table.to_csv(lineterminator="\n", **options))


def write_figure(path: Path, figure: Figure, **options: Any) -> Path:
    """Write a figure to a file of the kind that its suffix names."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], **options)
    return write_whole(path, buffer.getvalue())


def quiet(cell: Any) -> Any:
    """Return a cell as a spreadsheet shows it without running it: a quote before = + - @, but for numbers.

    >>> [quiet(x) for x in ("=1+1", "-2.5", "K", -2.5)]
    ["'=1+1", '-2.5', 'K', -2.5]
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _quiet_index(index: Any) -> Any:
    """Return the names of rows or columns, likewise."""
    if isinstance(index, pd.MultiIndex):
        levels = [level.map(quiet) for level in index.levels]
        return index.set_levels(levels, verify_integrity=False)
    return index if pd.api.types.is_numeric_dtype(index.dtype) else index.map(quiet)
