"""The paper's evaluation of forecasters: average mean absolute error (AMAE) on prediction tasks of test patients.

Each patient has 5 distinct tasks (ψ, φ), see `tasks`; the evaluation is repeated 10 times with other tasks.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import ttest_rel

from ..models import Cohort, LDSParams, kalman_filter
from ..models.kalman.input_means import deviations, input_means
from .baselines import channel_mean, last_value, var1_forecaster
from .tasks import Forecaster, Tasks, every_task, make_tasks, matrix_powers

__all__ = [
    "Errors",
    "Forecaster",
    "Tasks",
    "channel_mean",
    "evaluate",
    "exact_errors",
    "last_value",
    "lds_forecaster",
    "make_tasks",
    "paired_p",
    "var1_forecaster",
]


class Errors(NamedTuple):
    """Absolute errors of a forecaster, in the paper's measure and patient by patient."""

    amae: np.ndarray  # (repetitions,), standardised units
    amae_units: np.ndarray  # (repetitions, d), the channels' own units
    by_patient: np.ndarray  # (N,), mean over all tasks of a patient, standardised units

    @property
    def mean(self) -> float:
        """The mean of the AMAE over the repetitions."""
        return float(self.amae.mean())

    @property
    def spread(self) -> float:
        """The standard deviation of the AMAE over the repetitions; NaN if there is one only."""
        return float(self.amae.std(ddof=1)) if len(self.amae) > 1 else float("nan")


def evaluate(
    forecaster: Forecaster, test: Cohort, *, seed: int = 0, n_pairs: int = 5, repetitions: int = 10
) -> Errors:
    """Evaluate `forecaster` on random tasks of the patients in `test`, `repetitions` times (eq. 5).

    `test` is standardised (see `Cohort.standardize_like`). Channels without a value at step φ do not count.
    """
    amae, units, by_patient = [], [], np.zeros((2, len(test)))
    for r in range(repetitions):
        tasks = make_tasks(test, 1000 * seed + r, n_pairs)
        at = tasks.patient, tasks.phi - 1
        wanted = np.where(np.asarray(test.mask)[at], np.asarray(test.y)[at], np.nan)
        found = forecaster(test, tasks)
        error = np.abs(wanted - found)
        amae.append(np.nanmean(error))
        gap = np.abs(np.asarray(test.to_units(wanted)) - np.asarray(test.to_units(found)))
        units.append(np.nanmean(gap, axis=0))
        each = np.nanmean(error, axis=1)
        np.add.at(by_patient[0], tasks.patient, each)
        np.add.at(by_patient[1], tasks.patient, 1)
    return Errors(
        np.array(amae),
        np.array(units),
        np.where(by_patient[1] > 0, by_patient[0] / np.maximum(by_patient[1], 1), np.nan),
    )


def exact_errors(forecaster: Forecaster, cohort: Cohort) -> np.ndarray:
    """Return the mean absolute error over *every* pair (ψ, φ) and channel of each sequence, (N,).

    What the error of random tasks tends to. Of an LDS it is `inference.forecast_errors`, which is faster.
    """
    tasks = every_task(cohort)
    at = tasks.patient, tasks.phi - 1
    seen = np.asarray(cohort.mask)[at]
    gap = np.abs(np.asarray(cohort.y)[at] - forecaster(cohort, tasks))
    error = np.where(seen, gap, 0.0)
    total, count = (np.bincount(tasks.patient, x.sum(1), len(cohort)) for x in (error, seen))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def paired_p(one: Errors, other: Errors) -> float:
    """Return the two-sided p-value of a paired t-test over patients."""
    return float(ttest_rel(one.by_patient, other.by_patient, nan_policy="omit").pvalue)


def lds_forecaster(params: LDSParams) -> Forecaster:
    """Return the forecaster ŷ_φ = C A^{φ-ψ} ẑ_{ψ|ψ} of a linear dynamical system."""

    def predict(cohort: Cohort, tasks: Tasks) -> np.ndarray:
        # of y less what inputs add to it, which follows the same model without them
        plain, rest = deviations(LDSParams(*(jnp.asarray(x) for x in params)), cohort)
        filtered = kalman_filter(plain, rest)
        m = np.asarray(filtered.predicted_mean)[tasks.patient, tasks.psi]  # E[z_{ψ+1} | y_{1:ψ}]
        A, C = np.asarray(params.A), np.asarray(params.C)
        ahead = tasks.phi - tasks.psi - 1
        found = np.einsum("dl,mlk,mk->md", C, matrix_powers(A, ahead), m)
        return found if cohort.u is None else found + _of_inputs(params, cohort, tasks)

    return predict


def _of_inputs(params: LDSParams, cohort: Cohort, tasks: Tasks) -> np.ndarray:
    """Return what inputs add to y at step φ of each task, (M, d)."""
    u = jnp.moveaxis(jnp.asarray(cohort.u), 0, -1)
    _, mean = input_means(LDSParams(*(jnp.asarray(x) for x in params)), u)  # (T, d, N)
    return np.asarray(mean)[tasks.phi - 1, :, tasks.patient]
