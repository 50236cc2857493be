"""Lab results in: long, wide or MIMIC tables, read in chunks, binned into the panels of a cohort.

Every step says how many patients and values it kept, and why it dropped the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...models import Cohort

MIMIC_ITEMS = {51249: "MCHC", 51248: "MCH", 51250: "MCV"}
_NUMERIC_DATE = r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d{2,4}\b"  # 31/01/2023: which is the day?
_TEXT = "that are not numbers"
_CHUNK = 500_000  # rows


class Labs(NamedTuple):
    """Lab results, one row a value, in compact arrays."""

    ids: np.ndarray  # (P,), the patients, or admissions
    tests: tuple[str, ...]
    patient: np.ndarray  # (n,) int32, index into ids
    test: np.ndarray  # (n,) int8, index into tests
    hours: np.ndarray  # (n,) float64, on one clock
    value: np.ndarray  # (n,) float64
    log: tuple[str, ...]  # what was read and dropped

    def __str__(self) -> str:
        return "\n".join(self.log)


def read_labs(
    path: str | Path,
    *,
    kind: str = "auto",
    id: str = "id",
    time: str = "time",
    test: str = "test",
    value: str = "value",
    tests: Sequence[str] | Mapping[int, str] | None = None,
    chunk: int = _CHUNK,
) -> Labs:
    """Lab results from a CSV (also .gz) or Parquet file.

    - long: a row for each value, columns `id`, `time`, `test`, `value`;
    - wide: a row for each panel, columns `id`, `time` and one for each test;
    - mimic: `labevents` as downloaded (III or IV), by admission; `tests` maps itemids to names (by default those
      of MCHC, MCH and MCV);
    - auto, the default, tells them apart by their columns.

    `time` is a timestamp, or a number of hours. `tests` names the tests to keep, in the order of the channels; by
    default all of them. The file is read in chunks, and only what is kept stays in memory.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if kind not in ("auto", "long", "wide", "mimic"):
        raise ValueError(f"kind is {kind!r}; it must be 'auto', 'long', 'wide' or 'mimic'")
    columns = _columns(path)
    lower = {c.lower(): c for c in columns}
    if kind == "auto":
        mimic = {"hadm_id", "itemid", "charttime"} <= lower.keys()
        kind = "mimic" if mimic else "long" if {test, value} <= set(columns) else "wide"
    if kind == "mimic":
        names = {k: lower.get(k, k) for k in ("hadm_id", "itemid", "charttime", "valuenum")}
        need, more = list(names.values()), [lower[k] for k in ("value", "valueuom") if k in lower]
    else:
        need, more = [id, time] + ([test, value] if kind == "long" else list(tests or ())), []
    absent = [c for c in need if c not in columns]
    if absent:
        raise ValueError(
            f"{path.name} has no column {absent[0]!r}; it has {', '.join(map(repr, columns))}"
        )
    if kind == "mimic":
        items = MIMIC_ITEMS if tests is None else tests
        if not isinstance(items, Mapping):
            raise ValueError("tests of a MIMIC table must map itemids to names, {51249: 'MCHC', …}")
        reader = _Reader(list(dict.fromkeys(items.values())))
        read = lambda frame: reader.mimic(frame, names, lower, items)  # noqa: E731
    else:
        reader = _Reader(None if tests is None else [str(t) for t in tests])
        if kind == "long":
            read = lambda frame: reader.long(frame, id, time, test, value)  # noqa: E731
        else:
            measured = list(tests or [c for c in columns if c not in (id, time)])
            read = lambda frame: reader.wide(frame, id, time, measured)  # noqa: E731
            need = [id, time, *measured]
    text = [id, test] if kind == "long" else [id] if kind == "wide" else []
    for frame in _chunks(path, [*need, *more], chunk, text):
        read(frame)
    return reader.done(path.name, kind)


def labs_from_frame(
    frame: pd.DataFrame, *, id="id", time="time", test="test", value="value"
) -> Labs:
    """The same from a long table in memory."""
    reader = _Reader(None)
    reader.long(frame, id, time, test, value)
    return reader.done("the table", "long")


def _some(names: set[str], n: int = 12) -> str:
    found = sorted(names)
    return ", ".join(map(repr, found[:n])) + (f" and {len(found) - n} more" if found[n:] else "")


def _number(x: Any) -> Any:
    """As numbers, NaN where it is none."""
    return pd.to_numeric(x, errors="coerce")


