"""A cohort on disk, which fits take in the place of a `Cohort` in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..arguments import whole
from ..cohort import Cohort
from ..kalman.complete import Complete
from ..labels import Labels, make_labels
from .across import Processes
from .factors import triangular
from .folder import ID, START, STEP, arrow, labels_of
from .reading import Long, Source
from .streamed import Streamed
from .summary import BUCKETS, SAMPLE, Summary, bucket_of, hash_ids, summarised


class Pass:
    """The one pass over a data set, made when its result is first asked for."""

    def __init__(self, source: Source, size: int, processes: Processes) -> None:
        self.source, self.size, self.processes = source, size, processes
        self._others: dict[Processes, Pass] = {}

    def shared(self, processes: Processes) -> "Pass":
        """Return the pass of these processes together, the same one at every call."""
        if processes == self.processes:
            return self
        return self._others.setdefault(processes, Pass(self.source, self.size, processes))

    @cached_property
    def summary(self) -> Summary:
        """What the pass has found, in all processes that share it."""
        share = self.processes.share(len(self.source.files))
        found = self.processes.gathered(summarised(self.source, share, self.size))
        for other in found[1:]:
            found[0].join(other)
        return found[0].check(self.source)


@dataclass(frozen=True, eq=False, repr=False)
class DiskCohort:
    """N sequences in a folder of Parquet. Make one with `open_cohort`; fits take it in the place of a `Cohort`.

    Its first use reads the folder once. Without gaps nothing more is read: EM runs on triangular factors. With gaps
    every iteration streams the sequences. Starting values, weak priors and scores of held-out sequences are those of
    `sample`, a cohort in memory.
    """

    source: Source
    labels: Labels  # without ids
    once: Pass = field(compare=False)
    left_out: tuple[int, ...] = ()  # buckets of sequences that do not count

    @property
    def summary(self) -> Summary:
        """What one pass over the data has found."""
        return self.once.summary

    @cached_property
    def sample(self) -> Cohort:
        """Up to 4096 sequences (all, if there are no more), as good as drawn at random: a cohort in memory."""
        found = self.summary.sampled(self.labels, self.left_out, self.source.zone)
        return found.standardize(self.labels.shift, self.labels.scale)

    @property
    def sample_buckets(self) -> np.ndarray:
        """The bucket of each sequence of the sample."""
        return bucket_of(hash_ids(np.array(self.sample.ids)))

    @property
    def channels(self) -> tuple[str, ...]:
        """The name of every channel."""
        return self.labels.channels

    @property
    def n_channels(self) -> int:
        """The number d of channels."""
        return len(self.channels)

    @property
    def n_inputs(self) -> int:
        """The number of inputs: cohorts on disk have none."""
        return 0

    @property
    def complete(self) -> bool:
        """Whether no cell is missing within any sequence's own length."""
        return self.summary.complete

    @property
    def lengths(self) -> dict[int, int]:
        """How many sequences have each length."""
        found: dict[int, int] = {}
        for (b, T), n in sorted(self.summary.lengths.items()):
            if b not in self.left_out:
                found[T] = found.get(T, 0) + n
        return found

    @property
    def n_sequences(self) -> int:
        """The number N of sequences."""
        return sum(self.lengths.values())

    @property
    def n_steps(self) -> int:
        """The length T of the longest sequence, those left out among them."""
        return max(T for _, T in self.summary.lengths)

    @property
    def n_transitions(self) -> int:
        """The number of pairs of consecutive steps."""
        return sum(n * (T - 1) for T, n in self.lengths.items())

    @property
    def n_observed(self) -> int:
        """The number of observed cells."""
        return int(np.delete(self.summary.cells_seen, list(self.left_out)).sum())

    @property
    def n_observed_steps(self) -> int:
        """The number of steps with an observed cell."""
        return int(np.delete(self.summary.steps_seen, list(self.left_out)).sum())

    def __len__(self) -> int:
        return self.n_sequences

    def __repr__(self) -> str:
        d, files = self.n_channels, len(self.source.files)
        return f"DiskCohort({str(self.source.path)!r}, {files} files, {d} channel{'s' * (d > 1)})"

    def standardize(self, shift: Any = None, scale: Any = None) -> "DiskCohort":
        """Return the cohort with (value − shift) / scale in place of values: by default mean and sd of all of them."""
        n, mean, squares = self.summary.moments
        shift = mean if shift is None else np.broadcast_to(np.asarray(shift, float), mean.shape)
        sd = np.sqrt(squares / np.maximum(n, 1)) if scale is None else scale
        scale = np.broadcast_to(np.asarray(sd, float), mean.shape)
        for j in np.flatnonzero(~(scale > 0)):
            raise ValueError(f"channel {self.channels[j]!r} is constant: drop it, or give scale")
        labels = replace(self.labels, shift=tuple(shift.tolist()), scale=tuple(scale.tolist()))
        return replace(self, labels=labels)

    def fold(self, k: int, n_folds: int) -> tuple[int, ...]:
        """Return the buckets that make up one of up to 10 folds."""
        n_folds = whole("n_folds", n_folds, 2, BUCKETS)
        return tuple(b for b in range(BUCKETS) if b % n_folds == k)

    def without(self, buckets: Sequence[int]) -> "DiskCohort":
        """Return the cohort without the sequences of some buckets: nothing is read again."""
        return replace(self, left_out=tuple(buckets))

    def shared(self, mesh: Any) -> "DiskCohort":
        """Return the cohort with its files dealt out to the processes of a mesh: each reads its own."""
        once = self.once if mesh is None else self.once.shared(Processes.of(mesh))
        return self if once is self.once else replace(self, once=once)

    def prepared(self, dtype: Any, n_states: int, mesh: Any = None) -> Any:
        """Return the data ready for the E-step: factors without gaps, and a stream of chunks with them.

        Factors are small: every process has all of them, and needs no other for an E-step. With a mesh chunks are dealt
        out to the devices of the process that reads them.
        """
        shared = self.shared(mesh)
        if shared.summary.factors:
            return shared._factors(dtype)
        return Streamed.of(shared, dtype, n_states, mesh)

    def _factors(self, dtype: Any) -> Complete:
        """Return the pseudo-sequences of all lengths, in the units of the labels."""
        T, d = self.n_steps, self.n_channels
        shift, scale = (np.array(x) for x in (self.labels.shift, self.labels.scale))
        rows, lengths = [], []
        for length in self.lengths:
            stacks = [
                self.summary.factors[key]
                for key in sorted(self.summary.factors)
                if key[1] == length and key[0] not in self.left_out
            ]
            R = triangular(np.concatenate([stack.factor() for stack in stacks]))
            y = R[:, 1:].reshape(len(R), length, d)
            y = (y - R[:, :1, None] * shift) / scale
            y = np.pad(y, [(0, 0), (0, T - length), (0, 0)]).reshape(len(R), -1)
            rows.append(np.column_stack([R[:, 0], y]))
            lengths.append(np.full(len(R), length))
        found, length = np.concatenate(rows), np.concatenate(lengths)
        more = -len(found) % 8
        found, length = np.pad(found, [(0, more), (0, 0)]), np.pad(length, (0, more))
        n_t = [sum(n for L, n in self.lengths.items() if L > t) for t in range(T)]
        y = np.moveaxis(found[:, 1:].reshape(-1, T, d), 0, -1)
        taken = np.arange(len(found)) < len(found) - more
        host: Any = y, np.arange(T)[:, None] < length, found[:, 0], taken, np.array(n_t)
        y, inside, unit, weights, n_t = (jnp.asarray(x, dtype) for x in host)
        return Complete(y, inside, unit, weights, n_t)


