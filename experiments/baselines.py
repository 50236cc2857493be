"""Baseline forecasters without states: the last value, the mean, and a vector autoregression.

The cohorts are standardised, so that 0 is the mean of the training patients.
"""

from typing import Any

import numpy as np

from ..models import Cohort
from .tasks import Forecaster, Tasks, matrix_powers


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

    The fit takes pairs of neighbouring steps that are complete. The forecast starts from the last value carried
    forward.
    """
    y = np.asarray(train.y)
    mask: Any = np.asarray(train.mask).all(2)
    pairs = mask[:, 1:] & mask[:, :-1]
    before, after = y[:, :-1][pairs], y[:, 1:][pairs]
    X = np.hstack([np.ones((len(before), 1)), before])
    beta = np.linalg.lstsq(X, after, rcond=None)[0]  # (1 + d, d)
    step = np.eye(len(beta))  # (1, y) -> (1, y of the next step)
    step[1:, 1:], step[1:, 0] = beta[1:].T, beta[0]

    def predict(cohort: Cohort, tasks: Tasks) -> np.ndarray:
        now = last_value(cohort, tasks)
        state = np.hstack([np.ones((len(now), 1)), now])
        ahead = tasks.phi - tasks.psi
        return np.einsum("mij,mj->mi", matrix_powers(step, ahead), state)[:, 1:]

    return predict
