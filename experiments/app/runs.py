"""The files of one run of `fit`, which belong together by construction.

They are made in a folder of their own, and described there by source.json: how the data were read, and a hash of every
file. Only when all of them are there do they take the place of earlier ones, source.json last. Later commands check
the hashes, so that files of two runs, or one that was edited, are not taken for a fit.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...models.files import read_json, write_whole

SOURCE = "source.json"
_UNFINISHED = ".unfinished-"


@contextmanager
def staged(folder: Path, replaced: tuple[str, ...], say: Callable[[str], None]) -> Iterator[Path]:
    """Yield a folder to write a run's files to; at the end they replace the files named `replaced` in `folder`.

    After an error, and after a kill at any moment before the end, the earlier files are as they were.
    """
    for old in folder.glob(f"{_UNFINISHED}*"):  # of a command that was killed
        shutil.rmtree(old)
    part = folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
    part.mkdir()
    try:
        yield part
        there = remove(folder, SOURCE, *replaced)  # without source.json the folder holds no fit
        if there:
            say(f"removed earlier results: {', '.join(there)}")
        for file in sorted(part.iterdir(), key=lambda file: file.name == SOURCE):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def interrupted(folder: Path) -> bool:
    """Tell whether a run was killed while its files took their places: what is there is no result, and may go."""
    return not (folder / SOURCE).exists() and any(folder.glob(f"{_UNFINISHED}*"))


def remove(folder: Path, *names: str) -> list[str]:
    """Remove results of ours by name, never a folder that may hold other things; return what there was."""
    there = [name for name in names if (folder / name).exists()]
    for name in there:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink()
    return there


def describe(folder: Path, about: Mapping[str, Any]) -> None:
    """Write source.json: what is known about the run, and a hash of every file in the folder."""
    files = {f.name: _hash(f) for f in sorted(folder.iterdir()) if f.is_file() and f.name != SOURCE}
    write_whole(folder / SOURCE, json.dumps({**about, "files": files}, indent=1))


def described(folder: Path) -> dict[str, Any]:
    """Return what source.json says; raise unless all files of the run are there as they were written."""
    source = folder / SOURCE
    if not source.exists():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no fit; run sparse-lds fit first, with --out {folder}"
        )
    again = f"fit again, with --out {folder} --force"
    found = read_json(source, again)
    lacking = {"options", "cohort"} - found.keys()
    if lacking:
        raise ValueError(f"{str(source)!r} is damaged (no {lacking.pop()!r}); {again}")
    for name, wanted in found.get("files", {}).items():  # 0.1 had none
        file = folder / name
        if not file.exists():
            raise FileNotFoundError(f"{str(file)!r} is gone, which the fit in there wrote; {again}")
        if _hash(file) != wanted:
            raise ValueError(
                f"{str(file)!r} is not the file that the fit in there wrote: it was edited, or is of another fit; "
                f"{again}"
            )
    return found


def _hash(file: Path) -> str:
    """Return the hash of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
