"""The folder that holds a cohort: Parquet files with a row for each step, and a column for each channel.

Columns are `id`, `step` (counted from 0) and the channels, in the user's units; `start`, the time of a sequence's first
step, may be there too. The rows of a sequence stand together in one file, in the order of steps; steps without a row,
and cells without a value, are missing. The schema's metadata have the version of this layout, the names of the
channels, and the time between two steps.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..labels import Labels, make_labels

ID, STEP, START = "id", "step", "start"
_KEY = b"sparse_lds.cohort"
_VERSION = 1
_ROW_GROUP = 1 << 17  # rows that are read at a time


def arrow(what: str = "cohorts on disk") -> tuple[Any, Any, Any]:
    """Return pyarrow, pyarrow.dataset and pyarrow.parquet; raise an error that names the extra if it is not there."""
    try:
        import pyarrow as pa  # type: ignore[import-not-found]
        import pyarrow.dataset as ds  # type: ignore[import-not-found]
        import pyarrow.parquet as pq  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"{what} need pyarrow: pip install 'sparse-lds[parquet]'") from error
    return pa, ds, pq


def new_folder(path: str | os.PathLike) -> Path:
    """Return a folder for a cohort, made if need be; raise if it has files already."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{str(folder)!r} is not empty; give a new folder")
    return folder


def write_cohort(cohort: Cohort, path: str | os.PathLike, *, sequences: int = 50_000) -> Path:
    """Write a cohort into a new folder, so many sequences a file, for `open_cohort`; values in the user's units."""
    folder = new_folder(path)
    for number, first in enumerate(range(0, len(cohort), sequences)):
        few = cohort.take(slice(first, first + sequences))
        write_part(few, folder / f"part-{number:05d}.parquet")
    return folder


def write_part(cohort: Cohort, file: Path) -> None:
    """Write sequences as one file, whole or not at all."""
    if cohort.n_inputs:
        raise ValueError("cohorts on disk take no inputs yet; write cohort.without_inputs()")
    pa, _, pq = arrow()
    lengths = np.asarray(cohort.lengths)
    inside = np.arange(cohort.n_steps) < lengths[:, None]
    values = np.where(cohort.mask, cohort.to_units(cohort.y), np.nan)[inside]
    columns: dict[str, Any] = {
        ID: np.repeat(np.array(cohort.ids), lengths),
        STEP: np.nonzero(inside)[1].astype(np.int32),
    }
    if cohort.labels.starts is not None:
        columns[START] = pd.Series(cohort.labels.starts).repeat(lengths.tolist())
    if set(columns) & set(cohort.channels):
        raise ValueError(f"a channel is named {ID!r}, {STEP!r} or {START!r}; give it another name")
    columns |= {name: values[:, j] for j, name in enumerate(cohort.channels)}
    arrays = {name: pa.array(x, from_pandas=True) for name, x in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({_KEY: _described(cohort.labels)})
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex}.part")
    try:
        # values hardly repeat: a dictionary of them costs time and saves nothing
        repeated = [name for name in columns if name in (ID, STEP, START)]
        pq.write_table(table, part, row_group_size=_ROW_GROUP, use_dictionary=repeated)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def _described(labels: Labels) -> bytes:
    """Return the metadata of a file."""
    step = labels.step
    found = {
        "version": _VERSION,
        "channels": list(labels.channels),
        "step": step.isoformat() if isinstance(step, pd.Timedelta) else float(step),
        "time_unit": labels.time_unit,
    }
    return json.dumps(found).encode()


def labels_of(schema: Any, path: Path) -> Labels | None:
    """Return the labels that the metadata of a schema describe, without ids; None if it has none of ours."""
    text = (schema.metadata or {}).get(_KEY)
    if text is None:
        return None
    found = json.loads(text)
    if found.get("version") != _VERSION:
        raise ValueError(
            f"{str(path)!r} is a cohort of version {found.get('version')}; this package reads version {_VERSION}"
        )
    step: Any = found["step"]
    step = pd.Timedelta(step) if isinstance(step, str) else int(step) if step % 1 == 0 else step
    labels = make_labels((), found["channels"], len(found["channels"]), step=step)
    return Labels(*labels._key[:6], time_unit=found["time_unit"])
