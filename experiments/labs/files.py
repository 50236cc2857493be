"""Tables in CSV (also .gz) or Parquet files: their columns, and their rows in chunks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None"]


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of the table at `path`."""
    if path.suffix == ".parquet":
        return list(_parquet_file(path).schema_arrow.names)
    try:
        return list(pd.read_csv(path, nrows=0).columns)
    except (pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not a table: {error}") from error


def read_chunks(
    path: Path, columns: list[Any], chunk: int, text: list[str]
) -> Iterator[pd.DataFrame]:
    """Yield the table at `path`, `chunk` rows at a time and with these `columns` only.

    Columns of a CSV file that are named in `text` are read as text, because the id 001 is not 1 and the test NA may be
    sodium. In these columns only an empty cell is missing.
    """
    if path.suffix == ".parquet":
        for batch in _parquet_file(path).iter_batches(chunk, columns=columns):
            yield batch.to_pandas()
    else:
        options: dict[str, Any] = {
            "dtype": dict.fromkeys(text, str),
            "keep_default_na": False,
            "na_values": {c: [""] if c in text else _MISSING for c in columns},
        }
        yield from pd.read_csv(path, usecols=columns, chunksize=chunk, low_memory=False, **options)


def _parquet_file(path: Path):
    """Open the Parquet file at `path`; raise if pyarrow is not installed."""
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    return pq.ParquetFile(path)
