"""Errors of forecasters, against one forecast at a time."""

import numpy as np
import pytest

from sparse_lds.experiments.protocol import (
    channel_mean,
    evaluate,
    last_value,
    lds_forecaster,
    make_tasks,
    paired_p,
)
from sparse_lds.models import Cohort, LDSParams, forecast


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_errors_by_a_slow_road(small_cohort, gaps):
    """One task at a time, by `forecast` of the cut sequence, and the baselines by hand."""
    cohort = small_cohort(N=5, gaps=gaps)
    params = LDSParams(
        np.array([[0.9, 0.1], [0.0, 0.7]]),
        np.eye(2),
        0.3 * np.eye(2),
        0.2 * np.eye(2),
        np.zeros(2),
        np.eye(2),
    )
    tasks = make_tasks(cohort, 1000 * 3 + 0)
    found = {
        "lds": lds_forecaster(params)(cohort, tasks),
        "last": last_value(cohort, tasks),
        "mean": channel_mean(cohort, tasks),
    }
    whole, errors = [], []
    for k, (n, psi, phi) in enumerate(zip(*tasks, strict=True)):
        y = cohort.sequence(n)
        cut = Cohort.from_sequences([y[:psi]], channels=cohort.channels)
        wanted = forecast(params, cut, int(phi - psi)).mean[0, -1]
        np.testing.assert_allclose(found["lds"][k], wanted, rtol=1e-8, atol=1e-10)
        for j in range(2):
            past = y[:psi, j][~np.isnan(y[:psi, j])]
            assert found["last"][k, j] == (past[-1] if len(past) else 0.0)
        whole.append(np.abs(y[phi - 1] - np.asarray(wanted)))
    assert (found["mean"] == 0).all()
    errors = evaluate(lds_forecaster(params), cohort, seed=3, repetitions=2)
    assert errors.amae[0] == pytest.approx(np.nanmean(whole), rel=1e-9)
    np.testing.assert_allclose(
        errors.amae_units[0], np.nanmean(whole, axis=0) * np.asarray(cohort.labels.scale), rtol=1e-9
    )
    assert errors.by_patient.shape == (5,)
    assert (
        paired_p(
            errors, errors._replace(by_patient=errors.by_patient + [0.1, 0.12, 0.09, 0.1, 0.11])
        )
        < 0.01
    )


def test_errors_in_units_are_differences_in_units(small_cohort):
    """Channel by channel, with logarithms or not: of the values that a user would write down."""
    cohort = small_cohort(N=5, gaps=0.2)
    positive = Cohort.from_sequences([np.exp(x) for x in cohort.sequences()])
    for logs in ([], ["y1"]):
        test = positive.log(logs).standardize()
        tasks = make_tasks(test, 0)
        stored = last_value(test, tasks)
        gaps = []
        for k, (n, _, phi) in enumerate(zip(*tasks, strict=True)):
            x = stored[k] * test.labels.scale + test.labels.shift
            x = [np.exp(v) if name in logs else v for name, v in zip(test.channels, x, strict=True)]
            gaps.append(np.abs(positive.sequence(n)[phi - 1] - x))
        errors = evaluate(last_value, test, repetitions=1)
        np.testing.assert_allclose(errors.amae_units[0], np.nanmean(gaps, axis=0), rtol=1e-9)
