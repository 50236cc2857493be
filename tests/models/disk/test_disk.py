"""Cohorts on disk: what is read is what was written, and their sums are those of the cohort in memory."""

import os
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparse_lds.models import (
    Cohort,
    LDSParams,
    expected_statistics,
    log_likelihood,
    open_cohort,
    write_cohort,
)
from sparse_lds.models.disk import folder, reading, streamed, summary
from sparse_lds.models.disk.ahead import read_ahead
from sparse_lds.models.disk.factors import Stack
from sparse_lds.models.kalman import pieces
from sparse_lds.models.kalman.routes import Route

PARAMS = LDSParams(
    A=np.array([[0.9, 0.1], [0.0, 0.6]]),
    C=np.array([[1.0, 0.2], [-0.4, 1.0], [0.3, 0.5]]),
    Q=0.3 * np.eye(2),
    R=0.4 * np.eye(3),
    pi1=np.array([0.5, -1.0]),
    V1=np.eye(2),
)
T = 7


def made(N=300, gaps=0.0, seed=0, ids=None, shift=4.0) -> Cohort:
    """A ragged cohort, some of whose sequences begin or end with gaps."""
    rng = np.random.default_rng(seed)
    y = shift + rng.normal(size=(N, T, 3)).cumsum(1)
    y[rng.random(y.shape) < gaps] = np.nan
    lengths = rng.choice([2, 5, T], N)
    lengths[0] = T
    if gaps:
        y[1, 0] = np.nan  # a whole step, at the start
        lengths[1] = 5
    return Cohort.from_array(y, lengths=lengths, ids=ids, channels=["a", "b", "c"])


def on_disk(cohort, path, **options):
    write_cohort(cohort, path, sequences=options.pop("sequences", 70))
    return open_cohort(path, **options)


@pytest.mark.parametrize("gaps", [0.0, 0.25])
@pytest.mark.parametrize("rows", [13, 1 << 17])
@pytest.mark.parametrize("text", [False, True])
def test_what_was_written_is_read(tmp_path, monkeypatch, gaps, rows, text):
    monkeypatch.setattr(reading, "_ROWS", rows)
    ids = [f"patient {n % 97} of {n}" for n in range(300)] if text else None
    cohort = made(gaps=gaps, ids=ids)
    found = on_disk(cohort, tmp_path / "cohort")
    sample = found.sample
    assert sample.ids == cohort.ids and sample.channels == cohort.channels
    for name in ("y", "mask", "lengths"):
        np.testing.assert_array_equal(getattr(sample, name), getattr(cohort, name))
    assert found.complete == cohort.complete == (gaps == 0)
    assert len(found) == 300 and found.n_observed == cohort.n_observed
    assert found.n_transitions == (cohort.lengths - 1).sum()
    assert found.n_observed_steps == cohort.mask.any(2).sum()


def always(monkeypatch, route):
    """Have pieces take a route, whatever it costs."""
    monkeypatch.setattr(pieces, "route_cost", lambda other, *_: float(other is not route))


@pytest.mark.parametrize(
    "gaps, route", [(0.0, Route.FILLED), (0.25, Route.FILLED), (0.25, Route.FILTERED)]
)
@pytest.mark.parametrize("standard", [False, True])
def test_sums_are_those_of_the_cohort_in_memory(
    tmp_path, monkeypatch, close, gaps, route, standard
):
    always(monkeypatch, route)
    monkeypatch.setattr(streamed, "_CHUNK", 64)
    cohort = made(gaps=gaps)
    found = on_disk(cohort, tmp_path / "cohort")
    if standard:
        cohort, found = cohort.standardize(), found.standardize()
    params = LDSParams(*(jax.numpy.asarray(x) for x in PARAMS[:6]))
    wanted = expected_statistics(params, cohort)
    data = found.prepared(np.float64, 2)
    got = data.expected_statistics(params)
    for name in wanted._fields[:-1]:
        close(f"disk {name}", getattr(got, name), getattr(wanted, name), 1e-11)
    close("disk log_likelihood alone", data.log_likelihood(params), wanted.log_likelihood, 1e-11)
    if gaps:
        assert bool(data.plan.sizes) == (route is Route.FILLED)
        score = data.score(params)
        wanted = jax.grad(lambda p: log_likelihood(p, cohort).sum())(params)
        for name in wanted._fields[:6]:
            close(f"disk-score {name}", getattr(score, name), getattr(wanted, name), 1e-10)


@pytest.mark.parametrize("gaps", [0.0, 0.25])
def test_buckets_left_out_do_not_count(tmp_path, close, gaps):
    cohort = made(gaps=gaps)
    found = on_disk(cohort, tmp_path / "cohort")
    buckets = found.fold(1, 3)
    kept = ~np.isin(found.sample_buckets, buckets)
    assert 0 < kept.sum() < 300
    part = found.without(buckets)
    assert len(part) == kept.sum() and part.sample.ids == cohort.take(kept).ids
    params = LDSParams(*(jax.numpy.asarray(x) for x in PARAMS[:6]))
    wanted = expected_statistics(params, cohort.take(kept))
    got = part.prepared(np.float64, 2).expected_statistics(params)
    for name in wanted._fields[:-1]:
        close(f"disk-fold {name}", getattr(got, name), getattr(wanted, name), 1e-11)


