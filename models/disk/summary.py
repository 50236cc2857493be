"""One pass over a cohort on disk: counts, moments, a sample of sequences and, without gaps, triangular factors.

A summary is a sum over sequences: those of files, or of processes that read a file each, are added.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.util import hash_array

from ..cohort import Cohort
from ..labels import Labels
from .factors import Stack
from .reading import Sequences, Source, joined

BUCKETS = 10  # parts of a cohort, by a hash of the id, of which folds are made
SAMPLE = 4096  # sequences that starting values are computed from
_LANES = 4  # threads that read files, each its own
_FACTORS = 1 << 26  # entries of all factors (512 MB), above which sequences are streamed
_hash: Any = hash_array
_CHECKED = 1 << 24  # sequences up to which ids are checked to be there once


class Sample(NamedTuple):
    """The sequences with the least hashes, in the order of the files: as good as drawn at random, and reproducible."""

    hashes: np.ndarray  # (n,)
    place: np.ndarray  # (n, 2) file, and number in it
    sequences: Sequences | None

    def joined(self, other: "Sample", size: int) -> "Sample":
        """Return the sample of both."""
        parts = [x for x in (self, other) if x.sequences is not None]
        if not parts:
            return self
        hashes = np.concatenate([x.hashes for x in parts])
        place = np.concatenate([x.place for x in parts])
        both = joined([x.sequences for x in parts if x.sequences is not None])
        chosen = np.zeros(len(hashes), bool)
        chosen[np.argsort(hashes, kind="stable")[:size]] = True
        return Sample(hashes[chosen], place[chosen], both.take(np.flatnonzero(chosen)))


_NOTHING = Sample(np.zeros(0, np.uint64), np.zeros((0, 2), int), None)


class Moments(NamedTuple):
    """Number, mean and sum of squares about the mean of each channel's values, (d,)."""

    n: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    def joined(self, other: "Moments") -> "Moments":
        """Return the moments of both, without cancellation."""
        n = self.n + other.n
        share = other.n / np.maximum(n, 1)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.n * share
        return Moments(n, self.mean + gap * share, squares)


