"""Cohorts: what goes in comes out again, and what cannot go in is named."""

import copy
import datetime
import pickle
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sparse_lds.models.cohort import Cohort

nan = np.nan
by_property = settings(derandomize=True, deadline=None, max_examples=50)


@st.composite
def ragged(draw):
    """Sequences of one width with gaps, some of them wholly missing."""
    d, lengths = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    holes = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return [np.where(rng.random((T, d)) < holes, nan, rng.normal(5, 9, (T, d))) for T in lengths]


def small() -> Cohort:
    a, b = [[1.0, 10.0], [2.0, nan], [4.0, 40.0]], [[8.0, 80.0]]
    return Cohort.from_sequences([a, b], ids=["a", "b"], channels=["MCH", "MCV"])


def assert_equal(a: Cohort, b: Cohort, exact=True):
    assert a.ids == b.ids and a.channels == b.channels and a.complete == b.complete
    assert_array_equal(a.lengths, b.lengths)
    assert_array_equal(a.mask, b.mask)
    assert_allclose(a.y, b.y, rtol=0 if exact else 1e-12, atol=0 if exact else 1e-12)


def test_layout():
    cohort = small()
    assert_array_equal(cohort.y, [[[1, 10], [2, 0], [4, 40]], [[8, 80], [0, 0], [0, 0]]])
    assert_array_equal(cohort.mask.sum(axis=(1, 2)), [5, 2])
    assert (cohort.y.dtype, cohort.mask.dtype, cohort.lengths.dtype) == (float, bool, np.int32)
    assert (cohort.n_sequences, len(cohort), cohort.n_steps, cohort.n_channels) == (2, 2, 3, 2)
    assert cohort.n_observed == 7 and not cohort.complete
    assert Cohort.from_sequences([np.ones((3, 2)), np.ones((1, 2))]).complete  # ragged, no gap
    with pytest.raises(ValueError, match="read-only"):
        cohort.y[0, 0, 0] = 3


@by_property
@given(ragged())
def test_sequences_round_trip(sequences):
    cohort = Cohort.from_sequences(sequences)
    for x, y in zip(cohort.sequences(), sequences, strict=True):
        assert_array_equal(x, y)
    assert cohort.complete == (not any(np.isnan(x).any() for x in sequences))
    assert not cohort.y[~cohort.mask].any()
    padded = np.full(cohort.y.shape, np.inf)  # beyond the lengths anything may stand
    for n, x in enumerate(sequences):
        padded[n, : len(x)] = x
    assert_equal(Cohort.from_array(padded, lengths=cohort.lengths), cohort)


@by_property
@given(ragged(), st.sampled_from(["int", "float", "date", "zoned"]))
def test_data_frames_round_trip(sequences, kind):
    cohort = Cohort.from_sequences(sequences, ids=list("ebcad")[: len(sequences)])
    step = {"int": 3, "float": 0.1}.get(kind, pd.Timedelta("8h"))
    start = pd.Timestamp("2110-03-29", tz="Europe/Berlin" if kind == "zoned" else None)
    frame = cohort.to_dataframe()
    frame["time"] = {"int": 7, "float": -0.3}.get(kind, start) + frame["time"] * step
    wide = Cohort.from_wide(frame, step=step)
    assert_equal(wide, cohort)
    pd.testing.assert_frame_equal(wide.to_dataframe(), frame, check_dtype=False)
    assert Cohort.from_wide(wide.to_dataframe(), step=wide.labels.step).labels == wide.labels
    long = frame.melt(["id", "time"], var_name="test", value_name="result")[::-1]
    names = {"channel": "test", "value": "result", "channels": cohort.channels}
    back = Cohort.from_long(long, step=step, **names)  # rows, and so sequences, in reverse
    assert_equal(back.take(slice(None, None, -1)), cohort)


def test_steps_without_a_row_are_missing_and_order_is_that_of_appearance():
    rows = [("p", 5, "K", 4.0), ("p", 2, "Na", 140), ("q", 9, "K", 5.0), ("p", 2, "K", 3.0)]
    frame = pd.DataFrame(rows, columns=["id", "time", "channel", "value"])
    cohort = Cohort.from_long(frame)
    assert (cohort.ids, cohort.channels, cohort.labels.starts) == (("p", "q"), ("K", "Na"), (2, 9))
    assert_array_equal(cohort.sequence(0), [[3, 140], [nan, nan], [nan, nan], [4, nan]])
    assert_array_equal(cohort.sequence(1), [[5, nan]])
    assert cohort.take([1]).to_dataframe().iloc[0, :3].tolist() == ["q", 9, 5.0]
    sodium = Cohort.from_long(frame, channels=["Na"])
    assert (sodium.ids, sodium.channels) == (("p",), ("Na",))
    coded = Cohort.from_long(frame.assign(channel=[51, 52, 51, 51]), channels=[52, 51])
    assert coded.channels == ("52", "51")
    assert Cohort.from_wide(frame[:3], channels=["value"]).channels == ("value",)


