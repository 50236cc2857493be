"""The cohort, which every fit starts from: N sequences of unequal length with d channels, any cell possibly missing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from .cohort_sources import check_lengths, listed, of_array, of_long, of_sequences
from .frames import to_wide, wide_to_long
from .inputs import ACTS_ON, INTERCEPT, Inputs, steps_ahead
from .labels import Labels, checked_ids, name_cell
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
    u: np.ndarray | None = None  # (N, T, p) inputs, 0.0 beyond a sequence's length
    ahead: np.ndarray | None = None  # (N, H, p) inputs of the steps after a sequence's end, or NaN

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable,
        *,
        ids=None,
        channels=None,
        inputs: Iterable | None = None,
        input_names=None,
        fill_inputs: str | None = None,
    ) -> "Cohort":
        """Build a cohort from (T_n, d) arrays, NaN for missing. Default ids are 0, 1, …; channels y0, y1, …

        `inputs` are known values u_t that act on states or channels, an array (T_n, p) for each sequence, named u0,
        u1, … by default. They must be complete: `fill_inputs` is "forward" (a gap has the last value before it) or
        "zero" where they are not. Arrays of more than T_n steps go on into the future, for forecasts.

        >>> Cohort.from_sequences([[[33.1, 30.2], [33.4, float("nan")]], [[32.0, 29.5]]], channels=["MCHC", "MCH"])
        Cohort(2 sequences, 2 channels, lengths 1–2, 16.7% of cells missing)
        """
        read = of_sequences(list(sequences), ids, channels, inputs, input_names, fill_inputs)
        return _build(*read)

    @classmethod
    def from_array(
        cls,
        y,
        *,
        lengths=None,
        ids=None,
        channels=None,
        inputs=None,
        input_names=None,
        fill_inputs: str | None = None,
    ) -> "Cohort":
        """Build a cohort from one (N, T, d) array, NaN for missing.

        Without `lengths` every sequence has length T, and NaNs at its end are missing steps. With
        `lengths`, values beyond them are ignored. `inputs` are (N, T or more, p), see `from_sequences`: past a
        sequence's length they are of the future, and NaN where they are not known.
        """
        return _build(*of_array(y, lengths, ids, channels, inputs, input_names, fill_inputs))

    @classmethod
    def from_wide(
        cls,
        frame: pd.DataFrame,
        *,
        id="id",
        time="time",
        channels=None,
        step=None,
        inputs=(),
        fill_inputs: str | None = None,
    ) -> "Cohort":
        """Build a cohort from a DataFrame with a row for each (id, time) and a column for each channel.

        `channels` are the columns to take, by default all others. Integer times count steps. Real
        times and dates need `step`, a number or a duration such as "8h", and must lie on that grid
        from the sequence's first time on. Steps without a row are missing. `inputs` are columns too: rows after a
        sequence's last value have inputs of the future. See `from_sequences` for `fill_inputs`.
        """
        inputs = listed(inputs)
        if channels is None and inputs:
            channels = [c for c in frame if c not in (id, time, *inputs)]
        columns = None if channels is None else [*channels, *inputs]
        table, names = wide_to_long(frame, id, time, columns)
        chosen = None if not inputs else channels
        return cls.from_long(
            table,
            id=id,
            time=time,
            **names,
            channels=chosen,
            step=step,
            inputs=inputs,
            fill_inputs=fill_inputs,
        )

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
        inputs=(),
        fill_inputs: str | None = None,
    ) -> "Cohort":
        """Build a cohort from a DataFrame with a row for each (id, time, channel); times as in `from_wide`.

        Channels come in order of appearance. `channels` selects and orders them; a sequence without
        a row in any of them is left out. `inputs` names those of the channel column that are inputs, see `from_wide`.
        """
        columns = id, time, channel, value
        return _build(*of_long(frame, *columns, channels, step, inputs, fill_inputs))

    def with_intercept(self, acts_on: str = "emission") -> "Cohort":
        """Return the cohort with one more input, named "intercept", that is 1 at every step, also of the future.

        A fit then has a level for each channel (`acts_on="emission"`, a column of D), so that data need not be
        standardised, or a drift for each state ("state", a column of B). With "both" they are not told apart: states
        may be moved by any constant, z → z + c.
        """
        if acts_on not in ACTS_ON:
            raise ValueError(f"acts_on is {acts_on!r}; it must be one of {', '.join(ACTS_ON)}")
        if INTERCEPT in self.inputs:
            return replace(self, labels=replace(self.labels, intercept=acts_on))
        one = np.arange(self.n_steps) < np.asarray(self.lengths)[:, None]
        one = one[..., None].astype(float)
        u = one if self.u is None else np.concatenate([self.u, one], axis=2)
        ahead = self.ahead
        if ahead is not None:
            ahead = _frozen(np.pad(ahead, [(0, 0), (0, 0), (0, 1)], constant_values=1.0))
        labels = replace(self.labels, inputs=(*self.inputs, INTERCEPT), intercept=acts_on)
        return replace(self, u=_frozen(u), ahead=ahead, labels=labels)

    def without_inputs(self) -> "Cohort":
        """Return the cohort without any inputs."""
        if self.u is None:
            return self
        labels = replace(self.labels, inputs=(), intercept=type(self.labels).intercept)
        return replace(self, u=None, ahead=None, labels=labels)

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
    def n_inputs(self) -> int:
        """The number p of inputs, 0 without any."""
        return 0 if self.u is None else self.u.shape[2]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The name of every input."""
        return self.labels.inputs

    @property
    def intercept(self) -> int | None:
        """The number of the input that is always 1, if there is one."""
        return self.inputs.index(INTERCEPT) if INTERCEPT in self.inputs else None

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
        p = len(self.inputs)
        text += f", {p} input{'s' * (p > 1)}" * (p > 0)
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

    def inputs_ahead(self, n_steps: int, xp: Any = np) -> Any:
        """Return the inputs of T + n_steps steps, (N, T + n_steps, p): NaN past a sequence's end where not known."""
        return steps_ahead(self.inputs, self.u, self.ahead, self.lengths, n_steps, xp)

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
        labels, lengths = replace(self.labels, ids=ids, starts=starts), self.lengths[chosen]
        inputs = None
        if self.u is not None:
            ahead = None if self.ahead is None else self.ahead[chosen]
            inputs = Inputs(self.inputs, self.u[chosen, : lengths.max()], ahead)
        return _build(values, lengths, labels, inputs)

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
        """Return a table with one row for each step, NaN where missing; columns id, time, the channels and inputs.

        `units=False` gives the stored values. The inverse is
        `Cohort.from_wide(frame, step=cohort.labels.step)`; then take logarithms and standardise again. Inputs of the
        future have rows without values; an intercept has no column.
        """
        return to_wide(self, units, id, time)

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


