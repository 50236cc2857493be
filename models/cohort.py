"""The cohort, which every fit starts from: N sequences of unequal length with d channels, any cell possibly missing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from .frames import floats, read_long, wide_to_long
from .labels import Labels, checked_ids, make_labels, name_cell
from .units import channels_to_log, cov_in_units, in_units, is_logged, log_values, unscaled


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """N sequences of up to T steps with d channels, as a pytree. Build one with a `from_…` constructor.

    Values are float64 on the host: the parameters decide the precision of a computation.
    """

    y: np.ndarray  # (N, T, d), 0.0 where missing or beyond a sequence's length
    mask: np.ndarray  # (N, T, d) bool, True where a cell was observed
    lengths: np.ndarray  # (N,) int32
    complete: bool  # no cell is missing within any sequence's own length
    labels: Labels

    @classmethod
    def from_sequences(cls, sequences: Iterable, *, ids=None, channels=None) -> "Cohort":
        """Build a cohort from (T_n, d) arrays, NaN for missing. Default ids are 0, 1, …; channels y0, y1, …

        >>> Cohort.from_sequences([[[33.1, 30.2], [33.4, float("nan")]], [[32.0, 29.5]]], channels=["MCHC", "MCH"])
        Cohort(2 sequences, 2 channels, lengths 1–2, 16.7% of cells missing)
        """
        sequences = list(sequences)
        ids = checked_ids(ids, len(sequences))
        d = None
        for name, x in zip(ids, sequences, strict=True):
            try:
                shape = np.shape(x)
            except ValueError as error:
                raise ValueError(f"sequence {name!r} is not an array: {error}") from error
            if len(shape) != 2:
                hint = "; for one channel use x.reshape(-1, 1)" if len(shape) == 1 else ""
                raise ValueError(f"sequence {name!r} is {shape}, not (steps, channels){hint}")
            d = shape[1] if d is None else d
            if shape[1] != d:
                raise ValueError(f"sequence {name!r} has {shape[1]} channels, the first has {d}")
        labels = make_labels(ids, channels, d)
        arrays = [
            floats(x, lambda at, n=n: name_cell(labels, n, *at)) for n, x in enumerate(sequences)
        ]
        lengths = np.array([len(x) for x in arrays])
        values = np.full((len(arrays), lengths.max(), len(labels.channels)), np.nan)
        values[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(arrays)
        return _build(values, lengths, labels)

    @classmethod
    def from_array(cls, y, *, lengths=None, ids=None, channels=None) -> "Cohort":
        """Build a cohort from one (N, T, d) array, NaN for missing.

        Without `lengths` every sequence has length T, and NaNs at its end are missing steps. With
        `lengths`, values beyond them are ignored.
        """
        shape = np.shape(y)
        if len(shape) != 3:
            raise ValueError(f"y has shape {shape}; it must be (sequences, steps, channels)")
        labels = make_labels(checked_ids(ids, shape[0]), channels, shape[2])
        lengths = np.full(shape[0], shape[1]) if lengths is None else np.asarray(lengths)
        if lengths.shape != shape[:1] or lengths.dtype.kind not in "iu":
            raise ValueError(f"lengths is {lengths}; give {shape[0]} integers, one a sequence")
        return _build(floats(y, lambda at: name_cell(labels, *at)), lengths, labels)

    @classmethod
    def from_wide(
        cls, frame: pd.DataFrame, *, id="id", time="time", channels=None, step=None
    ) -> "Cohort":
        """Build a cohort from a DataFrame with a row for each (id, time) and a column for each channel.

        `channels` are the columns to take, by default all others. Integer times count steps. Real
        times and dates need `step`, a number or a duration such as "8h", and must lie on that grid
        from the sequence's first time on. Steps without a row are missing.
        """
        table, names = wide_to_long(frame, id, time, channels)
        return cls.from_long(table, id=id, time=time, **names, step=step)

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame,
        *,
        id="id",
        time="time",
        channel="channel",
        value="value",
        channels=None,
        step=None,
    ) -> "Cohort":
        """Build a cohort from a DataFrame with a row for each (id, time, channel); times as in `from_wide`.

        Channels come in order of appearance. `channels` selects and orders them; a sequence without
        a row in any of them is left out.
        """
        found = read_long(frame, id, time, channel, value, channels, step)
        ids = checked_ids(found.ids, len(found.ids))
        labels = make_labels(ids, found.channels, len(found.channels), found.starts, found.step)
        return _build(found.values, found.lengths, labels)

    @property
    def n_sequences(self) -> int:
        """The number N of sequences."""
        return self.y.shape[0]

    @property
    def n_steps(self) -> int:
        """The length T of the longest sequence."""
        return self.y.shape[1]

    @property
    def n_channels(self) -> int:
        """The number d of channels."""
        return self.y.shape[2]

    @property
    def n_observed(self):
        """The number of observed cells."""
        return self.mask.sum()

    @property
    def ids(self) -> tuple:
        """The id of every sequence."""
        return self.labels.ids

    @property
    def channels(self) -> tuple[str, ...]:
        """The name of every channel."""
        return self.labels.channels

    def __len__(self) -> int:
        return self.n_sequences

    def __repr__(self) -> str:
        n, d = len(self.ids), len(self.channels)
        text = f"Cohort({n} sequence{'s' * (n > 1)}, {d} channel{'s' * (d > 1)}"
        try:  # in a traceback the leaves may be tracers, or other objects
            lengths, mask = np.asarray(self.lengths, int), np.asarray(self.mask, bool)
            low, high, share = lengths.min(), lengths.max(), 1 - mask.sum() / (lengths.sum() * d)
        except (TypeError, ValueError, RuntimeError):
            return f"{text}, no values)"
        span = f"length {low}" if low == high else f"lengths {low}–{high}"
        missing = "no cell missing" if self.complete else f"{100 * share:.3g}% of cells missing"
        return f"{text}, {span}, {missing})"

    def sequence(self, i: int) -> np.ndarray:
        """Return the i-th sequence (T_n, d), NaN where missing."""
        T = self.lengths[i]
        return np.where(self.mask[i, :T], self.y[i, :T], np.nan)

    def sequences(self) -> list[np.ndarray]:
        """Return all sequences, arrays (T_n, d), NaN where missing."""
        return [self.sequence(i) for i in range(len(self))]

    def values_at(self, sequence: Any, step: Any) -> np.ndarray:
        """Return the values (..., d) at given steps, counted from 0; NaN where missing or past a sequence's end."""
        sequence, step = np.broadcast_arrays(sequence, step)
        inside = step < np.asarray(self.lengths)[sequence]
        at = sequence, np.minimum(step, self.n_steps - 1)
        return np.where(
            np.asarray(self.mask)[at] & inside[..., None], np.asarray(self.y)[at], np.nan
        )

    def take(self, indices) -> "Cohort":
        """Return the sub-cohort at `indices`: integers, a slice or a boolean mask. Ids are kept.

        No sequence may be taken twice: for a bootstrap give the sequences to `from_sequences`.
        """
        pick: Any = indices if isinstance(indices, slice) else np.array(indices, ndmin=1)
        chosen = np.arange(len(self))[pick if np.size(pick) else slice(0)]
        ids = checked_ids([self.ids[i] for i in chosen], len(chosen))
        starts = self.labels.starts and tuple(self.labels.starts[i] for i in chosen)
        values = np.where(self.mask[chosen], self.y[chosen], np.nan)
        return _build(values, self.lengths[chosen], replace(self.labels, ids=ids, starts=starts))

    def log(self, channels: Iterable[str] | None = None) -> "Cohort":
        """Return the cohort with natural logarithms stored of the named channels, by default of all.

        For positive and skewed values, such as creatinine: what `to_units` gives is then never negative. Take
        logarithms before `standardize`. Channels that are logged already stay as they are.
        """
        return self._with_logs(channels_to_log(self.labels, channels))

    def standardize(self, shift=None, scale=None) -> "Cohort":
        """Return the cohort with (value − shift) / scale stored: by default mean and sd of a channel's observed cells.

        `shift` and `scale` are in the user's units, so a second call replaces the first; those of a logged channel are
        of its logarithms.
        """
        values = np.asarray(unscaled(self.labels, self.y))
        observed = [values[..., j][self.mask[..., j]] for j in range(self.n_channels)]
        for j, (name, x) in enumerate(zip(self.channels, observed, strict=True)):
            if x.size == 0 and (shift is None or scale is None):
                raise ValueError(f"channel {name!r} has no observed cell: give shift and scale")
            if scale is None and x.min() == x.max():
                value = float(f"{self.to_units(self.y)[..., j][self.mask[..., j]][0]:.9g}")
                raise ValueError(f"channel {name!r} is constant ({value}): drop it or give scale")
        shift = self._per_channel("shift", [x.mean() for x in observed] if shift is None else shift)
        scale = self._per_channel("scale", [x.std() for x in observed] if scale is None else scale)
        if min(scale) <= 0:
            raise ValueError(f"scale is {scale}; every entry must be positive")
        y = np.where(self.mask, (values - np.array(shift)) / np.array(scale), 0.0)
        return replace(self, y=_frozen(y), labels=replace(self.labels, shift=shift, scale=scale))

    def standardize_like(self, other: "Cohort") -> "Cohort":
        """Return the cohort with the logarithms, shift and scale of another: test data like training data."""
        if self.channels != other.channels:
            raise ValueError(f"channels are {self.channels}, the other cohort's {other.channels}")
        like = self._with_logs(other.labels.logged)
        return like.standardize(other.labels.shift, other.labels.scale)

    def to_units(self, values):
        """Return values (..., d) in the user's units: shift + scale · value, and its exponential for logged channels.

        Quantiles may be given, as the map is increasing. A mean of a Gaussian is also its median: of a logged channel
        it becomes the median in units, which is below the mean in units.
        """
        return in_units(self.labels, values)

    def to_units_cov(self, cov):
        """Return covariances (..., d, d) in the user's units: scale_i scale_j cov_ij; raise if a channel is logged."""
        return cov_in_units(self.labels, cov)

    def to_dataframe(self, units: bool = True, *, id="id", time="time") -> pd.DataFrame:
        """Return a table with one row for each step, NaN where missing; columns id, time and the channels.

        `units=False` gives the stored values. The inverse is
        `Cohort.from_wide(frame, step=cohort.labels.step)`; then take logarithms and standardise again.
        """
        if {id, time} & set(self.channels):
            raise ValueError(f"a channel is named {id!r} or {time!r}: give other id=, time=")
        inside = np.arange(self.n_steps) < np.asarray(self.lengths)[:, None]
        n, t = np.nonzero(inside)
        values = np.where(self.mask, self.to_units(self.y) if units else self.y, np.nan)[inside]
        starts = pd.Series(self.labels.starts or [0] * len(self))
        times = starts.iloc[n].reset_index(drop=True) + pd.Series(t) * self.labels.step
        frame = pd.DataFrame({id: pd.Series(self.ids).iloc[n].to_numpy(), time: times})
        return frame.join(pd.DataFrame(values, columns=list(self.channels)))

    def _per_channel(self, name: str, values) -> tuple[float, ...]:
        x = np.asarray(values, dtype=np.float64)
        if x.shape not in ((), (self.n_channels,)) or not np.isfinite(x).all():
            raise ValueError(f"{name} is {values}; give a finite number for each channel")
        return tuple(np.broadcast_to(x, (self.n_channels,)).tolist())

    def _with_logs(self, logged: tuple[str, ...]) -> "Cohort":
        """Return the cohort with logarithms of these channels alone; those that change are not standardised."""
        if logged == self.labels.logged:
            return self
        before, after = is_logged(self.labels), np.isin(self.channels, logged)
        units = np.where(self.mask, self.to_units(self.y), np.nan)
        values = np.where(before == after, self.y, log_values(self.labels, units, after & ~before))
        shift, scale = (
            tuple(np.where(before == after, kept, plain).tolist())
            for kept, plain in ((self.labels.shift, 0.0), (self.labels.scale, 1.0))
        )
        labels = replace(self.labels, shift=shift, scale=scale, logged=logged)
        return replace(self, y=_frozen(np.where(self.mask, values, 0.0)), labels=labels)


