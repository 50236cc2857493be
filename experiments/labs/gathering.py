"""Lab results gathered from tables of any layout into `Labs`, with a count of the values that are dropped."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .durations import unit_name
from .numbers import PLAIN, Marks
from .times import Clock, check_times, to_hours, understood

_NOT_NUMBERS = "that are not numbers"  # a reason to drop values


class Labs(NamedTuple):
    """Lab results of P patients (or admissions): n values in compact arrays."""

    ids: np.ndarray  # (P,), of the patients
    tests: tuple[str, ...]
    patient: np.ndarray  # (n,) int32, index into ids
    test: np.ndarray  # (n,) int8, index into tests
    hours: np.ndarray  # (n,) float64, time on one clock
    value: np.ndarray  # (n,) float64
    log: tuple[str, ...]  # lines that say how many values were read and dropped, and why
    clock: Clock = Clock("numbers")  # how times were written: dates, or numbers of a unit

    def __str__(self) -> str:
        return "\n".join(self.log)


def without_attributes(labs: Labs, kept_inputs: Sequence[str] = ()) -> Labs:
    """Return lab results without columns of a wide table that are no tests, and say so: row numbers, and attributes.

    An attribute is what never changes within a patient, though it was written down often enough to show it.
    """
    why = {}
    for k, name in enumerate(labs.tests):
        if name in kept_inputs:
            continue
        here = labs.test == k
        value, patient = labs.value[here], labs.patient[here]
        counts = np.bincount(patient)
        of_each: Any = pd.Series(value).groupby(patient)
        if len(value) > 10 and (np.diff(value) == 1).all():
            why[k] = f"  dropped column {name}, which counts the rows"
        elif np.sum(counts >= 3) >= 3 and (of_each.max() == of_each.min()).all():
            why[k] = (
                f"  dropped column {name}, which never changes within a patient; --tests keeps it"
            )
    kept = [k for k in range(len(labs.tests)) if k not in why]
    if not why or not kept:
        return labs
    rows = np.isin(labs.test, kept)
    return labs._replace(
        tests=tuple(labs.tests[k] for k in kept),
        test=np.searchsorted(kept, labs.test[rows]).astype(labs.test.dtype),
        patient=labs.patient[rows], hours=labs.hours[rows], value=labs.value[rows],
        log=(*labs.log, *why.values()),
    )  # fmt: skip


class LabGatherer:
    """A gatherer of lab results from the chunks of one table, which counts the values that are dropped.

    Call one of `add_long`, `add_wide` and `add_mimic` for every chunk, and `finish` after the last. `tests` names the
    tests to keep, in the order of the channels; None keeps all of them. `unit` is what times count that are numbers,
    `marks` how numbers are written; `any_times` takes times that cannot be right.
    """

    def __init__(
        self,
        tests: list[str] | None,
        unit: str = "h",
        marks: Marks = PLAIN,
        any_times: bool = False,
        inputs: Sequence[str] = (),
    ):
        self.inputs = tuple(inputs)  # which may never change within a patient
        self.marks, self.any_times = marks.check(), any_times
        self.tests = list(tests or [])
        self.tests_are_given = tests is not None
        self.index_of_id: dict[Any, int] = {}
        self.parts: list[tuple[np.ndarray, ...]] = []  # (patient, test, hours, value) of each chunk
        self.clock = Clock(unit=unit)
        self.n_rows = 0
        self.dropped: dict[str, int] = {}  # reason -> number of values
        self.texts: set[str] = set()  # examples of values that are not numbers
        self.other_tests: set[str] = set()  # tests that are not to be kept
        self.units: dict[str, dict[str, int]] = {}  # test -> unit -> number of values

    def add_long(self, frame: Any, id: str, time: str, test: str, value: str) -> None:
        """Add a chunk with a row for each value; the arguments name its columns."""
        self.n_rows += len(frame)
        named = frame[test].notna()
        self._drop("without a test", (~named).sum())
        frame = frame[named]
        names = frame[test].astype(str)
        if self.tests_are_given:
            wanted = names.isin(self.tests)
            self.other_tests |= set(names[~wanted].unique())
            self._drop("of other tests", (~wanted).sum())
            frame, names = frame[wanted], names[wanted]
        else:
            self.tests += sorted(set(names.unique()) - set(self.tests))
        self._add(frame[id], frame[time], self._indices(names), frame[value])

    def add_wide(self, frame: Any, id: str, time: str, measured: Sequence[Any]) -> None:
        """Add a chunk with a row for each panel; `measured` names the columns that are tests."""
        self.n_rows += len(frame)
        if not self.tests_are_given:
            self.tests = [str(t) for t in measured]
        for index, name in enumerate(measured):
            rows = frame[frame[name].notna()]  # an empty cell is no result, and not counted
            self._add(rows[id], rows[time], np.full(len(rows), index), rows[name])

    def add_mimic(self, frame: Any, columns: Mapping[str, str], items: Mapping[int, str]) -> None:
        """Add a chunk of MIMIC's `labevents`, where an admission is a patient.

        `columns` maps MIMIC's names in lower case to those of the file; `value` and `valueuom` may be absent. `items`
        maps the itemids to keep to names of tests.
        """
        self.n_rows += len(frame)
        frame = frame[frame[columns["itemid"]].isin(list(items))]
        admitted = frame[columns["hadm_id"]].notna()
        self._drop("without an admission", (~admitted).sum())
        frame = frame[admitted]
        number = self.marks.numbers(frame[columns["valuenum"]])
        if "value" in columns:  # its text may be a number where valuenum is empty
            number = number.fillna(self.marks.numbers(frame[columns["value"]]))
            self._drop_texts(frame[columns["value"]][number.isna()])
            frame, number = frame[number.notna()], number[number.notna()]
        names = frame[columns["itemid"]].map(dict(items))
        if "valueuom" in columns:
            self._count_units(names, frame[columns["valueuom"]])
        ids = frame[columns["hadm_id"]].astype("int64")
        self._add(ids, frame[columns["charttime"]], self._indices(names), number)

    def finish(self, name: str, kind: str) -> Labs:
        """Return the lab results gathered from the table called `name`, of layout `kind`.

        Raise if no value is left, or none of a test that was asked for.
        """
        joined = [np.concatenate(x) for x in zip(*self.parts, strict=True)] if self.parts else []
        if not joined or not len(joined[0]):
            raise ValueError(f"nothing is left of {name}: {self._lost() or 'no rows'}")
        patient, test, hours, value = joined
        if not self.any_times:
            check_times(hours, self.clock)
        log = [*self._log(name, kind, len(value)), f"  {understood(hours, self.clock)}"]
        empty = [t for k, t in enumerate(self.tests) if not (test == k).any()]
        if empty and self.tests_are_given:
            has = f"; it has also {_quoted(self.other_tests)}" if self.other_tests else ""
            lost = f" (dropped: {self._lost()})" if self.dropped else ""
            raise ValueError(f"{name} has no value of test {empty[0]!r}{has}{lost}")
        tests = self.tests
        if empty:  # tests with text only, which become no channels
            log += [f"  dropped test {t}, which has no number" for t in empty]
            kept = [k for k, t in enumerate(tests) if t not in empty]
            test = np.searchsorted(kept, test).astype(np.int8)
            tests = [tests[k] for k in kept]
        ids = np.array(list(self.index_of_id), dtype=object)
        labs = Labs(ids, tuple(tests), patient, test, hours, value, tuple(log), self.clock)
        return (
            labs
            if kind != "wide" or self.tests_are_given
            else without_attributes(labs, self.inputs)
        )

    def _lost(self) -> str:
        """Return how many values were dropped and why, in one line."""
        lost = ", ".join(f"{n} {why}" for why, n in self.dropped.items())
        lost += f" ({_quoted(self.other_tests)})" if self.other_tests else ""
        advice = self.marks.advice(self.texts)
        return f"{lost}; {advice}" if advice else lost

    def _add(self, ids: Any, times: Any, test: np.ndarray, value: Any) -> None:
        """Keep the rows that have an id, a number and a time, and count the others; `test` is an index."""
        if not len(ids):
            return
        if len(self.tests) > 127:  # the index is an int8
            raise ValueError(
                "there are more than 127 tests: is that the right column? If so, name those to keep in tests"
            )
        number = np.asarray(self.marks.numbers(value), float)
        known = ids.notna().to_numpy()
        numeric = np.isfinite(number)
        self._drop("without an id", (~known).sum())
        self._drop_texts(value[known & ~numeric])
        hours, self.clock = to_hours(times, self.clock, self.marks)
        dated = np.isfinite(hours)
        self._drop("without a time", (known & numeric & ~dated).sum())
        keep = known & numeric & dated
        part = self._patients(ids[keep]), test[keep].astype(np.int8), hours[keep], number[keep]
        self.parts.append(part)

    def _patients(self, ids: Any) -> np.ndarray:
        """Return the index of every id; new ids get the next indices."""
        local, unique = pd.factorize(ids)
        index = [self.index_of_id.setdefault(x, len(self.index_of_id)) for x in unique.tolist()]
        return np.array(index, np.int32)[local]

    def _indices(self, names: Any) -> np.ndarray:
        """Return the index of every name in `self.tests`."""
        return pd.Index(self.tests).get_indexer(pd.Index(names))

    def _drop(self, reason: str, n: Any) -> None:
        """Count `n` values as dropped for this reason."""
        if n:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(n)

    def _drop_texts(self, values: Any) -> None:
        """Count values that are not numbers: empty ones, limits of detection and other text."""
        self._drop("that are empty", values.isna().sum())
        text = values.dropna().astype(str)
        limits = text.str.match(r"\s*[<>≤≥]\s*[\d.]").astype(bool)
        self._drop("beyond a limit of detection (as <3.0)", limits.sum())
        self._drop(_NOT_NUMBERS, (~limits).sum())
        self.texts |= set(text[~limits].unique()[:100])

    def _count_units(self, names: Any, units: Any) -> None:
        """Count the values of every test (`names`) in every unit."""
        for (name, unit), n in units.fillna("none").groupby(names).value_counts().items():
            counts = self.units.setdefault(str(name), {})
            counts[str(unit)] = counts.get(str(unit), 0) + int(n)

    def _log(self, name: str, kind: str, n_values: int) -> list[str]:
        """Return lines on the values read, kept, and dropped and why, and on points that a reader should check."""
        log = [
            f"{name}: {self.n_rows} rows read as {kind}, {n_values} values of {len(self.index_of_id)} ids kept"
        ]
        for why, n in self.dropped.items():
            examples = f" ({_quoted(self.texts, 4)})" if why == _NOT_NUMBERS else ""
            log.append(f"  dropped {n} values {why}{examples}")
        advice = self.marks.advice(self.texts)
        log += [f"  {advice}"] if advice else []
        if self.clock.day_first is not None:
            first = "day" if self.clock.day_first else "month"
            log.append(f"  dates are read with the {first} first")
        if self.clock.unit != "h":  # which a user has asked for
            written = "numbers of" if self.clock.kind == "numbers" else "timestamps, and not in"
            log.append(f"  times are {written} {unit_name(self.clock.unit)}")
        for test, units in self.units.items():
            if len(units) > 1:
                counts = ", ".join(f"{unit} ({n})" for unit, n in units.items())
                log.append(f"  {test} has units {counts}")
        return log


def _quoted(names: set[str], n: int = 12) -> str:
    """Return the first `n` names in quotes, and how many more there are, as text."""
    found = sorted(names)
    return ", ".join(map(repr, found[:n])) + (f" and {len(found) - n} more" if found[n:] else "")
