"""Set-up, messages and the folder of results, which all commands share.

JAX, and modules that need it, are imported where they are used, so that `--help` and errors come at once.
"""

import json
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import runs
from .guard import claim
from .options import DataOptions

_begin = time.perf_counter()


def say(text: str) -> None:
    """Print a message, with the seconds since the start."""
    first, *rest = text.split("\n")
    print(f"[{time.perf_counter() - _begin:6.1f} s] {first}", flush=True)
    for line in rest:
        print(f"           {line}", flush=True)


def set_up() -> None:
    """Switch on 64 bits, draw figures to files, and keep compiled programs in the user's cache folder."""
    import jax
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False  # a test may be called "$K$"
    warnings.showwarning = lambda message, *args, **kwargs: say(f"warning: {message}")
    jax.config.update("jax_enable_x64", True)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        cache = Path(base) / "sparse-lds" / "jax"
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # without a cache the commands are only slower
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def check_free(out: Path, force: bool, *names: str, other: str = "give another --out, or ") -> None:
    """Raise if one of the named results exists already, unless `force` is given."""
    there = [name for name in names if (out / name).exists()]
    if there and not force:
        raise ValueError(
            f"{str(out / there[0])!r} is there already; {other}--force to overwrite it"
        )


def folder_for(out: Path) -> Path:
    """Make the folder, lock it for this command, and return it; raise if it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {str(out)!r}: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise PermissionError(f"the folder {str(out)!r} cannot be written")
    claim(out)
    return out


# what a fit writes
OF_A_FIT = (
    "fit.json", "params.json", "A.csv", "B.csv", "D.csv", "variance.csv", "selection.csv", "skill.csv", "skill.txt",
    "structures.csv",
)  # fmt: skip
# what `compare` writes, the report last
OF_A_COMPARISON = (
    "comparison.csv", "comparison_inputs.csv", "confusion.csv", "links.csv", "links.graphml", "series.png",
    "beta.png", "evidence.png", "mixing.png", "forest.png", "eigenvalues.png", "forecasts.png", "coverage.png",
    "transition.png", "forecast.png", "inputs.png", "what_if.png",
    "report.html",
)  # fmt: skip
# results that are made of a posterior, and of a fit
AFTER_A_POSTERIOR = (
    "posterior_parts", "posterior.nc", "verdict.txt", "forecast.csv", *OF_A_COMPARISON,
)  # fmt: skip
AFTER_A_FIT = ("commands.txt", *AFTER_A_POSTERIOR)
OF_THE_DEMO = ("demo_states", "demo_states.png", "demo_panel.csv")


def remove(folder: Path, *names: str) -> None:
    """Remove results of ours by name, and say so."""
    there = runs.remove(folder, *names)
    if there:
        say(f"removed what was made of earlier results: {', '.join(there)}")


def load_cohort(data: Path, options: DataOptions):
    """Return the cohort of a file, in its units, and print how much was kept and dropped."""
    from ..labs import read_labs

    labs = read_labs(data, inputs=_names(options.inputs), **reading_options(options))
    return bin_cohort(labs, options)


def reading_options(options: DataOptions) -> dict[str, Any]:
    """Return the options of `read_labs` besides inputs."""
    wanted: Any = _names(options.tests) or None
    if wanted and all("=" in t for t in wanted):
        wanted = {int(k): v for k, v in (t.split("=", 1) for t in wanted)}
    given = ("kind", "id", "time", "test", "value", "time_unit", "decimal", "thousands")
    same = {name: getattr(options, name) for name in (*given, "any_times")}
    return {"tests": wanted, **same}


def bin_cohort(labs, options: DataOptions):
    """Return the cohort of lab results, with the logarithms asked for, and print how much was kept and dropped.

    Without a step bins are of 8 hours, or of the usual time between two measurements where that is well above.
    """
    from ..labs import bin_labs
    from ..labs.spacing import usual_step

    for line in labs.log:  # before binning, which may fail for what was dropped
        say(line)
    step = options.step
    if step is None and options.hours is None:
        usual = usual_step(labs.patient, labs.hours, 8.0, labs.clock)
        if usual is not None:
            step = usual.short
            say(
                f"bins are of {usual}, the median time between two measurements; --step says otherwise"
            )
    binned = bin_labs(
        labs,
        step=step,
        hours=options.hours,
        min_panels=options.panels,
        gaps=options.gaps or "missing",
        any_times=options.any_times,
        inputs=_names(options.inputs),
        fill_inputs=options.fill_inputs,
    )
    # tests are centred and inputs are not: without a level of each test, B would have to make up for it
    where = options.intercepts or ("emission" if options.inputs else "none")
    if where != "none":
        binned = binned._replace(cohort=binned.cohort.with_intercept(where))
    names = list(binned.cohort.channels) if options.log.strip() == "all" else _names(options.log)
    for name in names:
        if name not in binned.cohort.channels:
            known = ", ".join(binned.cohort.channels)
            raise ValueError(f"--log names {name!r}; the tests are {known}, and all is for all")
    if names:
        line = (
            f"logarithms are taken of {', '.join(names)}: their forecasts are medians, and positive"
        )
        binned = binned._replace(cohort=binned.cohort.log(names), log=(*binned.log, line))
    for line in binned.log[len(labs.log) :]:
        say(line)
    return binned


def _names(text: str) -> list[str]:
    """Return the names of an option that has them with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def save_source(out: Path, data: Path, options: DataOptions, cohort) -> None:
    """Write how the data were read, so that later commands on the folder read them again in the same way.

    It comes after all other files of a fit, which it lists: see runs.py.
    """
    from ...models.files import fingerprint

    of_inputs = ("inputs", "fill_inputs", "intercepts")  # without them files are as they were
    given = {k: v for k, v in options._asdict().items() if v or k not in of_inputs}
    plain = {"data": str(data.absolute()), **given}
    if options.anonymous:
        plain["data"] = ""  # it is in the key file
    runs.describe(out, {"options": plain, "cohort": fingerprint(cohort)})


