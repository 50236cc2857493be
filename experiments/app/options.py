"""The options that say how lab results are read and binned, written once for all commands that read a file."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer


def _option(*names: str, help: str, **settings: Any) -> Any:
    """Return an option that `--help` lists with those on data."""
    return typer.Option(*names, help=help, rich_help_panel="How the data are read", **settings)


class DataOptions(NamedTuple):
    """How lab results are read and binned; a field is an option of the command line, and is kept in source.json."""

    kind: Annotated[str, _option(help="auto, long, wide or mimic")] = "auto"
    id: Annotated[str, _option("--id", help="column of the patient or admission")] = "id"
    time: Annotated[str, _option("--time", help="column of the time: dates or numbers")] = "time"
    time_unit: Annotated[
        str,
        _option(
            help="what numbers of time count: s, min, h, d, w, mo or y",
            show_default="its name, or h",
        ),
    ] = ""
    any_times: Annotated[
        bool, _option("--any-times", help="allow times that look wrong: too far apart, or too few")
    ] = False
    decimal: Annotated[str, _option(help="mark before decimals: . or ,")] = "."
    thousands: Annotated[
        str, _option(help="mark between thousands, such as , or .", show_default="none")
    ] = ""
    test: Annotated[str, _option("--test", help="column of the test's name")] = "test"
    value: Annotated[str, _option("--value", help="column of the value")] = "value"
    tests: Annotated[str, _option(help="tests to keep, with commas; itemid=name for MIMIC")] = ""
    log: Annotated[
        str, _option(help="tests to model by their logarithms, with commas, or all: never negative")
    ] = ""
    step: Annotated[
        str | None,
        _option(
            help="width of a bin, such as 30min, 8h, 1d, 2w or 0.5y",
            show_default="8h, or the usual time between values",
        ),
    ] = None
    panels: Annotated[int, _option(help="bins with all tests that a patient needs")] = 10
    gaps: Annotated[
        str | None,
        _option(
            help="missing (the model's own) or interpolate (the paper's straight lines)",
            show_default="missing; for table1 interpolate",
        ),
    ] = None
    anonymous: Annotated[
        bool,
        _option("--anonymous", help="numbers for ids in all results; a key file beside the folder"),
    ] = False
    inputs: Annotated[
        str,
        _option(help="tests that are known and not modelled: treatments, covariates; with commas"),
    ] = ""
    fill_inputs: Annotated[
        str,
        _option(
            help="where inputs have no value: zero, forward or constant, or dose=zero,age=constant"
        ),
    ] = ""
    intercepts: Annotated[
        str,
        _option(
            help="a constant for each test (emission), each state (state), both, or none",
            show_default="emission with --inputs, else none",
        ),
    ] = ""
    hours: Annotated[float | None, _option(help="--step in hours, its old name", hidden=True)] = (
        None
    )


def reads_data(command: Callable) -> Callable:
    """Return the command with the fields of `DataOptions` as options; it gets them as its argument `options`."""
    own = inspect.signature(command)
    hints = get_type_hints(DataOptions, include_extras=True)
    parameters = [p for p in own.parameters.values() if p.name != "options"]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name]
        )
        for name, default in DataOptions._field_defaults.items()
    ]

    @functools.wraps(command)
    def run(*args, **kwargs):
        given = {name: kwargs.pop(name) for name in DataOptions._fields}
        return command(*args, options=DataOptions(**given), **kwargs)

    # typer reads the one for the order and defaults, the other for the types
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def not_ignored(options: DataOptions, *, why: str, **wanted: Any) -> None:
    """Raise if an option differs from what a command takes it for, so that none is ignored in silence."""
    for name, value in wanted.items():
        if getattr(options, name) != value:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} is given, and would be ignored: {why}; leave it out")


def check_states(states: int | None, levels: bool, starts: int | None = None) -> None:
    """Raise if options contradict each other, or one of them would be ignored."""
    if levels and states is not None:
        raise ValueError(f"--levels is given, and --states {states} besides; give one of them")
    if starts is not None and states is None:
        raise ValueError(
            f"--starts is {starts}; it is for --states: a fit with a state for each test has one start"
        )