@pytest.mark.parametrize("step", ["8h", datetime.timedelta(hours=8), np.timedelta64(8, "h")])
def test_durations_of_every_kind(step):
    times = pd.to_datetime(["2020-01-01 03:00", "2020-01-01 19:00"])
    for column in (times, times - times[0], list(times.to_pydatetime())):
        frame = pd.DataFrame({"id": 1, "time": pd.Series(column, dtype=object), "x": [1, 2]})
        assert_array_equal(Cohort.from_wide(frame, step=step).sequence(0), [[1], [nan], [2]])


def test_numbers_of_every_kind():
    masked = np.ma.MaskedArray([[1, 2], [3, 99]], mask=[[0, 0], [0, 1]])
    nullable = pd.DataFrame({"u": [1, 3], "v": pd.array([2, None], dtype="Int64")})
    mixed = [[True, Decimal(2)], [np.float32(3), pd.NA]]
    for x in (masked, nullable, mixed, [[1, 2], [3, None]], jnp.array([[1, 2], [3, nan]])):
        assert_array_equal(Cohort.from_sequences([x]).sequence(0), [[1, 2], [3, nan]])
    wide = nullable.assign(id="p", time=[0, 1], w=[True, False])
    assert_array_equal(Cohort.from_wide(wide).sequence(0), [[1, 2, 1], [3, nan, 0]])


@by_property
@given(ragged(), st.data())
def test_take_is_the_cohort_of_those_sequences(sequences, data):
    cohort = Cohort.from_sequences(sequences)
    chosen = data.draw(st.permutations(range(len(cohort))))[: data.draw(st.integers(1, 5))]
    expected = Cohort.from_sequences([sequences[i] for i in chosen], ids=chosen)
    assert_equal(cohort.take(chosen), expected)
    keep = np.isin(range(len(cohort)), chosen)
    assert_equal(cohort.take(keep), cohort.take(sorted(chosen)))
    assert_equal(cohort.take(slice(0, 1)), cohort.take(0))


@by_property
@given(ragged())
def test_standardize_and_back(sequences):
    sequences = [*sequences, np.arange(2.0)[:, None] + np.zeros(sequences[0].shape[1])]
    cohort = Cohort.from_sequences(sequences)
    once = cohort.standardize()
    for j in range(cohort.n_channels):
        observed = once.y[..., j][once.mask[..., j]]
        assert_allclose([observed.mean(), observed.std()], [0, 1], atol=1e-12)
    assert not once.y[~once.mask].any()
    pd.testing.assert_frame_equal(once.to_dataframe(), cohort.to_dataframe(), atol=1e-11)
    assert_allclose(once.to_dataframe(units=False).iloc[0, 2:], once.sequence(0)[0])
    assert_equal(once.standardize(), once, exact=False)  # units are the user's: not once more
    assert_equal(once.standardize(shift=3, scale=2), cohort.standardize(3, 2), exact=False)
    assert_equal(cohort.take([0]).standardize_like(once), once.take([0]))


def test_units_of_means_and_covariances():
    cohort = small().standardize(shift=[1, -2], scale=[3, 0.5])
    D = np.diag([3.0, 0.5])
    cov = np.array([[2.0, 1.0], [1.0, 4.0]])
    for xp in (np, jnp):
        assert_allclose(cohort.to_units(xp.ones((7, 6, 2))), np.tile([4.0, -1.5], (7, 6, 1)))
        assert_allclose(cohort.to_units_cov(xp.stack([cov, cov])), np.stack([D @ cov @ D] * 2))
        assert cohort.to_units(xp.float32([0, 0])).dtype == "float32"
    assert_array_equal(jax.jit(cohort.to_units)(jnp.array([1, 2])), [4, -1])  # integers, too
    with pytest.raises(ValueError, match=r"shape \(3,\).*'MCH', 'MCV'"):
        cohort.to_units(np.ones(3))


