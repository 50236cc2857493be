"""Very large data run: what a fit computes with does not grow with the sequences, and a long one needs no minutes."""

import resource
import time

import numpy as np

from sparse_lds.inference import fit_map
from sparse_lds.models import Cohort, Laplace
from sparse_lds.models.kalman.prepare import prepare


def walks(N, T, d):
    """Random walks, (N, T, d)."""
    return np.random.default_rng(0).normal(size=(N, T, d)).cumsum(1)


def test_the_work_of_a_fit_does_not_grow_with_the_sequences():
    """Arranged once, 50,000 sequences are no more than 2,000, in seconds; `python benchmarks large` has 200,000."""
    few, many = (Cohort.from_array(walks(N, 20, 5)) for N in (2_000, 50_000))
    fit_map(few, 3, Laplace(10.0), max_iter=2)  # compiles
    began = time.process_time()
    fit = fit_map(many, 3, Laplace(10.0), max_iter=2)
    assert time.process_time() - began < 20  # under 2 where it was measured; minutes if it grew
    assert np.isfinite(fit.objective).all()
    sizes = [sum(x.size for x in prepare(cohort, np.float64)) for cohort in (few, many)]  # type: ignore[attr-defined]
    assert sizes[0] == sizes[1] < 101 * 20 * 5 * 2


def test_a_very_long_sequence_runs():
    """Memory and time are linear in the steps: 100,000 in seconds; `python benchmarks large` has a million."""
    cohort = Cohort.from_array(0.01 * walks(1, 100_000, 2))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    fit = fit_map(cohort, 2, Laplace(10.0), accelerate=False, max_iter=2)
    assert np.isfinite(fit.objective).all() and time.process_time() - began < 60
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in kB
    assert grown < 1.5e6
