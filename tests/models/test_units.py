"""Logarithms of channels: what is stored is the log scale, what comes back is in the user's units."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import lognorm, norm

from sparse_lds.models import Cohort

nan = np.nan
CHANNELS = ("CREA", "NA", "CRP")


def skewed(seed=0, holes=0.2, N=4) -> Cohort:
    """CREA and CRP are positive and skewed over orders of magnitude, NA may be of any sign."""
    rng = np.random.default_rng(seed)
    y = np.stack(
        [rng.lognormal(0, 1, (N, 6)), rng.normal(0, 900, (N, 6)), rng.lognormal(3, 2, (N, 6))], -1
    )
    y[:, 2:][rng.random(y[:, 2:].shape) < holes] = nan
    return Cohort.from_array(y, ids=list("abcdefgh")[:N], channels=CHANNELS)


@settings(max_examples=25)
@given(st.integers(0, 999), st.sets(st.sampled_from(["CREA", "CRP"])), st.sampled_from([0, 0.5]))
def test_logs_are_stored_and_units_come_back(seed, names, holes):
    raw = skewed(seed, holes)
    logged = raw.log(sorted(names, reverse=True))
    assert logged.labels.logged == tuple(c for c in CHANNELS if c in names)
    for j, name in enumerate(CHANNELS):
        for a, b in zip(logged.sequences(), raw.sequences(), strict=True):
            assert_allclose(a[:, j], np.log(b[:, j]) if name in names else b[:, j], rtol=1e-15)
    for cohort in (logged, logged.standardize(), logged.standardize(shift=2, scale=3)):
        assert_array_equal(cohort.mask, raw.mask)
        assert not cohort.y[~cohort.mask].any()
        pd.testing.assert_frame_equal(cohort.to_dataframe(), raw.to_dataframe(), rtol=1e-12)
        assert pickle.loads(pickle.dumps(cohort.labels)) == cohort.labels
        assert cohort.take([2, 0]).labels.logged == cohort.labels.logged
    assert (logged.labels == raw.labels) == (hash(logged.labels) == hash(raw.labels)) == (not names)


def test_mean_and_spread_are_those_of_the_logarithms():
    raw = skewed()
    cohort = raw.log(["CREA"]).standardize()
    for j, transform in enumerate((np.log, np.asarray, np.asarray)):
        x = transform(raw.y[..., j][raw.mask[..., j]])
        assert_allclose([cohort.labels.shift[j], cohort.labels.scale[j]], [x.mean(), x.std()])
        stored = cohort.y[..., j][cohort.mask[..., j]]
        assert_allclose([stored.mean(), stored.std()], [0, 1], atol=1e-12)


def test_the_mean_of_logs_is_the_median_in_units():
    """Quantiles go through: those of a lognormal, by its own formula."""
    raw = Cohort.from_array(np.full((1, 1, 2), 3.0), channels=["CREA", "NA"])
    cohort = raw.log(["CREA"]).standardize(shift=[1.0, 1.0], scale=[0.5, 2.0])
    q = np.array([0.05, 0.5, 0.95])
    z = norm.ppf(q)[:, None] * np.ones(2)
    wanted = np.stack([lognorm.ppf(q, 0.5, scale=np.e), norm.ppf(q, 1.0, 2.0)], -1)
    for xp in (np, jnp):
        assert_allclose(cohort.to_units(xp.asarray(z)), wanted, rtol=1e-12)
        assert cohort.to_units(xp.float32([0, 0])).dtype == "float32"
    assert_allclose(jax.jit(cohort.to_units)(jnp.array([-30.0, nan])), [np.exp(-14), nan])
    far = cohort.to_units(np.array([[0.0, 1e6]]))  # no overflow on the way
    assert_allclose(far, [[np.e, 2e6 + 1]])


def test_standardize_like_follows_the_logarithms_of_the_other():
    """Whatever was done to the cohort before, it ends as the other does."""
    raw = skewed(N=8)
    train, rest = raw.take(range(5)), raw.take(range(5, 8))
    for like in (train, train.log(["CRP"]), train.log(["CREA", "CRP"])):
        like = like.standardize()
        wanted = (raw.log(like.labels.logged) if like.labels.logged else raw).standardize(
            like.labels.shift, like.labels.scale
        )
        for before in (rest, rest.log(["CREA"]), rest.log(["CREA"]).standardize()):
            found = before.standardize_like(like)
            assert found.labels == wanted.take(range(5, 8)).labels
            assert_allclose(found.y, wanted.y[5:], rtol=1e-9, atol=1e-12)


def test_channels_that_stay_keep_what_they_have():
    cohort = skewed().standardize(shift=[0, 5, 0], scale=[1, 2, 1])
    once = cohort.log(["CRP"])
    assert_array_equal(once.y[..., :2], cohort.y[..., :2])
    assert once.labels.shift == (0, 5, 0) and once.labels.scale == (1, 2, 1)
    assert once.standardize().log(["CRP"]).labels == once.standardize().labels  # logged already


raw = skewed()
ERRORS = [
    (lambda: raw.log("CREA"), TypeError, "the string 'CREA'"),
    (lambda: raw.log(["WBC"]), ValueError, "names 'WBC', which is none of CREA, NA, CRP"),
    (lambda: raw.standardize().log(["CREA"]), ValueError, "'CREA' is standardised already; take"),
    (
        lambda: Cohort.from_sequences(
            [[[1.0], [2.0]], [[nan], [0.0]]], ids="ab", channels=["CRP"]
        ).log(),
        ValueError,
        r"sequence 'b', step 1, channel 'CRP' is 0, .* positive value: leave 'CRP' out",
    ),
    (
        lambda: Cohort.from_sequences([[[-2.5], [0.0], [nan]]]).log(),
        ValueError,
        r"'y0' is -2.5 \(so are 1 more values\)",
    ),
    (lambda: raw.log(["CRP"]).to_units_cov(np.eye(3)), ValueError, r"logged channels \(CRP\)"),
    (
        lambda: Cohort.from_sequences([[[8.0], [8.0]]]).log().standardize(),
        ValueError,
        r"constant \(8\.0",
    ),
]


@pytest.mark.parametrize(("build", "error", "message"), ERRORS, ids=[e[2][:30] for e in ERRORS])
def test_errors_say_what_to_do(build, error, message):
    with pytest.raises(error, match=message):
        build()