def open_cohort(
    path: Any,
    *,
    channels: Sequence[str] | None = None,
    where: Any = None,
    id: str = "id",
    time: str = "time",
    channel: str = "channel",
    value: str = "value",
    step: Any = None,
    sample: int = SAMPLE,
) -> DiskCohort:
    """Open a cohort in a folder of Parquet, for fits that need not hold it in memory.

    The folder is one of `write_cohort` or `sparse-lds bin` (columns `id`, `step` and the channels, see
    models/disk/folder.py), or has tables with a row for each value, columns `id`, `time`, `channel` and `value` under
    the names given here, times as in `Cohort.from_long`. The rows of a sequence stand together. `channels` selects and
    orders the channels, `where` is an expression of pyarrow that selects rows, and `sample` says from how many
    sequences starting values are computed. Folders named key=value are partitions. Only the schema is read.
    """
    _, ds, _ = arrow()
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no folder {str(path)!r}")
    data = ds.dataset(str(path), format="parquet", partitioning="hive")
    files = tuple(sorted(data.get_fragments(where), key=lambda x: x.path))
    if not files:
        raise ValueError(f"{str(path)!r} has no Parquet file")
    whole("sample", sample, 2)
    names = data.schema.names
    labels, long = labels_of(data.schema, Path(path)), None
    if labels is None and {id, time, channel, value} <= set(names):
        long = Long(id, time, channel, value)
        found = channels or _distinct(data, channel, where)
        labels = make_labels((), found, len(found), step=step)
    elif labels is None:
        if not {ID, STEP} <= set(names):
            raise ValueError(
                f"{str(path)!r} has columns {', '.join(names)}; a cohort has {ID}, {STEP} and its channels, or {id}, "
                f"{time}, {channel} and {value}"
            )
        own = files[0].physical_schema.names  # without partitions
        found = [name for name in own if name not in (ID, STEP, START)]
        labels = make_labels((), found, len(found), step=1 if step is None else step)
    if channels is not None:
        absent = [name for name in channels if name not in labels.channels]
        if absent:
            raise ValueError(f"channels has {absent[0]!r}; the folder has {', '.join(labels.channels)}")  # fmt: skip
        few = make_labels((), channels, len(channels), step=labels.step)
        labels = replace(few, time_unit=labels.time_unit)
    started = START in names and long is None
    zone = getattr(data.schema.field(START).type, "tz", None) if started else None
    source = Source(Path(path), labels, data.schema, files, where, long, started, zone)
    return DiskCohort(source, labels, Pass(source, sample, Processes()))


def _distinct(data: Any, column: str, where: Any) -> list[str]:
    """Return the names in a column, sorted."""
    found: set[str] = set()
    for batch in data.to_batches(columns=[column], filter=where):
        found |= set(map(str, batch.column(0).unique().to_pylist()))
    return sorted(found)