def test_a_jit_argument_is_compiled_once_for_equal_labels():
    traces = []

    @jax.jit
    def total(cohort):
        traces.append(repr(cohort))
        assert isinstance(cohort.complete, bool)
        return cohort, cohort.y.sum() / cohort.n_observed

    cohort = small()
    other = Cohort.from_sequences(
        [2 * x for x in cohort.sequences()], ids=cohort.ids, channels=cohort.channels
    )
    back, mean = total(cohort)
    assert_allclose([mean, total(other)[1]], [145 / 7, 290 / 7])
    assert_equal(back, cohort)
    assert repr(back) == repr(cohort) and len(total(copy.deepcopy(cohort))) == 2
    assert traces == ["Cohort(2 sequences, 2 channels, no values)"]
    total(cohort.standardize())
    assert len(traces) == 2
    assert_allclose(jax.jit(lambda s: s * cohort.y.sum())(2.0), 290)  # closed over


def test_repr():
    assert repr(small()) == "Cohort(2 sequences, 2 channels, lengths 1–3, 12.5% of cells missing)"
    assert repr(small().take([1])) == "Cohort(1 sequence, 2 channels, length 1, no cell missing)"
    assert "no values" in repr(jax.tree.map(lambda _: None, small()))


def test_labels_compare_by_value_and_hash_once():
    class Counted(str):
        hashed = 0

        def __hash__(self):
            Counted.hashed += 1
            return super().__hash__()

    labels = Cohort.from_array(np.zeros((3, 1, 1)), ids=map(Counted, "abc")).labels
    Counted.hashed = 0
    assert hash(labels) == hash(labels) and Counted.hashed == 3
    assert labels == small().labels.__class__(("a", "b", "c"), ("y0",), (0.0,), (1.0,))
    first, again = small().labels, small().labels
    assert first == again and hash(first) == hash(again) and first is not again
    assert first != small().standardize().labels and first != "labels"
    minus = [Y(np.zeros((1, 1, 1)), ids=[i]).labels for i in (-1, -2)]
    assert hash(minus[0]) == hash(minus[1]) and minus[0] != minus[1]  # Python: hash(-1) is -2
    revived = pickle.loads(pickle.dumps(first))
    assert "_hash" not in vars(revived) and revived == first  # a hash is of its process


def wide(**columns):
    return pd.DataFrame({"id": ["p", "p", "q"], "time": [0, 1, 0], "K": [4.0, 5.0, 6.0]} | columns)


def long(**columns):
    return wide(channel="K", value=1.0).drop(columns="K").assign(**columns)


def dates(*hours):
    return pd.Timestamp("2020") + pd.to_timedelta(hours, unit="h")


