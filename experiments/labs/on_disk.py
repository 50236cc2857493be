"""Lab files of any size to a cohort on disk, with bounded memory.

A first pass deals the values out to buckets on disk, by a hash of the patient's id; then each bucket, which has all
values of its patients, is binned like a small file (binning.py), and becomes a file of the cohort.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...models.disk.folder import arrow, new_folder, write_part
from ...models.disk.summary import hash_ids
from .binning import Binned, TooFewPanels, bin_labs
from .files import read_chunks
from .gathering import LabGatherer, Labs
from .reading import Tests, layout_of
from .spacing import usual_step
from .times import check_times

_BYTES = 1 << 25  # of a file, for each bucket: some 10⁶ values
_MOST = 1024  # buckets, each an open file
_CHUNK = 250_000  # rows read at a time
_SUFFIXES = (".csv", ".gz", ".parquet", ".pq")
_LEAST_FILLED = 1e-3  # share of the steps that must have a value, as in binning.py


class OnDisk(NamedTuple):
    """A cohort that was made on disk."""

    path: Path
    n_sequences: int


def bin_to_disk(
    source: str | Path,
    out: str | Path,
    *,
    step: Any = None,
    min_panels: int = 10,
    gaps: str = "missing",
    any_times: bool = False,
    tests: Tests = None,
    n_buckets: int | None = None,
    say: Callable[[str], None] = lambda line: None,
    **reading: Any,
) -> OnDisk:
    """Bin a lab file, or a folder of them, into a folder that `open_cohort` takes: bounded memory, whatever its size.

    The options are those of `read_labs` and `bin_labs`. Files of a folder have one layout. A wide table needs `tests`.
    Without a `step` bins are of 8 hours, or of the usual time between two measurements where that is well above, as
    the first patients show it. The buckets are in a folder beside `out` while it is made, as large as the values.
    """
    files = _files_of(Path(source))
    folder = new_folder(out)
    n = n_buckets or int(np.clip(sum(map(_size, files)) // _BYTES, 1, _MOST))
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        try:
            dealt = _deal_out(files, Path(place), n, tests, any_times, reading, say)
            counts = _bin_buckets(dealt, folder, step, min_panels, gaps, any_times, say)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # half a cohort is none
            raise
    say(f"{counts.sequences} ids have at least {min_panels} panels, of {counts.ids}")
    say(f"{counts.steps} steps in all, {100 * counts.filled / counts.steps:.3g}% with a value")
    return OnDisk(folder, counts.sequences)


class _Dealt(NamedTuple):
    """Values in buckets on disk, and what all of them have in common."""

    files: tuple[Path, ...]
    labs: Labs  # without values


class _Counts(NamedTuple):
    """Sums over buckets."""

    ids: int
    sequences: int
    steps: int
    filled: int


def _files_of(source: Path) -> list[Path]:
    """Return the file, or the files of a folder; raise if there are none."""
    if not source.exists():
        raise FileNotFoundError(f"there is no file or folder {str(source)!r}")
    if source.is_file():
        return [source]
    found = sorted(p for p in source.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
    if not found:
        raise FileNotFoundError(f"{str(source)!r} has no CSV, CSV.gz or Parquet file")
    return found


def _size(file: Path) -> int:
    """Return the size of a file, as if it were not compressed."""
    return file.stat().st_size * (1 if file.suffix == ".csv" else 4)


def _deal_out(
    files: Sequence[Path],
    place: Path,
    n: int,
    tests: Tests,
    any_times: bool,
    reading: dict[str, Any],
    say: Callable[[str], None],
) -> _Dealt:
    """Read all files in chunks, and write their values into n buckets."""
    buckets = _Buckets(place, n)
    made: list[LabGatherer] = []  # one, which all files share
    kind, low, high, n_values = "", np.inf, -np.inf, 0

    def same(make: Any, tests: Any) -> LabGatherer:
        if not made:
            made.append(make(tests))
        return made[0]

    with buckets:
        for file in files:
            layout, kind, all_text = layout_of(
                file, tests=tests, any_times=any_times, wrapped=same, **reading
            )
            if kind == "wide" and tests is None:
                raise ValueError(f"{file.name} is a wide table; name the columns to take in tests")
            chunks = read_chunks(file, layout.columns, _CHUNK, layout.text, all_text=all_text)
            for frame in chunks:
                layout.add(frame)
                for patient, test, hours, value in layout.gatherer.parts:
                    if len(value):
                        low, high = min(low, hours.min()), max(high, hours.max())
                        n_values += len(value)
                        ids = np.array(list(layout.gatherer.index_of_id), dtype=object)
                        buckets.add(ids, patient, test, hours, value)
                layout.gatherer.parts.clear()
                layout.gatherer.index_of_id.clear()  # a bucket numbers its patients anew
    gatherer = made[0]
    if not n_values:
        lost = gatherer._lost() or "no rows"
        raise ValueError(f"nothing is left of {files[0].parent.name}: {lost}")
    if not any_times:
        check_times(np.array([low, high]), gatherer.clock)
    for line in gatherer._log(files[0].parent.name, kind, n_values)[1:]:
        say(line)
    say(f"{gatherer.n_rows} rows of {len(files)} files read as {kind}, {n_values} values kept")
    none: Any = np.zeros(0)
    labs = Labs(none, tuple(gatherer.tests), none, none, none, none, (), gatherer.clock)
    return _Dealt(buckets.paths, labs)


class _Buckets:
    """Files to which values are added, by a hash of the patient's id."""

    def __init__(self, place: Path, n: int) -> None:
        self.paths = tuple(place / f"{i:04d}.arrow" for i in range(n))
        self._writers: list[Any] = [None] * n
        self._pa = arrow("large lab files")[0]

    def __enter__(self) -> "_Buckets":
        return self

    def __exit__(self, *_: Any) -> None:
        for writer in self._writers:
            if writer is not None:
                writer.close()

    def add(self, ids: np.ndarray, patient, test, hours, value) -> None:
        """Add values: `patient` numbers `ids`."""
        pa, n = self._pa, len(self.paths)
        column = pa.array(ids)  # whole numbers, or text
        found = column.to_numpy(zero_copy_only=False)
        # not the last digits, by which the cohort's folds are told
        bucket = ((hash_ids(found) >> np.uint64(20)) % np.uint64(n)).astype(int)[patient]
        order = np.argsort(bucket, kind="stable")
        table = pa.table(
            {
                "id": column.take(pa.array(patient[order])),
                "test": pa.array(test[order]),
                "hours": pa.array(hours[order]),
                "value": pa.array(value[order]),
            }
        )
        ends = np.cumsum(np.bincount(bucket, minlength=n))
        for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > start:
                self._writer(i, table.schema).write_table(table.slice(start, end - start))

    def _writer(self, i: int, schema: Any) -> Any:
        if self._writers[i] is None:
            self._writers[i] = self._pa.ipc.new_stream(str(self.paths[i]), schema)
        return self._writers[i]