_ARRAYS = ["y", "mask", "lengths", "u", "ahead"]
jax.tree_util.register_dataclass(Cohort, _ARRAYS, ["complete", "labels"])


def _build(
    values: np.ndarray, lengths: np.ndarray, labels: Labels, inputs: Inputs | None = None
) -> Cohort:
    """Return the cohort of values (N, T, d), NaN for missing; every constructor ends here."""
    lengths = np.asarray(lengths)
    check_lengths(lengths, values.shape[1], labels)
    values = values[:, : lengths.max()]
    inside = (np.arange(values.shape[1]) < lengths[:, None])[:, :, None]
    for at in map(tuple, np.argwhere(np.isinf(values) & inside)):
        raise ValueError(f"{name_cell(labels, *at)} is {values[at]}; use NaN for a missing cell")
    mask = inside & ~np.isnan(values)
    y = np.where(mask, values, 0.0)
    complete = bool(mask.sum() == lengths.sum() * len(labels.channels))
    fields: dict[str, Any] = {
        "y": _frozen(y),
        "mask": _frozen(mask),
        "lengths": _frozen(lengths.astype(np.int32)),
        "complete": complete,
    }
    if inputs is None:
        return Cohort(**fields, labels=labels)
    both = set(inputs.names) & set(labels.channels)
    if both:
        raise ValueError(f"{sorted(both)[0]!r} is the name of an input and of a channel")
    ahead = None if inputs.ahead is None else _frozen(inputs.ahead)
    labels = replace(labels, inputs=inputs.names)
    return Cohort(**fields, labels=labels, u=_frozen(inputs.u), ahead=ahead)


def _frozen(x: np.ndarray) -> np.ndarray:
    """Return the array, which can no longer be written to."""
    x.setflags(write=False)  # JAX may share this memory with arrays that it takes for constant
    return x
