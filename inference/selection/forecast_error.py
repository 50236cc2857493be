"""The error of forecasts, exactly: averaged over every pair (ψ, φ) of a last step seen and a later step forecast.

The paper draws five such pairs at random for each patient; this is what their average tends to, without the noise.
"""

import numpy as np

from ...models import Cohort, LDSParams, kalman_filter
from ...models.kalman.input_means import deviations


def forecast_errors(params: LDSParams, cohort: Cohort) -> np.ndarray:
    """Return the mean absolute error of the forecasts C A^{φ-ψ} ẑ_{ψ|ψ} of each sequence, 1 ≤ ψ < φ ≤ T_n, (N,).

    In the units that the cohort stores; NaN for a sequence with no value after its first step. Inputs of the steps
    that are forecast are known: the errors are those of y - ȳ, which has none (see models/kalman/input_means.py).
    """
    params, cohort = deviations(params, cohort)
    predicted = np.asarray(kalman_filter(params, cohort).predicted_mean)
    A, C = np.asarray(params.A), np.asarray(params.C)
    return errors_of_states(predicted, A, C, np.asarray(cohort.y), np.asarray(cohort.mask))


def errors_of_states(
    predicted: np.ndarray, A: np.ndarray, C: np.ndarray, y: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """Return the errors, (N,), of forecasts from predicted states (N, T + 1, l): E[z_{t+1} | y_{1:t}] at each t.

    y and mask are (N, T, d): the values, and which of them were observed.
    """
    T = y.shape[1]
    total, count = np.zeros(len(y)), np.zeros(len(y))
    z = predicted[:, 1:T]
    for ahead in range(1, T):  # z is E[z_{ψ+ahead} | y_{1:ψ}], ψ = 1 .. T - ahead
        gap = np.abs(z @ C.T - y[:, ahead:])
        seen = mask[:, ahead:]
        total += np.where(seen, gap, 0.0).sum((1, 2))
        count += seen.sum((1, 2))
        z = z[:, :-1] @ A.T
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