def _bin_buckets(
    dealt: _Dealt,
    folder: Path,
    step: Any,
    min_panels: int,
    gaps: str,
    any_times: bool,
    say: Callable[[str], None],
) -> _Counts:
    """Bin the buckets one by one, each into a file of the cohort."""
    ids = sequences = steps = filled = 0
    failed: Exception | None = None
    for number, labs in enumerate(_labs_of(dealt)):
        ids += len(labs.ids)
        if step is None:
            usual = usual_step(labs.patient, labs.hours, 8.0, labs.clock)
            step = "8h" if usual is None else usual.short
            say(f"bins are of {step}; --step says otherwise")
        try:
            binned: Binned = bin_labs(
                labs, step=step, min_panels=min_panels, gaps=gaps, any_times=True
            )
        except TooFewPanels as error:  # of these patients; others may have enough
            failed = error
            continue
        cohort = binned.cohort
        write_part(cohort, folder / f"part-{number:05d}.parquet")
        sequences += len(cohort)
        steps += int(cohort.lengths.sum())
        filled += int(binned.measured.any(2).sum())
    if not sequences:
        raise failed or ValueError("no bucket has a value")
    if not any_times and filled < _LEAST_FILLED * steps:
        raise ValueError(
            f"only {filled} of {steps} steps have a value: are the times and the step right? any_times bins them anyway"
        )
    return _Counts(ids, sequences, steps, filled)


def _labs_of(dealt: _Dealt) -> Iterator[Labs]:
    """Yield the values of each bucket."""
    pa = arrow("large lab files")[0]
    for path in dealt.files:
        if not path.exists():
            continue
        with pa.ipc.open_stream(str(path)) as reader:
            frame = reader.read_pandas()
        path.unlink()  # what is binned is no longer needed
        local, ids = pd.factorize(frame["id"])
        test, hours, value = (frame[name].to_numpy() for name in ("test", "hours", "value"))
        yield dealt.labs._replace(
            ids=np.array(ids.tolist(), dtype=object),
            patient=local.astype(np.int32),
            test=test,
            hours=hours,
            value=value,
        )