class Summary:
    """What one pass over sequences has found. `lengths[b, T]` is the number of sequences of length T in bucket b."""

    def __init__(self, d: int, size: int = SAMPLE) -> None:
        self.size = size
        self.complete, self.factored = True, True
        self.lengths: dict[tuple[int, int], int] = defaultdict(int)
        self.steps_seen = np.zeros(BUCKETS, int)  # steps with an observed cell
        self.cells_seen = np.zeros(BUCKETS, int)
        self.most_missing = 0  # cells of one sequence
        self._moments = Moments(np.zeros(d), np.zeros(d), np.zeros(d))  # but for those of factors
        self.factors: dict[tuple[int, int], Stack] = {}
        self._aside = [_NOTHING]  # samples that are to be joined
        self._bound = np.uint64(2**64 - 1)  # above which no hash is in the sample
        self.hashes: list[np.ndarray] | None = []  # of all ids, to see that none is there twice

    def add(self, found: Sequences, file: int, number: int) -> None:
        """Add sequences of a file, of which `number` came before."""
        hashes = hash_ids(found.ids)
        bucket = bucket_of(hashes)
        for (b, T), n in _counted(bucket, found.lengths):
            self.lengths[b, T] += n
        # a sum is the fastest way to see that no cell is missing
        if np.isfinite(found.values.sum()):
            steps = np.bincount(bucket, found.lengths, BUCKETS).astype(int)
            self.steps_seen += steps
            self.cells_seen += steps * found.values.shape[1]
            if not (self.complete and self.factored):
                self._moments = self._moments.joined(_moments(found.values, None))
        else:
            self._with_gaps(found, bucket)
        if self.complete and self.factored:
            self._factor(found, bucket)
        self._sample(found, hashes, file, number)
        self._remember([hashes])

    def _with_gaps(self, found: Sequences, bucket: np.ndarray) -> None:
        """Count what sequences with gaps have."""
        seen = ~np.isnan(found.values)
        if np.isinf(found.values).any():
            raise ValueError("a value is infinite; leave the cell of a missing value empty")
        of_row, per_row = np.repeat(bucket, found.lengths), seen.sum(1)
        self.cells_seen += np.bincount(of_row, per_row, BUCKETS).astype(int)
        self.steps_seen += np.bincount(of_row, per_row > 0, BUCKETS).astype(int)
        missing = np.add.reduceat(seen.shape[1] - per_row, _firsts(found.lengths))
        self.most_missing = max(self.most_missing, int(missing.max()))
        self._without_factors()
        self.complete &= bool(seen.all())
        self._moments = self._moments.joined(_moments(found.values, seen))

    def _without_factors(self) -> None:
        """Keep of the factors the moments of the channels alone."""
        self._moments, self.factors = self.moments, {}

    @property
    def moments(self) -> Moments:
        """The moments of each channel's values: factors have those of complete sequences."""
        found, d = self._moments, len(self._moments.n)
        for (_, T), stack in self.factors.items():
            R = stack.factor()
            y = R[:, 1:].reshape(len(R), T, d)
            n = np.full(d, float(stack.n * T))
            mean = np.einsum("r,rtj->j", R[:, 0], y) / n
            squares = ((y - R[:, :1, None] * mean) ** 2).sum((0, 1))
            found = found.joined(Moments(n, mean, squares))
        return found

    def join(self, other: "Summary") -> None:
        """Add what a pass over other sequences has found."""
        self.complete &= other.complete
        self.factored &= other.factored
        if not (self.complete and self.factored):
            self._without_factors()
            other._without_factors()
        for key, n in other.lengths.items():
            self.lengths[key] += n
        self.steps_seen += other.steps_seen
        self.cells_seen += other.cells_seen
        self.most_missing = max(self.most_missing, other.most_missing)
        self._moments = self._moments.joined(other._moments)
        for key, stack in other.factors.items():
            self.factors.setdefault(key, Stack()).join(stack)
        self._aside = [self.sample.joined(other.sample, self.size)]
        self._remember(other.hashes)

    def check(self, source: Source) -> "Summary":
        """Return the summary; raise if there is no sequence, or an id that is there twice."""
        if not self.lengths:
            raise ValueError(f"{str(source.path)!r} has no sequence")
        if self.hashes is not None and len(self.hashes):
            every = np.sort(np.concatenate(self.hashes))
            twice = int((every[1:] == every[:-1]).sum())
            if twice:
                raise ValueError(
                    f"{str(source.path)!r} has {twice} ids whose rows do not stand together, or are in several files; "
                    "sort the rows, or make the folder by `sparse-lds bin`"
                )
        self.hashes = None
        return self

    def sampled(self, labels: Labels, left_out: tuple[int, ...] = (), zone: Any = None) -> Cohort:
        """Return the sample as a cohort in the user's units, without the buckets left out; times are of a zone."""
        kept = ~np.isin(bucket_of(self.sample.hashes), left_out)
        order = np.lexsort(self.sample.place[kept].T[::-1])
        found = self.sample.sequences
        assert found is not None
        found = found.take(np.flatnonzero(kept))
        each = np.split(found.values, np.cumsum(found.lengths)[:-1])
        ids = found.ids[order].tolist()
        cohort = Cohort.from_sequences(
            [each[i] for i in order], ids=ids, channels=list(labels.channels)
        )
        starts = None if found.starts is None else _times(found.starts[order], zone)
        more: dict[str, Any] = {
            "starts": starts,
            "step": labels.step,
            "time_unit": labels.time_unit,
        }
        return replace(cohort, labels=replace(cohort.labels, **more))

    def _factor(self, found: Sequences, bucket: np.ndarray) -> None:
        """Add complete sequences to the factors of their buckets and lengths."""
        firsts = _firsts(found.lengths)
        for T in np.unique(found.lengths).tolist():
            here = np.flatnonzero(found.lengths == T)
            if len(here) == len(found.lengths):
                y = found.values.reshape(len(here), -1)
            else:
                rows = firsts[here][:, None] + np.arange(T)
                y = found.values[rows.ravel()].reshape(len(here), -1)
            order = np.argsort(bucket[here], kind="stable")
            y, ends = y[order], np.cumsum(np.bincount(bucket[here], minlength=BUCKETS))
            for b, part in enumerate(np.split(y, ends[:-1])):
                if len(part):
                    self.factors.setdefault((b, T), Stack()).add(part)
        d = found.values.shape[1]
        entries = sum(min(self.lengths[key], 1 + key[1] * d) * (1 + key[1] * d) for key in self.factors)  # fmt: skip
        if entries > _FACTORS:
            self.factored = False
            self._without_factors()

    def _sample(self, found: Sequences, hashes: np.ndarray, file: int, number: int) -> None:
        """Put sequences with small hashes aside, and the smallest of these into the sample when there are many."""
        small = np.flatnonzero(hashes < self._bound)
        if len(small):
            place = np.column_stack([np.full(len(small), file), number + small])
            self._aside.append(Sample(hashes[small], place, found.take(small)))
        if sum(len(x.hashes) for x in self._aside) > 2 * self.size:
            self._bound = self.sample.hashes.max()

    @property
    def sample(self) -> Sample:
        """The sample of all sequences so far."""
        while len(self._aside) > 1:
            pairs = zip(self._aside[::2], [*self._aside[1::2], _NOTHING], strict=False)
            self._aside = [one.joined(other, self.size) for one, other in pairs]
        if len(self._aside[0].hashes) > self.size:
            self._aside = [self._aside[0].joined(_NOTHING, self.size)]
        return self._aside[0]

    def _remember(self, hashes: Iterable[np.ndarray] | None) -> None:
        if self.hashes is not None and hashes is not None:
            self.hashes.extend(hashes)
        if sum(self.lengths.values()) > _CHECKED:
            self.hashes = None


