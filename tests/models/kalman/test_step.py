"""One step of the filter: against dense conditioning, and the fast kernels against it."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import Shape, random_problem

from sparse_lds.models import Gaussian, kalman_filter, log_likelihood, predict, update

SHAPE = Shape(l=3, d=2, N=5, T=6)


def step_by_step(params, y):
    """Filtered means and covariances, and the log-likelihood, of one sequence (T, d) with NaN for missing."""
    state, total, means, covs = Gaussian(params.pi1, params.V1), 0.0, [], []
    for y_t in y:
        state, gained = update(state, y_t, params.C, params.R)
        means.append(state.mean)
        covs.append(state.cov)
        state, total = predict(state, params.A, params.Q), total + gained
    return np.array(means), np.array(covs), float(total)


@pytest.mark.parametrize("gaps", [False, True])
def test_steps_agree_with_dense_conditioning_and_with_the_kernels(gaps, close):
    for seed in range(3):
        params, cohort = random_problem(seed, SHAPE, gaps=gaps, ragged=True)
        wanted, filtered = oracles.log_likelihood(params, cohort), kalman_filter(params, cohort)
        close("step log-likelihood", log_likelihood(params, cohort), wanted)
        for n, y in enumerate(cohort.sequences()):
            mean, cov, total = step_by_step(params, y)
            close("step log-likelihood", total, wanted[n])
            close("step mean", mean, filtered.mean[n, : len(y)])
            close("step cov", cov, filtered.cov[n, : len(y)])


def test_a_step_jits_and_vmaps_and_a_mask_says_what_nan_says(close):
    params, cohort = random_problem(4, SHAPE, gaps=True, ragged=False)
    y = np.where(cohort.mask[:, 0], cohort.y[:, 0], np.nan)
    state = Gaussian(jnp.asarray(params.pi1), jnp.asarray(params.V1))

    @jax.jit
    def both(y, seen):
        by_nan = jax.vmap(lambda y: update(state, y, params.C, params.R))(y)
        filled = jnp.where(seen, y, 7.0)
        by_mask = jax.vmap(lambda y, o: update(state, y, params.C, params.R, o))(filled, seen)
        return by_nan, by_mask

    for a, b in zip(*map(jax.tree.leaves, both(y, cohort.mask[:, 0])), strict=True):
        close("step mask", a, b)


def test_nothing_observed_changes_nothing():
    state, gained = update(Gaussian(np.ones(2), np.eye(2)), [np.nan], np.ones((1, 2)), np.eye(1))
    np.testing.assert_array_equal(state.mean, np.ones(2))
    np.testing.assert_array_equal(state.cov, np.eye(2))
    assert gained == 0


def test_steps_scan_in_32_bits():
    params, cohort = random_problem(5, SHAPE, gaps=False, ragged=False)
    A, C, Q, R, pi1, V1 = (jnp.asarray(x, jnp.float32) for x in params)

    def step(state, y):
        state, gained = update(state, y, C, R)
        return predict(state, A, Q), gained

    _, gained = jax.lax.scan(step, Gaussian(pi1, V1), jnp.asarray(cohort.y[0], jnp.float32))
    np.testing.assert_allclose(gained.sum(), oracles.log_likelihood(params, cohort)[0], rtol=1e-4)
