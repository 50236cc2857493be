"""Sequences read from a data set, some at a time: those of a binned folder, or of a table with a row for each value."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..labels import Labels
from .folder import ID, START, STEP, arrow

_ROWS = 1 << 17  # of a batch
_AHEAD = 4  # batches that pyarrow reads ahead


class Sequences(NamedTuple):
    """Sequences one after the other, as they stand in a file."""

    ids: np.ndarray  # (n,)
    lengths: np.ndarray  # (n,)
    values: np.ndarray  # (Σ lengths, d), NaN where missing
    starts: np.ndarray | None  # (n,) times of the first steps

    def padded(self, T: int) -> np.ndarray:
        """Return the values as (n, T, d), NaN past the ends."""
        n, d = len(self.lengths), self.values.shape[1]
        if n and (self.lengths == T).all():
            return self.values.reshape(n, T, d)
        found = np.full((n, T, d), np.nan)
        found[np.arange(T) < self.lengths[:, None]] = self.values
        return found

    def take(self, chosen: np.ndarray) -> "Sequences":
        """Return the sequences at the places `chosen`."""
        lengths = self.lengths[chosen]
        first = (np.cumsum(self.lengths) - self.lengths)[chosen] - (np.cumsum(lengths) - lengths)
        rows = np.repeat(first, lengths) + np.arange(lengths.sum())
        starts = None if self.starts is None else self.starts[chosen]
        return Sequences(self.ids[chosen], lengths, self.values[rows], starts)

    def cut(self, n: int) -> tuple["Sequences", "Sequences"]:
        """Return the first n sequences, and the others."""
        row = int(self.lengths[:n].sum())
        starts = (None, None) if self.starts is None else (self.starts[:n], self.starts[n:])
        return (
            Sequences(self.ids[:n], self.lengths[:n], self.values[:row], starts[0]),
            Sequences(self.ids[n:], self.lengths[n:], self.values[row:], starts[1]),
        )


def joined(parts: list[Sequences]) -> Sequences:
    """Return all sequences of several parts."""
    times: list[Any] = [p.starts for p in parts]
    starts = None if times[0] is None else np.concatenate(times)
    return Sequences(
        np.concatenate([p.ids for p in parts]),
        np.concatenate([p.lengths for p in parts]),
        np.concatenate([p.values for p in parts]),
        starts,
    )


class Long(NamedTuple):
    """The columns of a table with a row for each value."""

    id: str
    time: str
    channel: str
    value: str


@dataclass(frozen=True, eq=False)
class Source:
    """A data set, and how its files are read."""

    path: Path
    labels: Labels  # without ids
    schema: Any
    files: tuple[Any, ...]  # pyarrow's fragments
    where: Any = None  # rows to read, an expression of pyarrow
    long: Long | None = None  # None: binned
    has_starts: bool = False
    zone: Any = None  # of the starts

    def batches(self, file: int) -> Iterator[Sequences]:
        """Yield the sequences of a file, whole ones, a batch at a time; an error names the file."""
        fragment = self.files[file]
        try:
            yield from (self._long if self.long else self._binned)(fragment)
        except (OSError, ValueError, arrow()[0].ArrowException) as error:
            raise type(error)(f"{fragment.path} cannot be read: {error}") from error

    def _tables(self, fragment: Any, columns: list[str]) -> Iterator[Any]:
        return fragment.to_batches(
            schema=self.schema,
            columns=columns,
            filter=self.where,
            batch_size=_ROWS,
            batch_readahead=_AHEAD,
        )

    def _binned(self, fragment: Any) -> Iterator[Sequences]:
        """Yield the sequences of a file with a row for each step."""
        d = len(self.labels.channels)
        more = [START] if self.has_starts else []
        rest: list[Any] = []
        kept = np.empty((0, d))  # rows of a sequence that goes on in the next batch
        for batch in self._tables(fragment, [ID, STEP, *self.labels.channels, *more]):
            if not len(batch):
                continue
            ids, code = _ids(batch.column(0), rest[0][-1:] if rest else None)
            if rest and code is not ids:  # its numbers are those of another batch
                rest[1][:] = -1
            rows: list[Any] = [ids, code, batch.column(1).to_numpy(zero_copy_only=False)]
            if more:
                rows.append(batch.column(2 + d).to_numpy(zero_copy_only=False))
            if rest:
                rows = [np.concatenate(pair) for pair in zip(rest, rows, strict=True)]
            values = np.empty((len(rows[0]), d))  # the largest: written where they are to be
            before = len(values) - len(batch)
            values[:before] = kept
            for j in range(d):
                values[before:, j] = batch.column(2 + j).to_numpy(zero_copy_only=False)
            new = np.flatnonzero(rows[1][1:] != rows[1][:-1]) + 1  # where a sequence begins
            if len(new):
                begin = np.append(0, new[:-1])
                yield _sequences([x[: new[-1]] for x in rows], values[: new[-1]], begin)
                rows, values = [x[new[-1] :] for x in rows], values[new[-1] :]
            rest, kept = [x.copy() for x in rows], values.copy()  # views would keep the batch
        if rest:
            yield _sequences(rest, kept, np.zeros(1, int))

    def _long(self, fragment: Any) -> Iterator[Sequences]:
        """Yield the sequences of a file with a row for each value, whose rows of one id stand together."""
        assert self.long is not None
        rest: Any = None
        for batch in self._tables(fragment, list(self.long)):
            frame = batch.to_pandas()
            frame = frame if rest is None else pd.concat([rest, frame], ignore_index=True)
            ids = frame[self.long.id].to_numpy()
            new = np.flatnonzero(ids[1:] != ids[:-1]) + 1
            if len(new):
                yield self._pivoted(frame.iloc[: new[-1]])
                frame = frame.iloc[new[-1] :]
            rest = frame
        if rest is not None and len(rest):
            yield self._pivoted(rest)

    def _pivoted(self, frame: pd.DataFrame) -> Sequences:
        """Return the sequences of rows with a value each."""
        named = self.long._asdict()  # type: ignore[union-attr]
        found = Cohort.from_long(
            frame, **named, channels=list(self.labels.channels), step=self.labels.step
        )
        inside = np.arange(found.n_steps) < np.asarray(found.lengths)[:, None]
        values = np.where(found.mask, found.y, np.nan)[inside]
        starts = found.labels.starts
        times = None if starts is None else pd.Series(starts).to_numpy()
        return Sequences(np.array(found.ids), np.asarray(found.lengths), values, times)


def _ids(column: Any, before: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of rows, and numbers that change where the id does; the last id `before` has -1 if it goes on."""
    if column.null_count:
        raise ValueError(f"a row has no {ID}")
    ids = column.to_numpy(zero_copy_only=False)
    if ids.dtype.kind in "iu":
        return ids, ids
    code = column.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    code[ids == before[0] if before is not None else slice(0)] = -1
    return ids, code


def _sequences(rows: list[Any], values: np.ndarray, begin: np.ndarray) -> Sequences:
    """Return the sequences that begin at rows `begin`, with steps without a row as missing ones."""
    ids, _, step, *starts = rows
    end = np.append(begin[1:], len(ids))
    ahead = step[1:] > step[:-1]
    ahead[begin[1:] - 1] = True  # another sequence
    if not ahead.all() or step[begin].min() < 0:
        named = f"{ID} {ids[begin[0]]!r}, or one after it"
        raise ValueError(f"steps of a sequence must count up from 0 ({named})")
    lengths = step[end - 1].astype(np.int64) + 1
    if lengths.sum() > len(ids):
        first = np.cumsum(lengths) - lengths
        found = np.full((lengths.sum(), values.shape[1]), np.nan)
        found[np.repeat(first, end - begin) + step] = values
        values = found
    return Sequences(ids[begin], lengths, values, starts[0][begin] if starts else None)
