"""The paper's evaluation: (ψ, φ) prediction tasks on test patients, their average mean absolute error, and forecasters.

ψ is the last step that is seen, φ the one to predict, 1 ≤ ψ < φ ≤ n. Each patient has 5 distinct pairs; all of it is
repeated 10 times with other pairs. The pairs depend on the key and the lengths only, so all methods face the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import ttest_rel

from ..models import Cohort, LDSParams, kalman_filter

Forecaster = Callable[[Cohort, "Tasks"], np.ndarray]  # -> (M, d), in the cohort's units


class Tasks(NamedTuple):
    """M prediction tasks."""

    patient: np.ndarray  # (M,), index of the sequence
    psi: np.ndarray  # (M,), how many steps are seen
    phi: np.ndarray  # (M,), the step to predict, counted from 1


def make_tasks(cohort: Cohort, seed: int, n_pairs: int = 5) -> Tasks:
    """n_pairs distinct pairs for every patient, fewer where a sequence has fewer; φ is a step with a value."""
    rng = np.random.default_rng(seed)
    patient, psi, phi = [], [], []
    seen: Any = np.asarray(cohort.mask).any(2)
    for n, length in enumerate(np.asarray(cohort.lengths)):
        targets = np.flatnonzero(seen[n, :length]) + 1
        targets = targets[targets >= 2]
        # pair k of all those with φ in targets: φ has φ - 1 possible ψ
        ends = np.cumsum(targets - 1)
        total = int(ends[-1]) if len(ends) else 0
        chosen = rng.choice(total, min(n_pairs, total), replace=False)
        which = np.searchsorted(ends, chosen, side="right")
        start = ends[which] - (targets[which] - 1)
        patient.append(np.full(len(chosen), n))
        psi.append(chosen - start + 1)
        phi.append(targets[which])
    return Tasks(*(np.concatenate(x).astype(int) for x in (patient, psi, phi)))


class Errors(NamedTuple):
    """Absolute errors of a forecaster, in the paper's measure and patient by patient."""

    amae: np.ndarray  # (repetitions,), standardised units
    amae_units: np.ndarray  # (repetitions, d), the channels' own units
    by_patient: np.ndarray  # (N,), mean over all tasks of a patient, standardised units

    @property
    def mean(self) -> float:
        return float(self.amae.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over the repetitions."""
        return float(self.amae.std(ddof=1)) if len(self.amae) > 1 else float("nan")


def evaluate(
    forecaster: Forecaster, test: Cohort, *, seed: int = 0, n_pairs: int = 5, repetitions: int = 10
) -> Errors:
    """AMAE over `repetitions` of the random tasks. `test` is standardised (see `Cohort.standardize_like`)."""
    amae, units, by_patient = [], [], np.zeros((2, len(test)))
    scale = np.asarray(test.labels.scale)
    for r in range(repetitions):
        tasks = make_tasks(test, 1000 * seed + r, n_pairs)
        at = tasks.patient, tasks.phi - 1
        error = np.abs(np.asarray(test.y)[at] - forecaster(test, tasks))
        error = np.where(np.asarray(test.mask)[at], error, np.nan)
        amae.append(np.nanmean(error))
        units.append(np.nanmean(error, axis=0) * scale)
        each = np.nanmean(error, axis=1)
        np.add.at(by_patient[0], tasks.patient, each)
        np.add.at(by_patient[1], tasks.patient, 1)
    return Errors(
        np.array(amae),
        np.array(units),
        np.where(by_patient[1] > 0, by_patient[0] / np.maximum(by_patient[1], 1), np.nan),
    )


def paired_p(one: Errors, other: Errors) -> float:
    """Two-sided p-value of a paired t-test over patients."""
    return float(ttest_rel(one.by_patient, other.by_patient, nan_policy="omit").pvalue)


def lds_forecaster(params: LDSParams) -> Forecaster:
    """ŷ_φ = C A^{φ-ψ} ẑ_{ψ|ψ}."""

    def predict(cohort: Cohort, tasks: Tasks) -> np.ndarray:
        filtered = kalman_filter(LDSParams(*(jnp.asarray(x) for x in params)), cohort)
        m = np.asarray(filtered.predicted_mean)[tasks.patient, tasks.psi]  # E[z_{ψ+1} | y_{1:ψ}]
        A, C = np.asarray(params.A), np.asarray(params.C)
        ahead = tasks.phi - tasks.psi - 1
        return np.einsum("dl,mlk,mk->md", C, _powers(A, ahead), m)

    return predict


def _powers(A: np.ndarray, k: np.ndarray) -> np.ndarray:
    """A^k for every k (M,): (M, l, l)."""
    powers = [np.eye(len(A))]
    for _ in range(int(k.max(initial=0))):
        powers.append(A @ powers[-1])
    return np.stack(powers)[k]


def last_value(cohort: Cohort, tasks: Tasks) -> np.ndarray:
    """Last value carried forward, channel by channel; the mean (0) where there is none yet."""
    N, T, d = cohort.y.shape
    at = np.where(np.asarray(cohort.mask), np.arange(T)[:, None], -1)
    latest = np.maximum.accumulate(at, axis=1)[tasks.patient, tasks.psi - 1]  # (M, d)
    values = np.asarray(cohort.y)[tasks.patient[:, None], np.maximum(latest, 0), np.arange(d)]
    return np.where(latest >= 0, values, 0.0)


def channel_mean(cohort: Cohort, tasks: Tasks) -> np.ndarray:
    """The training patients' mean, which is 0 in standardised units."""
    return np.zeros((len(tasks.psi), cohort.n_channels))


def var1_forecaster(train: Cohort) -> Forecaster:
    """y_t = b + B y_{t-1} by least squares on complete neighbouring steps, from the last value carried forward."""
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
        return np.einsum("mij,mj->mi", _powers(step, ahead), state)[:, 1:]

    return predict
