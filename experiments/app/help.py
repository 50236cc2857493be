"""Help that fits on a screen, and options under the names that they have in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

# what most people need of a command with many options; --help-all shows the rest too
COMMON = {
    *("data", "help", "out", "states", "force"),
    *("id", "time", "test", "value", "time_unit", "tests", "log", "step", "panels"),
}
_MANY = 12

# arguments of Python functions that have another name on the command line
_IN_PYTHON = {
    "n-states": "states",
    "num-samples": "draws",
    "num-warmup": "warmup",
    "num-chains": "chains",
    "n-restarts": "starts",
    "n-betas": "betas",
    "min-panels": "panels",
}
_ALL = "--help-all"


def as_named_here(name: str) -> str:
    """Return the name of an option on the command line; that of the Python argument is taken too."""
    plain = name.replace("_", "-")
    return _IN_PYTHON.get(plain, plain)


SETTINGS = {"help_option_names": ["--help", _ALL], "token_normalize_func": as_named_here}


@contextmanager
def hidden(parameters: list[Any]) -> Iterator[None]:
    """Keep parameters out of the help that is written meanwhile."""
    for p in parameters:
        p.hidden = True
    try:
        yield
    finally:
        for p in parameters:
            p.hidden = False


class ShortHelp(TyperCommand):
    """A command whose --help shows the common options, and --help-all all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember whether all options are to be shown."""
        ctx.meta[_ALL] = _ALL in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; of many options the common ones, unless all are asked for."""
        shown: list[Any] = [p for p in self.params if not getattr(p, "hidden", False)]
        every = ctx.meta.get(_ALL) or len(shown) <= _MANY
        rare = [] if every else [p for p in shown if p.name not in COMMON]
        self.epilog = f"{len(rare)} options more: {ctx.command_path} {_ALL}" if rare else None
        with hidden(rare):
            super().format_help(ctx, formatter)


class Commands(TyperGroup):
    """The list of commands, which fits on a screen: options of the shell are a line at its end."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the commands near its top."""
        shell: list[Any] = [p for p in self.params if (p.name or "").endswith("_completion")]
        self.epilog = "The Tab key completes them after: sparse-lds --install-completion"
        with hidden(shell):
            super().format_help(ctx, formatter)
