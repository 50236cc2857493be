"""Saving parameters to a .npz or .json file, and loading them."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np

from .files import write_whole
from .params import PARAMETERS, LDSParams, check_array_shapes, given, host_arrays


def save_params(path: str | os.PathLike, params: LDSParams) -> None:
    """Write `params` to a .npz file (keeps the dtype) or a .json file (readable, exact in doubles).

    The file appears whole or not at all: an interrupted write leaves an earlier file as it was.
    """
    path = Path(path)
    kind = _file_kind(path)
    arrays = host_arrays(given(params), "params")
    check_array_shapes(arrays, "params")
    if kind == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        content = buffer.getvalue()
    else:  # one line for each parameter
        lines = (f'"{name}": {json.dumps(X.tolist())}' for name, X in arrays.items())
        content = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    write_whole(path, content)


def load_params(path: str | os.PathLike) -> LDSParams:
    """Read the parameters that `save_params` wrote, as numpy arrays in the file's precision, whatever JAX's mode.

    Fields and shapes are checked here, covariances by `check_params`. Nothing is unpickled.
    """
    path = Path(path)
    kind = _file_kind(path)
    try:
        if kind == ".npz":
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        else:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read parameters from {path}: {error}") from error
    lacking = [name for name in LDSParams._fields if name not in found]
    if lacking:
        raise ValueError(
            f"{path} lacks {', '.join(lacking)} and holds {', '.join(found) or 'nothing'}; "
            f"parameters are {', '.join(LDSParams._fields)}"
        )
    arrays = host_arrays({name: found[name] for name in PARAMETERS if name in found}, str(path))
    check_array_shapes(arrays, str(path))
    return LDSParams(**arrays)


def _file_kind(path: Path) -> str:
    """Return the suffix of a file of parameters, or raise if it is neither .npz nor .json."""
    if path.suffix.lower() not in (".npz", ".json"):
        raise ValueError(f"{path} has the suffix {path.suffix!r}; parameters go to .npz or .json")
    return path.suffix.lower()
