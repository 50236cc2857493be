"""Levels of the sequences' own: the model is the core model plus one draw of u for all steps of a sequence."""

import jax
import numpy as np
import oracles
import pytest
from oracles import Shape, covariance, random_problem
from scipy.stats import multivariate_normal

from sparse_lds.models import (
    LDSParams,
    check_params,
    expected_statistics,
    forecast,
    kalman_filter,
    kalman_smoother,
    leading_states,
    log_likelihood,
    simulate,
    variance_parts,
    with_own_levels,
)

SHAPE = Shape(l=2, d=2, N=5, T=5)
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problem(seed, gaps):
    """A core model, mean and covariance of the levels, the whole model, and a cohort."""
    core, cohort = random_problem(seed, SHAPE, gaps=gaps, ragged=True, radius=0.8)
    rng = np.random.default_rng([seed, 7])
    mean, cov = rng.normal(size=2), covariance(rng, 2)
    return core, mean, cov, with_own_levels(core, mean, cov), cohort


def moments(core, mean, cov, T):
    """Mean and covariance of (y_1, …, y_T), (T d): those of the core model, plus u at every step."""
    m, S = oracles.joint(core, T)
    y = slice(T * len(core.A), None)
    return m[y] + np.tile(mean, T), S[y, y] + np.kron(np.ones((T, T)), cov)


@both_routes
@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_is_that_of_the_core_plus_a_level(seed, gaps, close):
    core, mean, cov, params, cohort = problem(seed, gaps)
    wanted = []
    for y in cohort.sequences():
        m, S = moments(core, mean, cov, len(y))
        seen = ~np.isnan(y.ravel())
        wanted.append(0.0)
        if seen.any():
            given = multivariate_normal(m[seen], S[np.ix_(seen, seen)])
            wanted[-1] = given.logpdf(y.ravel()[seen])
    close("own_levels likelihood", log_likelihood(params, cohort), np.array(wanted))


@both_routes
def test_filter_smoother_forecast_and_statistics_take_a_singular_Q(gaps, close):
    for seed in range(2):
        _, _, _, params, cohort = problem(seed, gaps)
        f, s = kalman_filter(params, cohort), kalman_smoother(params, cohort)
        names = ("mean", "cov", "predicted_mean", "predicted_cov")
        for name, wanted in zip(names, oracles.filtered(params, cohort), strict=True):
            close("own_levels filter", getattr(f, name), wanted)
        for found, wanted in zip(s[:2], oracles.smoothed(params, cohort)[:2], strict=True):
            close("own_levels smoother", found, wanted)
        given = np.asarray(cohort.lengths) // 2
        ahead = forecast(params, cohort, 3, given)
        for found, wanted in zip(ahead, oracles.forecast(params, cohort, 3, given), strict=True):
            close("own_levels forecast", found, wanted)
        sums = expected_statistics(params, cohort), oracles.statistics(params, cohort)
        for found, wanted in zip(*map(jax.tree.leaves, sums), strict=True):
            close("own_levels statistics", found, wanted)


def test_a_level_of_its_own_never_changes():
    """In the smoother's states and in simulated ones, whose moments are those of the model."""
    core, mean, cov, params, cohort = problem(0, True)
    level = np.asarray(kalman_smoother(params, cohort).mean)[..., 2:]
    np.testing.assert_allclose(level, level[:, :1].repeat(level.shape[1], 1), atol=1e-9)
    drawn = simulate(jax.random.key(0), params, [5] * 4000)
    states = np.asarray(drawn.states)[..., 2:]
    np.testing.assert_allclose(states, states[:, :1].repeat(5, 1), atol=1e-12)
    y = np.asarray(drawn.cohort.y).reshape(4000, -1)
    m, S = moments(core, mean, cov, 5)
    sd = np.sqrt(np.diagonal(S))
    assert (np.abs(y.mean(0) - m) < 4.5 * sd / np.sqrt(4000)).all()
    error = np.sqrt((np.outer(sd, sd) ** 2 + S**2) / 4000)  # of a sample covariance
    assert (np.abs(np.cov(y.T) - S) < 4.5 * error).all()


def test_leading_states_are_the_core():
    core, _, _, params, _ = problem(1, False)
    for found, wanted in zip(leading_states(params, 2), core, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_variances_by_source_add_up_to_that_of_the_data():
    """Each by the dense covariance, averaged over the steps that sequences have."""
    for seed in range(3):
        core, _, cov, params, cohort = problem(seed, True)
        parts, lengths = variance_parts(params, 2, cohort), np.asarray(cohort.lengths)
        S = oracles.joint(core, SHAPE.T)[1][SHAPE.T * 2 :, SHAPE.T * 2 :]
        at = np.diagonal(S).reshape(SHAPE.T, 2) - np.diagonal(core.R)  # of C x_t
        every = np.concatenate([at[:n] for n in lengths])
        np.testing.assert_allclose(parts.within, every.mean(0), rtol=1e-9)
        np.testing.assert_allclose(parts.between, np.diagonal(cov), rtol=1e-12)
        np.testing.assert_allclose(parts.error, np.diagonal(core.R), rtol=1e-12)
        # without own levels there is nothing between
        none = variance_parts(core, 2, cohort)
        np.testing.assert_allclose(none.within, parts.within, rtol=1e-12)
        assert (none.between == 0).all()


def test_states_without_noise_are_legal_and_other_singular_covariances_are_not():
    core, _, _, params, _ = problem(0, False)
    for good in (params, core._replace(Q=np.zeros((2, 2))), core._replace(Q=np.diag([0.0, 2.0]))):
        np.testing.assert_array_equal(check_params(good).Q, good.Q)
    for name, S in (
        ("Q", np.array([[1.0, 2.0], [2.0, 1.0]])),  # a negative eigenvalue
        ("Q", np.array([[0.0, 0.1], [0.1, 1.0]])),  # no noise, and yet a covariance
        ("Q", np.ones((2, 2))),  # rank 1, though no row is 0
        ("Q", np.diag([-1.0, 1.0])),
        ("R", np.diag([0.0, 1.0])),
        ("V1", np.diag([0.0, 1.0])),
    ):
        with pytest.raises(ValueError, match=f"params.{name} is not positive definite"):
            check_params(LDSParams(**{**core._asdict(), name: S}))