@pytest.mark.parametrize("kind", ["far from zero", "singular", "growing"])
def test_factors_have_the_second_moments_of_the_rows(close, kind):
    """What a QR keeps and a sum of squares loses: the covariance beside a mean ten thousand times as large."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 12)) for n in (3, 5000, 40, 1, 700, 3000)]
    if kind == "far from zero":
        parts = [1e4 + part for part in parts]
    elif (
        kind == "singular"
    ):  # as of interpolated values, and of a channel that is constant at first
        for i, part in enumerate(parts):
            part[:, 5] = (part[:, 4] + part[:, 6]) / 2
            part[:, 7] = 3.0 if i < 4 else part[:, 7]
    else:  # some columns are far larger in later parts, beside which the others must not be lost
        for part in parts[3:]:
            part[:, :3] *= 1e7
    stack, other = Stack(), Stack()
    for i, part in enumerate(parts):
        into = stack if i < 4 else other
        for some in np.array_split(part, 1 + len(part) // 300):
            into.add(some)
    stack.join(other)
    R = stack.factor()
    rows = np.concatenate(parts)
    assert R.shape == (13, 13) and stack.n == len(rows)
    unit, y = R[:, 0], R[:, 1:]
    close("factor count", unit @ unit, len(rows), 1e-12)
    close("factor mean", unit @ y / len(rows) / rows.std(0), rows.mean(0) / rows.std(0), 1e-9)
    gap, centred = rows - rows.mean(0), y - np.outer(unit, unit @ y) / len(rows)
    sd = np.sqrt((gap**2).sum(0))
    close(
        "factor correlation",
        centred.T @ centred / sd / sd[:, None],
        gap.T @ gap / sd / sd[:, None],
        1e-9,
    )


def test_too_many_factors_are_streamed(tmp_path, monkeypatch, close):
    cohort = made()
    params = LDSParams(*(jax.numpy.asarray(x) for x in PARAMS[:6]))
    wanted = expected_statistics(params, cohort)
    monkeypatch.setattr(summary, "_FACTORS", 1000)
    data = on_disk(cohort, tmp_path / "cohort").prepared(np.float64, 2)
    assert isinstance(data, streamed.Streamed)
    close("disk streamed Szz", data.expected_statistics(params).Szz, wanted.Szz, 1e-11)


def test_one_program_serves_all_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "_CHUNK", 64)
    always(monkeypatch, Route.FILLED)
    found = on_disk(made(gaps=0.3), tmp_path / "cohort")
    shapes = {
        str(jax.tree.map(np.shape, chunk)) for chunk in found.prepared(np.float64, 2).chunks()
    }
    assert len(shapes) == 1


def test_chunks_that_do_not_fit_are_cut(tmp_path, monkeypatch, close):
    """A sample that says nothing of long gaps: chunks that have many of them need more blocks than planned."""
    rng = np.random.default_rng(1)
    y = rng.normal(size=(400, T, 3))
    y[300:, 1:, :2] = np.nan
    y[:300, 1, 0] = np.nan
    cohort = Cohort.from_array(y, channels=["a", "b", "c"])
    monkeypatch.setattr(streamed, "_CHUNK", 128)
    always(monkeypatch, Route.FILLED)
    found = on_disk(cohort, tmp_path / "cohort", sample=8, sequences=400)
    data = found.prepared(np.float64, 2)
    assert data.plan.sizes and sum(1 for _ in data.chunks()) > 4
    params = LDSParams(*(jax.numpy.asarray(x) for x in PARAMS[:6]))
    wanted = expected_statistics(params, cohort)
    close("disk cut Szz", data.expected_statistics(params).Szz, wanted.Szz, 1e-11)


def test_sample_does_not_depend_on_the_order_of_sequences(tmp_path):
    cohort = made()
    order = np.random.default_rng(3).permutation(300)
    one = on_disk(cohort, tmp_path / "one", sample=40).sample
    two = on_disk(cohort.take(order), tmp_path / "two", sample=40).sample
    assert len(one) == 40 and set(one.ids) == set(two.ids)
    assert len({*one.ids} & set(range(100))) not in (0, 40)  # from everywhere


def test_times_are_kept(tmp_path):
    starts = tuple(pd.date_range("2020-01-01", periods=300, freq="D"))
    cohort = made(gaps=0.2)
    step = pd.Timedelta("8h")
    labels = replace(cohort.labels, starts=starts, step=step, time_unit="")
    found = on_disk(replace(cohort, labels=labels), tmp_path / "cohort")
    assert found.sample.labels.step == step
    assert found.sample.labels.starts == starts


def test_steps_without_a_row_are_missing(tmp_path):
    cohort = made(gaps=0.3)
    frame = cohort.to_dataframe(time="step")
    empty = frame[["a", "b", "c"]].isna().all(axis=1)
    last = frame.groupby("id")["step"].transform("max") == frame["step"]
    (tmp_path / "x").mkdir()
    pq.write_table(
        pa.Table.from_pandas(frame[~empty | last], preserve_index=False),
        tmp_path / "x" / "a.parquet",
    )
    found = open_cohort(tmp_path / "x")
    np.testing.assert_array_equal(found.sample.mask, cohort.mask)
    np.testing.assert_array_equal(found.sample.y, cohort.y)


@pytest.mark.parametrize("rows", [17, 1 << 17])
def test_long_tables_are_cohorts_too(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(reading, "_ROWS", rows)
    cohort = made(gaps=0.2)
    frame = cohort.to_dataframe().melt(["id", "time"], var_name="test", value_name="value")
    frame = frame.dropna().sort_values(["id", "time"], kind="stable")
    (tmp_path / "x").mkdir()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "x" / "a.parquet")
    found = open_cohort(tmp_path / "x", channel="test").sample
    wanted = Cohort.from_long(frame, channel="test", channels=["a", "b", "c"])
    assert found.ids == wanted.ids
    np.testing.assert_array_equal(found.y, wanted.y)
    np.testing.assert_array_equal(found.mask, wanted.mask)


def test_channels_rows_and_partitions_are_selected(tmp_path):
    import pyarrow.dataset as ds

    cohort = made()
    for name, rows in (("north", slice(0, 100)), ("south", slice(100, 300))):
        write_cohort(cohort.take(rows), tmp_path / "x" / f"site={name}")
    found = open_cohort(tmp_path / "x", channels=["c", "a"], where=ds.field("site") == "south")
    assert found.sample.channels == ("c", "a") and found.sample.ids == cohort.ids[100:]
    np.testing.assert_array_equal(found.sample.y, cohort.y[100:][..., [2, 0]])


# ---- errors


def test_a_damaged_file_is_named(tmp_path):
    found = on_disk(made(gaps=0.2), tmp_path / "cohort")
    file = sorted((tmp_path / "cohort").iterdir())[2]
    data = found.prepared(np.float64, 2)
    content = bytearray(file.read_bytes())
    content[8 : len(content) // 2] = os.urandom(len(content) // 2 - 8)
    file.write_bytes(content)
    params = LDSParams(*(jax.numpy.asarray(x) for x in PARAMS[:6]))
    with pytest.raises(Exception, match=f"{file.name} cannot be read"):
        data.expected_statistics(params)


def test_scattered_rows_are_an_error(tmp_path):
    cohort = made()
    write_cohort(cohort, tmp_path / "cohort")
    write_cohort(cohort.take(slice(5, 9)), tmp_path / "more")
    os.rename(tmp_path / "more" / "part-00000.parquet", tmp_path / "cohort" / "z.parquet")
    with pytest.raises(ValueError, match="4 ids whose rows do not stand together"):
        len(open_cohort(tmp_path / "cohort"))


def test_steps_out_of_order_are_an_error(tmp_path):
    frame = made().to_dataframe(time="step").iloc[::-1]
    (tmp_path / "x").mkdir()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "x" / "a.parquet")
    with pytest.raises(ValueError, match="a.parquet cannot be read: steps of a sequence"):
        len(open_cohort(tmp_path / "x"))


def test_what_is_no_cohort_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no folder"):
        open_cohort(tmp_path / "nothing")
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match="no Parquet file"):
        open_cohort(tmp_path / "x")
    pq.write_table(pa.table({"who": [1], "what": [2.0]}), tmp_path / "x" / "a.parquet")
    with pytest.raises(ValueError, match="columns who, what; a cohort has id, step"):
        open_cohort(tmp_path / "x")
    found = on_disk(made(), tmp_path / "cohort")
    with pytest.raises(ValueError, match="channels has 'd'; the folder has a, b, c"):
        open_cohort(tmp_path / "cohort", channels=["d"])
    with pytest.raises(FileExistsError, match="not empty"):
        write_cohort(made(), tmp_path / "cohort")
    with pytest.raises(ValueError, match="n_folds is 11"):
        found.fold(0, 11)
    monkeypatch.setattr(folder, "_VERSION", 2)
    with pytest.raises(ValueError, match="version 1; this package reads version 2"):
        open_cohort(tmp_path / "cohort")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"sparse-lds\[parquet\]"):
        open_cohort(tmp_path / "cohort")


def test_reading_ahead_passes_errors_on_and_ends():
    def items():
        yield 1
        raise ValueError("here")

    with pytest.raises(ValueError, match="here"), read_ahead(items()) as found:
        list(found)
    with read_ahead(iter(range(100))) as found:
        assert next(found) == 0  # and is left early
    with read_ahead(iter(range(100))) as found:
        assert list(found) == list(range(100))
