"""Baseline forecasters: the last value, the mean, a vector autoregression, and the local level.

The cohorts are standardised, so that 0 is the mean of the training patients.
"""

import numpy as np

from ..inference import Constraints, fit_em
from ..models import Cohort, LDSParams
from ..models.inputs import INTERCEPT
from .tasks import Forecaster, Tasks, matrix_powers

LEVELS = Constraints.levels(independent=True)


def last_value(cohort: Cohort, tasks: Tasks) -> np.ndarray:
    """Carry the last value forward, channel by channel, or the mean (0) where there is none yet: (M, d)."""
    N, T, d = cohort.y.shape
    at = np.where(np.asarray(cohort.mask), np.arange(T)[:, None], -1)
    latest = np.maximum.accumulate(at, axis=1)[tasks.patient, tasks.psi - 1]  # (M, d)
    values = np.asarray(cohort.y)[tasks.patient[:, None], np.maximum(latest, 0), np.arange(d)]
    return np.where(latest >= 0, values, 0.0)


def channel_mean(cohort: Cohort, tasks: Tasks) -> np.ndarray:
    """Predict the training patients' mean, which is 0 in standardised units: (M, d)."""
    return np.zeros((len(tasks.psi), cohort.n_channels))


def var1_forecaster(train: Cohort) -> Forecaster:
    """Fit y_t = b + B y_{t-1} by least squares, and return the forecaster of the fit.

    Values are carried forward to where y_{t-1} is missing, in the fit as in forecasts. With inputs there is + G u_t.
    """
    if train.u is not None:
        return _var1_with_inputs(train)
    N, T, d = train.y.shape
    every = Tasks(np.repeat(np.arange(N), T - 1), np.tile(np.arange(1, T), N), np.zeros(0, int))
    before = last_value(train, every).reshape(N, T - 1, d)
    X = np.concatenate([np.ones((N, T - 1, 1)), before], axis=2)
    y, seen = np.asarray(train.y)[:, 1:], np.asarray(train.mask)[:, 1:]
    step = np.eye(d + 1)  # (1, y) -> (1, y of the next step)
    for j in range(d):
        at = seen[..., j]
        step[j + 1] = np.linalg.lstsq(X[at], y[..., j][at], rcond=None)[0]

    def predict(cohort: Cohort, tasks: Tasks) -> np.ndarray:
        now = last_value(cohort, tasks)
        state = np.hstack([np.ones((len(now), 1)), now])
        ahead = tasks.phi - tasks.psi
        return np.einsum("mij,mj->mi", matrix_powers(step, ahead), state)[:, 1:]

    return predict


def _var1_with_inputs(train: Cohort) -> Forecaster:
    """Fit y_t = b + B y_{t-1} + G u_t by least squares, and return the forecaster of the fit."""
    N, T, d = train.y.shape
    keep = [j for j, name in enumerate(train.inputs) if name != INTERCEPT]
    every = Tasks(np.repeat(np.arange(N), T - 1), np.tile(np.arange(1, T), N), np.zeros(0, int))
    before = last_value(train, every).reshape(N, T - 1, d)
    u = np.asarray(train.u)[:, 1:, keep]
    X = np.concatenate([np.ones((N, T - 1, 1)), before, u], axis=2)
    y, seen = np.asarray(train.y)[:, 1:], np.asarray(train.mask)[:, 1:]
    step = np.zeros((d, X.shape[2]))  # (1, y, u) -> y of the next step
    for j in range(d):
        at = seen[..., j]
        step[j] = np.linalg.lstsq(X[at], y[..., j][at], rcond=None)[0]

    def predict(cohort: Cohort, tasks: Tasks) -> np.ndarray:
        now, at = last_value(cohort, tasks), np.array(tasks.psi)
        u, one = np.asarray(cohort.u)[..., keep], np.ones((len(now), 1))
        for _ in range(int((tasks.phi - tasks.psi).max(initial=0))):
            of_next = u[tasks.patient, np.minimum(at, u.shape[1] - 1)]  # steps are counted from 1
            later = np.hstack([one, now, of_next]) @ step.T
            now = np.where((at < tasks.phi)[:, None], later, now)
            at = at + 1
        return now

    return predict


def local_level(train: Cohort, weights: np.ndarray | None = None) -> LDSParams:
    """Return the model in which the level of each channel is a random walk, observed with noise: A = C = I.

    `weights` (N,) leave out the sequences that are 0.
    """
    d = train.n_channels
    fit = fit_em(
        train,
        d,
        init=LEVELS.first_guess(train)._replace(A=np.eye(d)),  # type: ignore[union-attr]
        constraints=LEVELS.holding("A"),
        priors="weak",
        weights=weights,
        max_iter=300,
    )
    return fit.params
