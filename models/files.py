"""Files that appear whole or not at all, and folders that hold one run."""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np


def write_whole(path: str | os.PathLike, content: bytes | memoryview | str) -> Path:
    """Write a file under another name, then rename it: an interruption or a full disk leaves an earlier file as it was.

    The file has the permissions that the user's umask leaves.
    """
    path = Path(path)
    # Not a file of tempfile: those only their owner may read.
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise type(error)(
            error.errno, f"{error.strerror}: nothing was written, and what was there is unchanged", str(path)
        ) from error  # fmt: skip
    finally:
        part.unlink(missing_ok=True)
    return path


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """Return what a JSON file of ours holds; raise an error that names the file and what to do if it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}); {advice}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{str(path)!r} is damaged (no JSON object); {advice}")
    return found


def fingerprint(*arrays: Any) -> str:
    """Return a hash of the shapes, types and values of the arrays in any pytrees; a cohort's labels do not enter."""
    digest = hashlib.sha256()
    for x in jax.tree.leaves(arrays):
        x = np.asarray(x)
        digest.update(f"{x.shape}{x.dtype}".encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()[:16]


def run_folder(folder: str | os.PathLike, run: Mapping[str, Any]) -> Path:
    """Return the folder of a run that may be resumed, made if need be; raise if it holds another run."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / "run.json", json.dumps(run, indent=1)
    if not file.exists():
        write_whole(file, text)
    before = read_json(file, f"give another folder, or delete {str(folder)!r} (--force)")
    now = json.loads(text)
    other = [name for name, value in now.items() if before.get(name) != value]
    if other:
        raise ValueError(
            f"{str(folder)!r} holds a run with another {', '.join(other)}; give another folder, or delete it (--force)"
        )
    return folder