S, W, L, Y = Cohort.from_sequences, Cohort.from_wide, Cohort.from_long, Cohort.from_array
x = np.ones((2, 2))
ERRORS = [
    (lambda: S([]), ValueError, "at least one sequence"),
    (lambda: S([x, x[:0]], ids="ab"), ValueError, "'b' has length 0"),
    (lambda: S([x, x[:, :1]], ids="ab"), ValueError, "'b' has 1 channels, the first has 2"),
    (lambda: S([x, x[0]], ids="ab"), ValueError, r"'b' is \(2,\).*reshape\(-1, 1\)"),
    (lambda: S([x, [[1, 2], [3]]], ids="ab"), ValueError, "'b' is not an array"),
    (lambda: S([x[:, :0]]), ValueError, "0 channels"),
    (
        lambda: S([x, [[1, 2], [1, np.inf]]], ids="ab"),
        ValueError,
        "'b', step 1, channel 'y1' is inf",
    ),
    (lambda: S([x, [[1, "2"]]], ids="ab"), TypeError, "'b', step 0, channel 'y1' is '2'"),
    (lambda: S([x * 1j]), TypeError, r"sequence 0, step 0, channel 'y0' is 1j"),
    (lambda: S([x.astype("m8[ns]")]), TypeError, r"sequence 0, step 0, channel 'y0'"),
    (lambda: S([x, x], ids=["a", "a"]), ValueError, "ids holds 'a' 2 times"),
    (lambda: S([x, x], ids=["a"]), ValueError, "ids has 1 entries for 2 sequences"),
    (lambda: S([x], channels=["K", "K"]), ValueError, "channels holds 'K' 2 times"),
    (lambda: S([x], channels=["K"]), ValueError, "channels has 1 names, and the data has 2"),
    (lambda: S([x], channels="KN"), TypeError, "string 'KN'"),
    (lambda: Y(x), ValueError, r"y has shape \(2, 2\)"),
    (lambda: Y([x, x], lengths=[1, 3], ids="ab"), ValueError, "'b' has length 3, not 1 to 2"),
    (lambda: Y([x, x], lengths=[1, 0], ids="ab"), ValueError, "'b' has length 0"),
    (lambda: Y([x, x], lengths=[1]), ValueError, "give 2 integers"),
    (lambda: Y([x, x], lengths=[1.0, 2.0]), ValueError, "give 2 integers"),
    (lambda: Y([x * -np.inf], ids="a"), ValueError, "'a', step 0, channel 'y0' is -inf"),
    (lambda: W({"id": [1]}), TypeError, "frame is a dict"),
    (lambda: W(wide(), id="patient"), ValueError, "no column 'patient'.*'K'"),
    (lambda: W(wide()[:0]), ValueError, "no rows"),
    (lambda: W(wide()[["id", "time"]]), ValueError, "no column for a channel"),
    (lambda: W(wide(sex=["m", "m", "f"])), TypeError, "'p', time 0, channel 'sex' is 'm'"),
    (lambda: W(wide(K=[1, np.inf, 1])), ValueError, "'p', step 1, channel 'K' is inf"),
    (lambda: W(wide(time=[3, 3, 0])), ValueError, "'p', time 3, channel 'K' is there twice"),
    (lambda: L(long(time=[3, 3, 0])), ValueError, "'p', time 3, channel 'K' is there twice"),
    (lambda: W(wide(), channels=["K", "K"]), ValueError, "'K' 2 times"),
    (lambda: W(wide(no=[1, None, 2]), id="no", channels="K"), ValueError, "column 'no' .* row 1"),
    (lambda: W(wide(time=[0, nan, 0]), step=1), ValueError, "'p', time nan: column 'time'"),
    (lambda: L(long(channel=["K", "K", None])), ValueError, "column 'channel' .* row 2"),
    (lambda: L(long(value=["1", "2", "3"])), TypeError, "'p', time 0, channel 'K' is '1'"),
    (lambda: L(long(), channels=["Na"]), ValueError, r"channels=\['Na'\] .*\['K'\]"),
    (lambda: W(wide(time=[0.0, 1.0, 0.0])), ValueError, "dtype float64: give step="),
    (lambda: W(wide(time=dates(0, 8, 0))), ValueError, "dtype datetime64.*: give step="),
    (lambda: W(wide(time=dates(0, 8, 0)), step=8), TypeError, "step is 8: .*'8h' with dates"),
    (lambda: W(wide(), step="8h"), TypeError, "step is '8h'"),
    (lambda: W(wide(time=["0", "1", "0"]), step=1), TypeError, "column 'time' has dtype .*to_date"),
    (lambda: W(wide(), step=0), ValueError, "step is 0; it must be positive"),
    (lambda: W(wide(time=dates(0, 8, 0)), step="-8h"), ValueError, "must be positive"),
    (lambda: W(wide(), step=nan), ValueError, "step is nan"),
    (lambda: W(wide(time=[0, 5, 0]), step=2), ValueError, "'p', time 5 is 2.5 steps.*bin"),
    (lambda: W(wide(time=dates(0, 9, 0)), step="8h"), ValueError, "'p', time 2020-01-01 09:00:00"),
    (lambda: W(wide(time=[0, np.inf, 0]), step=1.0), ValueError, "'p', time inf"),
    (lambda: W(wide(time=[0, 10**9, 0])), ValueError, r"'p', time 1000000000 is step.*larger"),
    (lambda: small().take([]), ValueError, "at least one sequence"),
    (lambda: small().take([0, 0]), ValueError, "'a' 2 times"),
    (lambda: small().take([2]), IndexError, "out of bounds"),
    (lambda: small().take([True]), IndexError, "boolean"),
    (lambda: S([x * nan]).standardize(), ValueError, "'y0' has no observed cell"),
    (lambda: S([x * [[1], [2]] * [1, 0]]).standardize(), ValueError, r"'y1' is constant \(0.0\)"),
    (lambda: small().standardize(scale=[1, 0]), ValueError, r"scale is \(1.0, 0.0\)"),
    (lambda: small().standardize(shift=[1, 2, 3]), ValueError, r"shift is \[1, 2, 3\]"),
    (lambda: small().standardize_like(S([x])), ValueError, "'MCH'.*'y0'"),
    (lambda: S([x], channels=["time", "b"]).to_dataframe(), ValueError, "named 'id' or 'time'"),
]


@pytest.mark.parametrize(("build", "error", "message"), ERRORS, ids=[e[2][:40] for e in ERRORS])
def test_errors_name_the_culprit(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_odd_but_valid():
    constant = S([np.ones((2, 1)), np.full((3, 1), nan)])  # and a sequence nobody measured
    assert constant.n_observed == 2 and constant.n_steps == 3
    assert_array_equal(constant.standardize(shift=1, scale=2).sequence(0), [[0], [0]])
    assert Y(np.full((1, 4, 2), nan)).lengths == [4]  # missing at the end is missing, not absent
