"""Simulated cohorts have the exact moments of the model."""

import jax
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_params
from scipy.linalg import block_diag

from sparse_lds.models import LDSParams, simulate

N, T = 20_000, 4


def z_scores(x, mean, cov):
    """z-scores of the sample mean and of the sample covariance (upper triangle) of Gaussian rows x."""
    residual = x - mean
    sd = np.sqrt(np.diagonal(cov))
    first = residual.mean(0) / (sd / np.sqrt(len(x)))
    # residuals about the true mean: Var[r_i r_j] = S_ii S_jj + S_ij²
    spread = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / len(x))
    second = (residual.T @ residual / len(x) - cov) / spread
    return np.concatenate([first, second[np.triu_indices(len(cov))]])


def stacked(simulation):
    """Rows (z_1, …, z_T, y_1, …, y_T), as in `oracles.joint`."""
    z, y = np.asarray(simulation.states), np.asarray(simulation.cohort.y)
    return np.hstack([z.reshape(len(z), -1), y.reshape(len(y), -1)])


@pytest.mark.parametrize(("l", "d"), [(2, 3), (3, 1)])
def test_moments_are_those_of_the_joint_gaussian(l, d):
    params = random_params(np.random.default_rng(l), l, d, radius=1.0)
    x = stacked(simulate(jax.random.key(0), params, np.full(N, T)))
    mean, cov = oracles.joint(params, T)
    score = z_scores(x, mean, cov)
    # with some 200 comparisons, one key in two thousand would pass 4.8
    assert np.abs(score).max() < 4.8
    assert 0.5 < score.std() < 1.5


def test_noises_are_independent_along_one_sequence():
    """With A = 0 the steps of one long sequence are independent, and so are state and noise in each."""
    params = random_params(np.random.default_rng(0), 2, 2)._replace(A=np.zeros((2, 2)))
    result = simulate(jax.random.key(0), params, [N])
    z, y = np.asarray(result.states)[0, 1:], result.cohort.y[0, 1:]
    x = np.hstack([z[:-1], z[1:], (y - z @ params.C.T)[1:]])
    score = z_scores(x, np.zeros(6), block_diag(params.Q, params.Q, params.R))
    assert np.abs(score).max() < 4.4


def test_singular_covariances_are_allowed():
    """A companion form: noise enters by one state; the first state is known; no emission noise."""
    params = LDSParams(
        A=np.array([[0.5, 0.3], [1.0, 0.0]]),
        C=np.array([[1.0, 0.0], [2.0, 0.0]]),
        Q=np.diag([1.0, 0.0]),
        R=np.zeros((2, 2)),
        pi1=np.array([1.0, -1.0]),
        V1=np.zeros((2, 2)),
    )
    result = simulate(jax.random.key(1), params, np.full(N, T))
    z, y = np.asarray(result.states), result.cohort.y
    assert_array_equal(z[:, 0], np.broadcast_to(params.pi1, (N, 2)))
    assert_allclose(z[:, 1:, 1], z[:, :-1, 0], rtol=0, atol=1e-12)
    assert_allclose(y, z @ params.C.T, rtol=0, atol=1e-12)
    moving = np.asarray(z)[:, 1:, 0]
    mean, cov = oracles.joint(params, T)
    at = 2 * np.arange(1, T)
    assert np.abs(z_scores(moving, mean[at], cov[np.ix_(at, at)])).max() < 4.2


def test_lengths_are_those_asked_for_and_states_go_on():
    params = random_params(np.random.default_rng(0), 2, 3)
    result = simulate(jax.random.key(0), params, [3, 1, 5], channels=["a", "b", "c"])
    cohort = result.cohort
    assert_array_equal(cohort.lengths, [3, 1, 5])
    assert cohort.complete
    assert cohort.channels == ("a", "b", "c")
    assert result.states.shape == (3, 5, 2)
    assert np.isfinite(result.states).all()
    assert_array_equal(cohort.mask[:, :, 0], np.arange(5) < np.array([[3], [1], [5]]))


def test_same_key_gives_the_same_cohort_and_another_key_another():
    params = random_params(np.random.default_rng(0), 2, 3)
    a, b, c = (simulate(jax.random.key(k), params, [3, 1, 5]) for k in (7, 7, 8))
    assert_array_equal(a.cohort.y, b.cohort.y)
    assert_array_equal(a.states, b.states)
    assert not np.isclose(a.cohort.y, c.cohort.y)[a.cohort.mask].any()
    # sequences of one cohort differ, too
    assert not np.isclose(a.cohort.y[0, 0], a.cohort.y[1, 0]).any()


def test_precision_is_that_of_the_parameters():
    params = random_params(np.random.default_rng(0), 2, 3)
    single = LDSParams(*(np.asarray(x, np.float32) for x in params))
    assert simulate(jax.random.key(0), single, [2]).states.dtype == np.float32
    assert simulate(jax.random.key(0), params, [2]).states.dtype == np.float64


@pytest.mark.parametrize("lengths", [[], [0], [3, -1], [2.5], ["a"]], ids=str)
def test_lengths_that_are_no_positive_whole_numbers_are_refused(lengths):
    params = random_params(np.random.default_rng(0), 2, 3)
    with pytest.raises(ValueError, match="lengths is"):
        simulate(jax.random.key(0), params, lengths)
