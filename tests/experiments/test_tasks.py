"""Prediction tasks are distinct, allowed and equally likely."""

import numpy as np
import pandas as pd

from sparse_lds.experiments.protocol import make_tasks
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
