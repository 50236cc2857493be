"""The parts of a report: text, lines, tables that sort, and figures, which the template draws."""

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...outputs import write_figure


class Part(NamedTuple):
    """A part of a section; `kind` is text, lines, table or figure."""

    kind: str
    text: str = ""  # of a figure or table: its caption
    head: Sequence[str] = ()
    rows: Sequence[
        Sequence[Any]
    ] = ()  # of a table: cells as (text, what it is sorted by, whether a number)
    image: str = ""  # of a figure: the content of its src
    alt: str = ""


class Section(NamedTuple):
    """A part of the report that opens; its summary is read while it is closed."""

    title: str
    summary: str
    parts: Sequence[Part]
    name: str = ""  # to be linked to
    is_open: bool = False


def text(words: str) -> Part:
    """Return a paragraph."""
    return Part("text", words)


def lines(words: str) -> Part:
    """Return text that keeps its own lines; long ones are folded, not cut off."""
    return Part("lines", words)


def table(frame: pd.DataFrame, caption: str = "", digits: int = 3) -> Part:
    """Return a table, its index as the first columns."""
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    head = [str(name) for name in frame.columns]
    rows = [[_cell(x, digits) for x in row] for row in frame.itertuples(index=False)]
    return Part("table", caption, head, rows)


def figure(drawn: Figure, caption: str, alt: str, file: Path | None = None) -> Part:
    """Return a figure as SVG, write it to a PNG file if one is given, and close it.

    The alternative text says what the picture says.
    """
    buffer = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sparse-lds"}):
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    if file is not None:
        write_figure(file, drawn, dpi=130)
    plt.close(drawn)
    image = re.sub(r' d="[^"]*"', lambda found: _shorter(found[0]), _body(buffer.getvalue()))
    coded = base64.b64encode(image.encode()).decode()
    return Part("figure", caption, image=f"data:image/svg+xml;base64,{coded}", alt=alt)


def _shorter(path: str) -> str:
    """Return the path of a shape with hundredths of a point: text and ticks stay as they are."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path)


def _body(svg: str) -> str:
    """Return an SVG without its declaration."""
    return svg[svg.index("<svg") :]


def _cell(x: Any, digits: int) -> tuple[str, str, bool]:
    """Return a value as text, as what it is sorted by, and whether it is a number."""
    if x is None or x is pd.NA:
        return "", "", False
    if isinstance(x, bool | np.bool_):
        return ("yes" if x else "no"), str(int(x)), False
    if isinstance(x, int | float | np.number):
        number = float(x)
        if np.isnan(number):
            return "", "", True
        whole = number.is_integer() and abs(number) < 1e9
        short = f"{number:.0f}" if whole else f"{number:.{digits}g}"
        return short, repr(number), True
    return str(x), str(x).lower(), False