def _columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(_parquet(path).schema_arrow.names)
    try:
        return list(pd.read_csv(path, nrows=0).columns)
    except (pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not a table: {error}") from error


def _parquet(path: Path):
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    return pq.ParquetFile(path)


def _chunks(path: Path, columns: list[Any], chunk: int, text: list[str]) -> Iterator[pd.DataFrame]:
    """Parts of a table. Columns in `text` are read as they are: 001 is no number, and NA may be sodium."""
    if path.suffix == ".parquet":
        for batch in _parquet(path).iter_batches(chunk, columns=columns):
            yield batch.to_pandas()
    else:
        missing = ["", "NA", "N/A", "NaN", "nan", "null", "None"]
        options: dict[str, Any] = {
            "dtype": dict.fromkeys(text, str),
            "keep_default_na": False,
            "na_values": {c: [""] if c in text else missing for c in columns},
        }
        yield from pd.read_csv(path, usecols=columns, chunksize=chunk, low_memory=False, **options)


class _Reader:
    """Gathers the rows that are kept, and counts the others."""

    def __init__(self, tests: list[str] | None):
        self.tests, self.fixed = list(tests or []), tests is not None
        self.codes: dict[Any, int] = {}  # id -> index
        self.parts: list[tuple[np.ndarray, ...]] = []
        self.clock: str | None = None
        self.day_first: bool | None = None  # of dates as 31/01/2023; None: not known, or not asked
        self.texts: set[str] = set()  # in place of numbers
        self.n_rows = 0
        self.dropped: dict[str, int] = {}
        self.units: dict[str, dict[str, int]] = {}
        self.others: set[str] = set()  # tests that are not wanted

    def drop(self, reason: str, n) -> None:
        if n:
            self.dropped[reason] = self.dropped.get(reason, 0) + int(n)

    def drop_text(self, values: Any) -> None:
        """Values that are no numbers."""
        self.drop("that are empty", values.isna().sum())
        text = values.dropna().astype(str)
        limits = text.str.match(r"\s*[<>≤≥]\s*[\d.]").astype(bool)
        self.drop("beyond a limit of detection (as <3.0)", limits.sum())
        self.drop(_TEXT, (~limits).sum())
        self.texts |= set(text[~limits].unique()[:100])

    def long(self, frame, id, time, test, value) -> None:
        self.n_rows += len(frame)
        named = frame[test].notna()
        self.drop("without a test", (~named).sum())
        frame = frame[named]
        names = frame[test].astype(str)
        if self.fixed:
            wanted = names.isin(self.tests)
            self.others |= set(names[~wanted].unique())
            self.drop("of other tests", (~wanted).sum())
            frame, names = frame[wanted], names[wanted]
        else:
            self.tests += sorted(set(names.unique()) - set(self.tests))
        code = pd.Index(self.tests).get_indexer(pd.Index(names))
        self.add(frame[id], frame[time], code, frame[value])

    def wide(self, frame, id, time, measured) -> None:
        self.n_rows += len(frame)
        if not self.fixed:
            self.tests = [str(t) for t in measured]
        for code, name in enumerate(measured):
            there = frame[name].notna()  # an empty cell is no result
            rows = frame[there]
            self.add(rows[id], rows[time], np.full(len(rows), code), rows[name])

    def mimic(self, frame, names, lower, items) -> None:
        self.n_rows += len(frame)
        frame = frame[frame[names["itemid"]].isin(list(items))]
        admitted = frame[names["hadm_id"]].notna()
        self.drop("without an admission", (~admitted).sum())
        frame = frame[admitted]
        number = _number(frame[names["valuenum"]])
        if "value" in lower:  # text that is a number after all
            number = number.fillna(_number(frame[lower["value"]]))
            self.drop_text(frame[lower["value"]][number.isna()])
            frame, number = frame[number.notna()], number[number.notna()]
        test = frame[names["itemid"]].map(dict(items))
        if "valueuom" in lower:
            counts = frame[lower["valueuom"]].fillna("none").groupby(test).value_counts()
            for (name, unit), n in counts.items():
                of = self.units.setdefault(str(name), {})
                of[str(unit)] = of.get(str(unit), 0) + int(n)
        code = pd.Index(self.tests).get_indexer(pd.Index(test))
        ids = frame[names["hadm_id"]].astype("int64")
        self.add(ids, frame[names["charttime"]], code, number)

    def add(self, ids, times, code, value) -> None:
        if not len(ids):
            return
        if len(self.tests) > 127:
            raise ValueError(
                "there are more than 127 tests: is that the right column? If so, name those to keep in tests"
            )
        code, number = np.asarray(code), np.asarray(_number(value), float)
        known = ids.notna().to_numpy()
        numeric = np.isfinite(number)
        self.drop("without an id", (~known).sum())
        self.drop_text(value[known & ~numeric])
        hours = self.hours(times)
        dated = np.isfinite(hours)
        self.drop("without a time", (known & numeric & ~dated).sum())
        keep = known & numeric & dated
        local, unique = pd.factorize(ids[keep])
        table = np.array(
            [self.codes.setdefault(x, len(self.codes)) for x in unique.tolist()], np.int32
        )
        part = table[local] if len(table) else np.zeros(0, np.int32)
        self.parts.append((part, code[keep].astype(np.int8), hours[keep], number[keep]))

    def hours(self, times: Any) -> Any:
        """Hours on one clock; NaN where there is no time."""
        number = None if pd.api.types.is_datetime64_any_dtype(times) else _number(times)
        given = times.notna()
        if number is not None and number[given].notna().all():
            clock, hours = "hours", number.to_numpy(float)
        else:
            stamp = pd.to_datetime(times, utc=True) if number is None else self.stamps(times)
            bad = given & stamp.isna()
            if bad.any():
                raise ValueError(
                    f"time {times[bad].iloc[0]!r} is neither a timestamp nor a number of hours"
                )
            clock = "timestamps"
            since = (stamp - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(hours=1)
            hours = since.to_numpy(float)
        if given.any():
            if self.clock not in (None, clock):
                raise ValueError("times are timestamps in some rows and numbers in others")
            self.clock = clock
        return hours

    def stamps(self, times: Any) -> Any:
        """Timestamps from text. 05/01/2023 may be in May or in January: other rows tell, or it is an error."""
        stamp = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
        if (times.notna() & stamp.isna()).any():
            fields = times.astype(str).str.extract(_NUMERIC_DATE).dropna().astype(int)
            first, second = (fields[k].max() > 12 for k in (0, 1))
            if len(fields) and (first or second):
                if (first and second) or self.day_first not in (None, first):
                    raise ValueError(
                        "dates have the day first in some rows and the month first in others; write them as 2023-01-31"
                    )
                self.day_first = bool(first)
            if len(fields) and self.day_first is None:
                example = times.loc[fields.index[:1]].iloc[0]
                raise ValueError(
                    f"time {example!r} may have the day first or the month first, and no row tells; write dates as "
                    "2023-01-31"
                )
            stamp = pd.to_datetime(
                times, errors="coerce", utc=True, format="mixed", dayfirst=bool(self.day_first)
            )
        return stamp

    def done(self, name: str, kind: str) -> Labs:
        joined = [np.concatenate(x) for x in zip(*self.parts, strict=True)] if self.parts else []
        if not joined or not len(joined[0]):
            lost = ", ".join(f"{n} {why}" for why, n in self.dropped.items()) or "no rows"
            lost += f" ({_some(self.others)})" if self.others else ""
            raise ValueError(f"nothing is left of {name}: {lost}")
        ids = np.array(list(self.codes), dtype=object)
        log = [
            f"{name}: {self.n_rows} rows read as {kind}, {len(joined[0])} values of {len(ids)} ids kept"
        ]
        examples = {_TEXT: f" ({_some(self.texts, 4)})"}
        log += [
            f"  dropped {n} values {why}{examples.get(why, '')}" for why, n in self.dropped.items()
        ]
        if self.day_first is not None:
            log.append(f"  dates are read with the {'day' if self.day_first else 'month'} first")
        for test, units in self.units.items():
            if len(units) > 1:
                log.append(
                    f"  {test} has units " + ", ".join(f"{u} ({n})" for u, n in units.items())
                )
        missing = [t for k, t in enumerate(self.tests) if not (joined[1] == k).any()]
        if missing and self.fixed:
            has = f"; it has also {_some(self.others)}" if self.others else ""
            raise ValueError(f"{name} has no value of test {missing[0]!r}{has}")
        if missing:  # text only: no channel
            log += [f"  dropped test {t}, which has no number" for t in missing]
            kept = [k for k, t in enumerate(self.tests) if t not in missing]
            joined[1] = np.searchsorted(kept, joined[1]).astype(np.int8)
            self.tests = [self.tests[k] for k in kept]
        return Labs(ids, tuple(self.tests), *joined, log=tuple(log))  # type: ignore[misc]


class Binned(NamedTuple):
    cohort: Cohort  # in the units of the labs
    measured: np.ndarray  # (N, T, d), False where a cell was filled in or is missing
    hours: float  # of a step
    log: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.log)


def bin_labs(
    labs: Labs, *, hours: float = 8.0, min_panels: int = 10, gaps: str = "interpolate"
) -> Binned:
    """Panels on a regular grid, for patients with enough of them.

    Bins of `hours` from each patient's first value, the mean within a bin. A panel is a bin with all tests; a patient
    needs `min_panels` of them. `gaps="interpolate"` fills between the first and the last panel by straight lines,
    as the paper does; `gaps="missing"` leaves them missing, from the first value to the last.
    """
    if not hours > 0:
        raise ValueError(f"hours is {hours}; it must be positive")
    if int(min_panels) != min_panels or min_panels < 1:
        raise ValueError(f"min_panels is {min_panels}; it must be a whole number, at least 1")
    if gaps not in ("interpolate", "missing"):
        raise ValueError(f"gaps is {gaps!r}; it must be 'interpolate' or 'missing'")
    d, P = len(labs.tests), len(labs.ids)
    first = np.full(P, np.inf)
    np.minimum.at(first, labs.patient, labs.hours)
    at = np.floor((labs.hours - first[labs.patient]) / hours + 1e-9).astype(
        np.int64
    )  # 8.2 - 0.2 is 7.999…
    order = np.lexsort((at, labs.patient))
    patient, at = labs.patient[order], at[order]
    test, value = labs.test[order], labs.value[order]
    new = np.ones(len(at), bool)
    new[1:] = (patient[1:] != patient[:-1]) | (at[1:] != at[:-1])
    cell = np.cumsum(new) - 1
    total, count = np.zeros((2, cell[-1] + 1, d))
    np.add.at(total, (cell, test), value)
    np.add.at(count, (cell, test), 1)
    panel = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    of, at = patient[new], at[new]
    full: Any = ~np.isnan(panel).any(1)
    n_full = np.bincount(of, full, minlength=P)
    log = [
        f"bins of {hours:g} hours: {len(value)} values in {len(panel)} bins, {int(full.sum())} of them full panels"
    ]
    enough = n_full >= min_panels
    if not enough.any():
        raise ValueError(
            f"no patient has {min_panels} panels with all of {', '.join(labs.tests)}; the most is {int(n_full.max())}"
        )
    log.append(
        f"{int(enough.sum())} of {P} ids have at least {min_panels} panels; {int((~enough).sum())} are dropped"
    )
    bounds = np.searchsorted(of, np.arange(P + 1))
    sequences, there = [], []
    for p in np.flatnonzero(enough):
        rows = slice(bounds[p], bounds[p + 1])
        x, t, is_full = panel[rows], at[rows], full[rows]
        if gaps == "interpolate":
            t, x = t[is_full], x[is_full]
        grid = np.arange(t[0], t[-1] + 1)
        y = np.full((len(grid), d), np.nan)
        y[t - t[0]] = x
        there.append(np.isfinite(y))
        if gaps == "interpolate":
            y = np.stack([np.interp(grid, t, x[:, j]) for j in range(d)], axis=1)
        sequences.append(y)
    steps = sum(map(len, there))
    seen = int(sum(x.sum() for x in there))
    share = 1 - seen / (steps * d)
    if gaps == "interpolate":
        unused = int((~np.isnan(panel[enough[of]])).sum()) - seen
        log.append(f"{steps} steps in all; {share:.0%} of the cells are filled by straight lines")
        if unused:
            log.append(
                f"  {unused} values of bins without all tests are not used; gaps='missing' would use them"
            )
    else:
        log.append(f"{steps} steps in all; {share:.0%} of the cells are empty, and left missing")
    if share > 0.8:
        log.append(f"  that is most of them: are the times right, and {hours:g} hours enough?")
    ids = labs.ids[enough]
    cohort = Cohort.from_sequences(sequences, ids=ids.tolist(), channels=list(labs.tests))
    measured = np.zeros(cohort.y.shape, bool)
    for n, x in enumerate(there):
        measured[n, : len(x)] = x
    return Binned(cohort, measured, float(hours), (*labs.log, *log))
