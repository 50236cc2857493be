"""Baselines recover the process that they assume."""

import numpy as np

from sparse_lds.experiments.baselines import last_value, local_level, var1_forecaster
from sparse_lds.experiments.protocol import exact_errors
from sparse_lds.experiments.tasks import Tasks, every_task, make_tasks
from sparse_lds.inference import forecast_errors
from sparse_lds.models import Cohort


def test_var1_recovers_a_var1():
    rng = np.random.default_rng(0)
    B, b = np.array([[0.8, 0.1], [-0.2, 0.6]]), np.array([0.3, -0.1])
    y = np.zeros((200, 20, 2))
    for t in range(1, 20):
        y[:, t] = b + y[:, t - 1] @ B.T + 0.01 * rng.normal(size=(200, 2))
    cohort = Cohort.from_array(y)
    tasks = make_tasks(cohort, 0)
    wanted = y[tasks.patient, tasks.psi - 1]
    for k, h in enumerate(tasks.phi - tasks.psi):
        for _ in range(h):
            wanted[k] = b + B @ wanted[k]
    np.testing.assert_allclose(var1_forecaster(cohort)(cohort, tasks), wanted, atol=0.01)


def test_var1_with_gaps_carries_values_forward_and_skips_what_is_missing(small_cohort):
    """Least squares on the observed values alone, from the last value of each channel."""
    cohort = small_cohort(N=30, gaps=0.3)
    rows = []
    for y in cohort.sequences():
        last = np.zeros(2)
        for t in range(1, len(y)):
            last = np.where(np.isnan(y[t - 1]), last, y[t - 1])
            rows.append([*last, *y[t]])
    X = np.hstack([np.ones((len(rows), 1)), np.array(rows)[:, :2]])
    Y = np.array(rows)[:, 2:]
    step = []
    for j in range(2):
        seen = ~np.isnan(Y[:, j])
        step.append(np.linalg.solve(X[seen].T @ X[seen], X[seen].T @ Y[seen, j]))
    assert np.isnan(Y).any()
    tasks = every_task(cohort)
    wanted = last_value(cohort, tasks)
    for k, h in enumerate(tasks.phi - tasks.psi):
        for _ in range(h):
            wanted[k] = np.array(step) @ [1.0, *wanted[k]]
    np.testing.assert_allclose(var1_forecaster(cohort)(cohort, tasks), wanted, atol=1e-9)


def test_the_last_value_is_that_of_each_channel():
    y = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 5.0], [np.nan, 6.0]])
    cohort = Cohort.from_sequences([y])
    tasks = Tasks(np.zeros(4, int), np.arange(1, 5), np.arange(2, 6))
    np.testing.assert_array_equal(
        last_value(cohort, tasks), [[1.0, 0.0], [1.0, 0.0], [3.0, 5.0], [3.0, 6.0]]
    )


def test_a_local_level_is_a_smoothed_last_value():
    """A = C = I is kept; noise of the walk and of what is seen are told apart; weights leave patients out."""
    rng = np.random.default_rng(1)
    level = np.cumsum(rng.normal(size=(80, 15, 2)) * [0.5, 0.1], axis=1)
    y = level + rng.normal(size=level.shape) * [0.2, 0.8]
    y[rng.random(y.shape) < 0.2] = np.nan
    odd = 100 * rng.normal(size=(4, 15, 2))
    cohort = Cohort.from_array(np.concatenate([y, odd]))
    weights = np.arange(84) < 80
    params = local_level(cohort, weights)
    for name in ("A", "C"):
        np.testing.assert_array_equal(getattr(params, name), np.eye(2))
    for S, sd in ((params.Q, [0.5, 0.1]), (params.R, [0.2, 0.8])):
        np.testing.assert_array_equal(S, np.diag(np.diagonal(S)))
        np.testing.assert_allclose(np.sqrt(np.diagonal(S)), sd, rtol=0.35)
    alone = local_level(Cohort.from_array(y))
    np.testing.assert_allclose(params.R, alone.R, rtol=1e-3)
    few = Cohort.from_array(y)
    error = np.nanmean(forecast_errors(params, few))
    assert error < np.nanmean(exact_errors(last_value, few))
