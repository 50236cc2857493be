"""Prediction tasks are distinct, allowed and equally likely."""

import numpy as np
import pandas as pd

from sparse_lds.experiments.tasks import every_task, make_tasks
from sparse_lds.models import Cohort


def test_tasks(small_cohort):
    cohort = small_cohort(gaps=0.3)
    tasks = make_tasks(cohort, 0)
    assert ((1 <= tasks.psi) & (tasks.psi < tasks.phi)).all()
    assert (tasks.phi <= np.asarray(cohort.lengths)[tasks.patient]).all()
    assert cohort.mask[tasks.patient, tasks.phi - 1].any(1).all()
    pairs = set(zip(*tasks, strict=True))
    assert len(pairs) == len(tasks.psi) and (np.bincount(tasks.patient) <= 5).all()
    assert all((a == b).all() for a, b in zip(tasks, make_tasks(cohort, 0), strict=True))
    # every pair of a sequence is as likely as any other: 4 steps have 6 pairs
    four = Cohort.from_sequences([np.zeros((4, 1))])
    seen = [make_tasks(four, s, 1) for s in range(1200)]
    counts = pd.Series([(int(t.psi[0]), int(t.phi[0])) for t in seen]).value_counts()
    assert len(counts) == 6 and counts.min() > 150
    assert len(make_tasks(four, 0, 10).psi) == 6  # no more than there are


def test_every_task_is_every_pair_once(small_cohort):
    """Of a step seen and a later step with a value: those that `make_tasks` can draw, and no others."""
    cohort = small_cohort(N=5, T=7, gaps=0.6)
    wanted = {
        (n, psi, phi)
        for n, y in enumerate(cohort.sequences())
        for psi in range(1, len(y))
        for phi in range(psi + 1, len(y) + 1)
        if not np.isnan(y[phi - 1]).all()
    }
    pairs = list(zip(*(x.tolist() for x in every_task(cohort)), strict=True))
    assert len(pairs) == len(wanted) and set(pairs) == wanted
    drawn = make_tasks(cohort, 0, 1000)
    assert set(zip(*(x.tolist() for x in drawn), strict=True)) == wanted
    assert len(wanted) < sum(n * (n - 1) // 2 for n in np.asarray(cohort.lengths))
    none = every_task(Cohort.from_sequences([np.zeros((1, 2))]))
    assert [len(x) for x in none] == [0, 0, 0]
