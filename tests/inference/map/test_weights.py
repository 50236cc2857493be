"""Weights of sequences in a fit: 0 leaves a sequence out, 2 is as if it were there twice."""

import numpy as np
import pytest
from oracles import Shape, random_problem

from sparse_lds.inference import Constraints, fit_map
from sparse_lds.models import Cohort, Laplace

SHAPE = Shape(l=2, d=2, N=8, T=6)  # filled up to 8, as its parts are: one compiled program
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def fits(cohort, start, **options):
    """With everything that a fit may read of its data: a start guessed from it, priors on its scale."""
    yield fit_map(cohort, 2, Laplace(1.0), init=start, max_iter=30, tol=0.0, **options)
    own = Constraints.levels(own=True)
    yield fit_map(
        cohort, 2, Laplace(1.0), constraints=own, priors="weak", max_iter=30, tol=0.0, **options
    )


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.objective, other.objective, rtol=1e-8)
        np.testing.assert_allclose(one.log_likelihood, other.log_likelihood, rtol=1e-8)
        for x, y in zip(one.params, other.params, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@both_routes
def test_a_weight_of_zero_leaves_a_sequence_out(gaps):
    start, cohort = random_problem(1, SHAPE, gaps=gaps, ragged=True, radius=0.7)
    kept = np.arange(8) % 4 > 0
    wanted = list(fits(cohort.take(kept), start))
    assert_same(fits(cohort, start, weights=kept.astype(float)), wanted)
    assert_same(fits(cohort, start, weights=kept), wanted)  # as booleans
    whole = next(fits(cohort, start))
    assert abs(whole.log_likelihood - wanted[0].log_likelihood) > 1
    assert_same([next(fits(cohort, start, weights=np.ones(8)))], [whole])


@both_routes
def test_a_weight_of_two_is_the_sequence_twice(gaps):
    start, cohort = random_problem(2, SHAPE, gaps=gaps, ragged=True, radius=0.7)
    sequences = cohort.sequences()
    weights = np.array([2, 1, 0, 1] * 2)
    copies = [y for y, w in zip(sequences, weights, strict=True) for _ in range(w)]
    options = {"init": start, "max_iter": 30, "tol": 0.0}
    found = fit_map(cohort, 2, Laplace(1.0), weights=weights, **options)
    wanted = fit_map(Cohort.from_sequences(copies), 2, Laplace(1.0), **options)
    assert_same([found], [wanted])


def test_bad_weights_are_named():
    start, cohort = random_problem(3, SHAPE, radius=0.7)
    for bad in (np.ones(7), -np.ones(8), np.zeros(8), np.full(8, np.nan), np.ones((8, 1))):
        with pytest.raises(ValueError, match="(?s)weights is .*give 8 numbers from 0 on"):
            fit_map(cohort, 2, Laplace(1.0), init=start, weights=bad)
