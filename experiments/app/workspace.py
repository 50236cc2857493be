"""Set-up, messages and the folder of results, which all commands share.

JAX, and modules that need it, are imported where they are used, so that `--help` and errors come at once.
"""

import json
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

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
    """Make the folder, and return it; raise if it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {str(out)!r}: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise PermissionError(f"the folder {str(out)!r} cannot be written")
    return out


# results that are made of a posterior, and of a fit
AFTER_A_POSTERIOR = (
    "posterior_parts", "posterior.nc", "verdict.txt", "comparison.csv", "confusion.csv", "links.csv", "links.graphml",
    "forecast.csv", "report.html", "series.png", "beta.png", "evidence.png", "mixing.png", "forest.png",
    "eigenvalues.png", "forecasts.png", "coverage.png", "transition.png", "forecast.png",
)  # fmt: skip
AFTER_A_FIT = (
    "commands.txt", "selection.csv", "skill.csv", "skill.txt", "variance.csv", *AFTER_A_POSTERIOR,
)  # fmt: skip
OF_THE_DEMO = ("demo_states", "demo_states.png", "demo_panel.csv")


def remove(folder: Path, *names: str) -> None:
    """Remove results of ours by name: never a folder that a user may have put other things in."""
    there = [name for name in names if (folder / name).exists()]
    for name in there:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink()
    if there:
        say(f"removed what was made of earlier results: {', '.join(there)}")


def load_cohort(data: Path, options: DataOptions):
    """Return the cohort of a file, in its units, and print how much was kept and dropped."""
    from ..labs import read_labs

    wanted: Any = _names(options.tests) or None
    if wanted and all("=" in t for t in wanted):
        wanted = {int(k): v for k, v in (t.split("=", 1) for t in wanted)}
    columns = {name: getattr(options, name) for name in ("id", "time", "test", "value")}
    labs = read_labs(data, kind=options.kind, tests=wanted, time_unit=options.time_unit, **columns)
    return bin_cohort(labs, options)


def bin_cohort(labs, options: DataOptions):
    """Return the cohort of lab results, with the logarithms asked for, and print how much was kept and dropped."""
    from ..labs import bin_labs

    binned = bin_labs(
        labs,
        step=options.step,
        hours=options.hours,
        min_panels=options.panels,
        gaps=options.gaps or "missing",
    )
    names = list(labs.tests) if options.log.strip() == "all" else _names(options.log)
    for name in names:
        if name not in labs.tests:
            known = ", ".join(labs.tests)
            raise ValueError(f"--log names {name!r}; the tests are {known}, and all is for all")
    if names:
        line = (
            f"logarithms are taken of {', '.join(names)}: their forecasts are medians, and positive"
        )
        binned = binned._replace(cohort=binned.cohort.log(names), log=(*binned.log, line))
    for line in binned.log:
        say(line)
    return binned


def _names(text: str) -> list[str]:
    """Return the names of an option that has them with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def save_source(out: Path, data: Path, options: DataOptions, cohort) -> None:
    """Write how the data were read, so that later commands on the folder read them again in the same way."""
    from ...models.files import fingerprint, write_whole

    plain = {"data": str(data.absolute()), **options._asdict()}
    found = {"options": plain, "cohort": fingerprint(cohort)}
    write_whole(out / "source.json", json.dumps(found, indent=1))


def source_of(folder: Path) -> Path:
    """Return the file that the fit in a folder was made from."""
    return Path(json.loads((folder / "source.json").read_text())["options"]["data"])


def from_folder(folder: Path):
    """Return the data of an earlier `fit`, standardised, and the fit; raise if the data have changed."""
    from ...models.files import fingerprint
    from ..saving import load_fit

    source = folder / "source.json"
    if not source.exists():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no fit; run sparse-lds fit first, with --out {folder}"
        )
    found = json.loads(source.read_text())
    data = Path(found["options"].pop("data"))
    binned = load_cohort(data, DataOptions(**found["options"]))
    if fingerprint(binned.cohort) != found["cohort"]:
        raise ValueError(
            f"{str(data)!r} has changed since the fit in {str(folder)!r}; fit it again, in another --out"
        )
    return binned._replace(cohort=binned.cohort.standardize()), load_fit(folder / "fit.json")
