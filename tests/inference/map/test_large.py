"""Very large data run: what a fit computes with does not grow with the sequences, nor memory beyond the steps."""

import resource

import jax
import numpy as np

from sparse_lds.inference import fit_map
from sparse_lds.models import Cohort, Laplace
from sparse_lds.models.kalman.prepare import prepare


def walks(N, T, d):
    """Random walks, (N, T, d)."""
    return np.random.default_rng(0).normal(size=(N, T, d)).cumsum(1)


def test_the_work_of_a_fit_does_not_grow_with_the_sequences():
    """Arranged once, 50,000 sequences are no more than 2,000; `python benchmarks large` has 200,000, and times."""
    few, many = (Cohort.from_array(walks(N, 20, 5)) for N in (2_000, 50_000))
    fit = fit_map(many, 3, Laplace(10.0), max_iter=2)
    assert np.isfinite(fit.objective).all()
    prepared = [jax.tree.leaves(prepare(cohort, np.float64)) for cohort in (few, many)]
    sizes = [sum(x.size for x in leaves) for leaves in prepared]
    assert sizes[0] == sizes[1] < 101 * 20 * 5 * 2


def test_a_very_long_sequence_runs():
    """Memory is linear in the steps, of which there are 100,000; `python benchmarks large` has a million, and times."""
    cohort = Cohort.from_array(0.01 * walks(1, 100_000, 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fit = fit_map(cohort, 2, Laplace(10.0), accelerate=False, max_iter=2)
    assert np.isfinite(fit.objective).all()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in kB
    assert grown < 1.5e6