def source_of(folder: Path) -> Path:
    """Return the file that the fit in a folder was made from."""
    return Path(runs.described(folder)["options"]["data"])


def from_folder(folder: Path):
    """Return the data of an earlier `fit`, standardised, and the fit; raise if data or files have changed."""
    from ...models.files import fingerprint
    from ..saving import load_fit

    if folder.is_dir():
        claim(folder)
    found = runs.described(folder)
    data, options = _source(folder, found["options"])
    fit = load_fit(folder / "fit.json")
    binned = load_cohort(data, options)
    if fingerprint(binned.cohort) != found["cohort"]:
        raise ValueError(
            f"{str(data)!r} has changed since the fit in {str(folder)!r}; fit it again, in another --out"
        )
    binned = anonymous(binned) if options.anonymous else binned
    return binned._replace(cohort=binned.cohort.standardize()), fit


def _source(folder: Path, options: Any) -> tuple[Path, DataOptions]:
    """Return the file of the data and how it was read; raise if source.json does not say so."""
    try:
        data = options.pop("data")
        found = DataOptions(**options)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{str(folder / runs.SOURCE)!r} is damaged, or of another version ({error}); "
            f"fit again, with --out {folder} --force"
        ) from None
    if not found.anonymous:
        return Path(data), found
    from ...models.files import read_json

    if not key_file(folder).exists():
        raise FileNotFoundError(
            f"the results in {str(folder)!r} are anonymous, and their key {str(key_file(folder))!r} is not here"
        )
    return Path(read_json(key_file(folder), "fit again").get("data", "")), found


def key_file(folder: Path) -> Path:
    """Return the file that says whose results anonymous ones are: beside their folder, never in it."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.key.json")


def save_key(folder: Path, data: Path, ids: Sequence[Any]) -> None:
    """Write the key of anonymous results, which only its owner may read: the file of the data, and all ids."""
    from ...models.files import write_whole

    numbered = zip(_numbers(len(ids)), ids, strict=True)
    content = {"data": str(data.absolute()), "ids": {new: str(i) for new, i in numbered}}
    before = os.umask(0o077)
    try:
        write_whole(key_file(folder), json.dumps(content, indent=1))
    finally:
        os.umask(before)


def anonymous(binned):
    """Return the cohort with numbers in place of ids, in their order."""
    cohort = binned.cohort
    labels = replace(cohort.labels, ids=_numbers(len(cohort)))
    return binned._replace(cohort=replace(cohort, labels=labels))


def _numbers(n: int) -> tuple[str, ...]:
    """Return new ids: P1, P2, …"""
    return tuple(f"P{k}" for k in range(1, n + 1))