def summarised(source: Source, files: Iterable[int], size: int = SAMPLE) -> Summary:
    """Read files once, and return what was found: a few lanes of them side by side.

    How files are dealt out to lanes does not depend on the machine, so neither do the last digits of the factors.
    """
    files = list(files)
    with ThreadPoolExecutor(min(_LANES, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(_lane, source, files[i::_LANES], size) for i in range(_LANES)]
        found = jobs[0].result()
        for job in jobs[1:]:
            found.join(job.result())
    return found


def _lane(source: Source, files: Iterable[int], size: int) -> Summary:
    """Read files one after the other, and return what was found."""
    found = Summary(len(source.labels.channels), size)
    for file in files:
        number = 0
        for part in source.batches(file):
            found.add(part, file, number)
            number += len(part.ids)
    return found


def _times(starts: np.ndarray, zone: Any) -> tuple:
    """Return times as numbers or pandas' timestamps, those of a zone in it."""
    found: Any = pd.Series(starts)
    return tuple(found if zone is None else found.dt.tz_localize("UTC").dt.tz_convert(zone))


def hash_ids(ids: np.ndarray) -> np.ndarray:
    """Return a hash of each id, the same in every process."""
    return _hash(ids if ids.dtype.kind in "iu" else ids.astype(object), categorize=False)


def bucket_of(hashes: np.ndarray) -> np.ndarray:
    """Return the bucket of each sequence: the low digits, since the sample goes by the high ones."""
    return (hashes % np.uint64(BUCKETS)).astype(int)


def _firsts(lengths: np.ndarray) -> np.ndarray:
    """Return the row at which each sequence begins."""
    return np.cumsum(lengths) - lengths


def _counted(bucket: np.ndarray, lengths: np.ndarray) -> Iterable[tuple[tuple[int, int], int]]:
    """Yield how many sequences each bucket and length has."""
    counts = np.bincount(bucket + BUCKETS * lengths)
    for key in np.flatnonzero(counts).tolist():
        yield (key % BUCKETS, key // BUCKETS), int(counts[key])


def _moments(values: np.ndarray, seen: np.ndarray | None) -> Moments:
    """Return the moments of values, all of them or those seen."""
    y = values if seen is None else np.where(seen, values, 0.0)
    n = np.full(y.shape[1], float(len(y))) if seen is None else seen.sum(0).astype(float)
    mean = y.sum(0) / np.maximum(n, 1)
    gap = y - mean if seen is None else np.where(seen, y - mean, 0.0)
    return Moments(n, mean, np.einsum("ij,ij->j", gap, gap))
