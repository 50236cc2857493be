"""Forecasts are the dense Gaussian's; they agree with the filter, and follow the units."""

import jax
import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from oracles import Shape, random_problem
from scipy.linalg import block_diag

from sparse_lds.models import LDSParams, forecast, kalman_filter, kalman_smoother

MORE_CHANNELS = Shape(2, 3, 3, 6)
MORE_STATES = Shape(4, 2, 3, 5)
HORIZON = 3

both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problems(shape, gaps):
    return [random_problem(seed, shape, gaps=gaps, ragged=seed % 2 == 1) for seed in range(12)]


def close_fields(close, result, wanted, rtol=1e-9):
    for name, a, b in zip(result._fields, result, wanted, strict=True):
        close(f"forecast {name}", a, b, rtol)


@both_routes
@pytest.mark.parametrize(
    "shape", [MORE_CHANNELS, MORE_STATES], ids=["more-channels", "more-states"]
)
def test_forecast_conditions_on_the_given_steps_alone(shape, gaps, close):
    rng = np.random.default_rng(0)
    for params, cohort in problems(shape, gaps):
        for given in (
            cohort.lengths,
            np.zeros(shape.N, int),
            np.minimum(cohort.lengths, 2),
            rng.integers(0, cohort.lengths + 1),
        ):
            wanted = oracles.forecast(params, cohort, HORIZON, given)
            close_fields(close, forecast(params, cohort, HORIZON, given), wanted)


def test_forecast_takes_one_number_none_or_a_traced_array_of_steps():
    params, cohort = random_problem(0, MORE_CHANNELS, gaps=True)

    def same(a, b):
        return [assert_array_equal(x, y) for x, y in zip(a, b, strict=True)]

    same(forecast(params, cohort, HORIZON), forecast(params, cohort, HORIZON, cohort.lengths))
    same(forecast(params, cohort, HORIZON, 2), forecast(params, cohort, HORIZON, [2, 2, 2]))
    traced = jax.jit(lambda given: forecast(params, cohort, HORIZON, given))
    for given in ([0, 3, 6], [1, 1, 2]):
        result, wanted = traced(np.array(given)), forecast(params, cohort, HORIZON, given)
        for a, b in zip(result, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_forecast_from_all_data_is_the_filter_past_the_end(close):
    """The padding of short sequences holds forecasts of the states, in filter and smoother alike."""
    for seed in range(12):
        params, cohort = random_problem(seed, MORE_CHANNELS, gaps=True, ragged=True)
        T, C = cohort.n_steps, params.C
        result = forecast(params, cohort, T)
        filtered, smoothed = kalman_filter(params, cohort), kalman_smoother(params, cohort)
        for n, length in enumerate(cohort.lengths):
            ahead = T - length
            for mean, cov in (filtered[:2], smoothed[:2], filtered[2:4]):
                close("past-the-end mean", result.mean[n, :ahead], mean[n, length:T] @ C.T)
                wanted = C @ cov[n, length:T] @ C.T + params.R
                close("past-the-end cov", result.cov[n, :ahead], wanted)


def test_forecast_in_units_is_the_forecast_of_the_raw_data(close):
    """A model of the raw data has the shift as a state that never moves, and the scale in C and R."""
    params, raw = random_problem(3, MORE_CHANNELS, gaps=True, ragged=True)
    scale, shift = np.array([0.1, 3.0, 20.0]), np.array([5.0, -2.0, 100.0])
    cohort = raw.standardize(shift=shift, scale=scale)
    A, C, Q, R, pi1, V1 = params
    in_units = LDSParams(
        A=block_diag(A, 1.0),
        C=np.column_stack([scale[:, None] * C, shift]),
        Q=block_diag(Q, 0.0),
        R=R * np.outer(scale, scale),
        pi1=np.append(pi1, 1.0),
        V1=block_diag(V1, 0.0),
    )
    result = forecast(params, cohort, HORIZON)
    wanted = forecast(in_units, raw, HORIZON)
    close("units mean", cohort.to_units(result.mean), wanted.mean)
    close("units cov", cohort.to_units_cov(result.cov), wanted.cov)
    back = (np.asarray(cohort.to_units(result.mean)) - shift) / scale
    close("units round-trip", back, result.mean, rtol=1e-12)


@pytest.mark.parametrize("horizon", [0, -1, 2.5])
def test_forecast_refuses_a_horizon_that_is_no_positive_whole_number(horizon):
    params, cohort = random_problem(0, MORE_CHANNELS)
    with pytest.raises(ValueError, match=f"horizon is {horizon}"):
        forecast(params, cohort, horizon)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "given is -1 for sequence 0 of length 6"),
        (7, "given is 7 for sequence 0 of length 6"),
        ([6, 7, 6], "given is 7 for sequence 1 of length 6"),
        ([1, 2, 2.5], "given is 2.5 for sequence 2 of length 6"),
    ],
)
def test_forecast_refuses_steps_that_the_sequence_does_not_have(given, message):
    params, cohort = random_problem(0, MORE_CHANNELS)
    with pytest.raises(ValueError, match=message):
        forecast(params, cohort, HORIZON, given)


def test_forecast_refuses_parameters_of_another_size():
    params, cohort = random_problem(0, MORE_CHANNELS)
    with pytest.raises(ValueError, match=r"params\.C has shape"):
        forecast(params._replace(C=params.C[:2]), cohort, HORIZON)
