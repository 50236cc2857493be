"""Baselines recover the process that they assume."""

import numpy as np

from sparse_lds.experiments.protocol import make_tasks, var1_forecaster
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
