"""Tables in CSV (also .gz) or Parquet files: their separator, their columns, and their rows in chunks."""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None"]
_SEPARATORS = (",", ";", "\t", "|")


def separator(path: Path) -> str:
    """Return what stands between the columns of a CSV file: the mark that parts its first line into most."""
    if path.suffix == ".parquet":
        return ","
    with _readable(path), _text(path) as file:
        first = file.readline(1_000_000)
        return max(_SEPARATORS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of the table at `path`; raise if one is there twice."""
    if path.suffix == ".parquet":
        with _readable(path):
            names = list(_parquet_file(path).schema_arrow.names)
    else:
        with _readable(path):
            options: Any = {"header": None, "nrows": 1, "dtype": str, "keep_default_na": False}
            names = pd.read_csv(path, sep=separator(path), **options).iloc[0].tolist()
    check_columns(path.name, names)
    return names


def check_columns(table: str, names: list[Any]) -> None:
    """Raise if a table has two columns of one name, of which one would be lost."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{table} has {names.count(name)} columns named {name!r}; give each a name of its own"
            )


def read_chunks(
    path: Path, columns: list[Any], chunk: int, text: list[str], *, all_text: bool = False
) -> Iterator[pd.DataFrame]:
    """Yield the table at `path`, `chunk` rows at a time and with these `columns` only.

    Columns of a CSV file that are named in `text` are read as text, because the id 001 is not 1 and the test NA may be
    sodium. In these columns only an empty cell is missing. `all_text` reads every column as text.
    """
    with _readable(path):
        if path.suffix == ".parquet":
            for batch in _parquet_file(path).iter_batches(chunk, columns=columns):
                yield batch.to_pandas()
        else:
            options: dict[str, Any] = {
                "sep": separator(path),
                "dtype": dict.fromkeys(columns if all_text else text, str),
                "keep_default_na": False,
                "na_values": {c: [""] if c in text else _MISSING for c in columns},
            }
            chunks: Any = pd.read_csv(
                path, usecols=columns, chunksize=chunk, low_memory=False, **options
            )
            with chunks:
                yield from chunks


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise an error that names the file where it is not a table, or is damaged."""
    try:
        yield
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not a table: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} is damaged, or not whole: {error}") from error


def _text(path: Path) -> Any:
    """Open a CSV file, compressed or not, as text."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return open(path, encoding="utf-8-sig")


def _parquet_file(path: Path):
    """Open the Parquet file at `path`; raise if pyarrow is not installed."""
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    return pq.ParquetFile(path)
