"""The application: its help, its errors as one line, what is recorded of a command, and its progress."""

import functools
import inspect
import shlex
import sys
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from .guard import guarded
from .help import Commands

START, STEPS, PAPER = "Start here", "Step by step", "The paper"

app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    """Print the version and end, if asked for."""
    if wanted:
        print(f"sparse-lds {version('sparse-lds')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show it")
    ] = False,
) -> None:
    """Sparse linear dynamical systems, with a posterior that judges the zeros.

    Start with: sparse-lds run labs.csv --out results/mine
    """


def told(command):
    """Return the command with its errors as one line (see guard.py), known to `record` while it runs."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        _running.set((command, kwargs))
        return command(*args, **kwargs)

    return guarded(run)


_running: ContextVar[Any] = ContextVar("the command that runs, and what it was given", default=None)


def record(folder: Path) -> None:
    """Add the command that runs, with the options that differ from their defaults, to commands.txt."""
    if _running.get() is None:
        return
    command, given = _running.get()
    words = ["sparse-lds", command.__name__]
    for name, parameter in inspect.signature(command).parameters.items():
        value = given.get(name, parameter.default)
        if name == "data" and given.get("anonymous"):
            value = "FILE"  # its name may tell of whom the data are
        if name in ("data", "folder"):
            words.insert(2, str(value))
        elif value != parameter.default:
            option = "--" + name.replace("_", "-")
            words += [option] if value is True else [option, str(value)]
    with open(folder / "commands.txt", "a", encoding="utf-8") as file:
        file.write(shlex.join(words) + "\n")


_in_lines = False  # whether progress is written as lines, every so often


def progress() -> bool:
    """Tell whether to show progress: bars in a terminal, lines in the log of a process of our own."""
    return sys.stderr.isatty() or _in_lines


def progress_in_lines() -> None:
    """Let progress be a line every half minute, where stderr is no terminal."""
    global _in_lines
    if sys.stderr.isatty():
        return
    _in_lines = True
    import tqdm

    words = "{desc}: {percentage:.0f}%, {n_fmt} of {total_fmt}, {elapsed} gone, {remaining} left"
    tqdm.tqdm.__init__ = functools.partialmethod(  # type: ignore[method-assign]
        tqdm.tqdm.__init__, mininterval=30, bar_format=words
    )
    sys.stderr = _Lines(sys.stderr)  # type: ignore[assignment]


class _Lines:
    """A stream on which what would overwrite a line becomes a line of its own."""

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; a bar, which begins with a carriage return, as a line."""
        if text.startswith("\r"):
            text = f"{text.strip()}\n" if text.strip() else ""
        self.stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