jax.tree_util.register_dataclass(Cohort, ["y", "mask", "lengths"], ["complete", "labels"])


def _build(values: np.ndarray, lengths: np.ndarray, labels: Labels) -> Cohort:
    """Return the cohort of values (N, T, d), NaN for missing; every constructor ends here."""
    lengths, T = np.asarray(lengths), values.shape[1]
    for n in np.flatnonzero((lengths < 1) | (lengths > T)):
        raise ValueError(f"sequence {labels.ids[n]!r} has length {lengths[n]}, not 1 to {T} steps")
    values = values[:, : lengths.max()]
    inside = (np.arange(values.shape[1]) < lengths[:, None])[:, :, None]
    for at in map(tuple, np.argwhere(np.isinf(values) & inside)):
        raise ValueError(f"{name_cell(labels, *at)} is {values[at]}; use NaN for a missing cell")
    mask = inside & ~np.isnan(values)
    y = np.where(mask, values, 0.0)
    complete = bool(mask.sum() == lengths.sum() * len(labels.channels))
    return Cohort(_frozen(y), _frozen(mask), _frozen(lengths.astype(np.int32)), complete, labels)


def _frozen(x: np.ndarray) -> np.ndarray:
    x.setflags(write=False)  # JAX may share this memory with arrays that it takes for constant
    return x
