"""Curvature carried from fit to fit: what it is among other free coordinates, and what it saves."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import Constraints, fit_map, regularization_path
from sparse_lds.inference.map.accelerate.curvature import Curvature, learned
from sparse_lds.models import Laplace, LDSParams, simulate


def test_what_no_longer_moves_is_conditioned_on(close):
    """The inverse Hessian of some coordinates is the inverse of their own part of the Hessian."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 20))
    M = X @ X.T
    before = np.array([1, 1, 0, 1, 1, 1, 1], bool)
    found = learned(np.linalg.inv(M[np.ix_(before, before)]), before)
    assert found is not None
    now = np.array([1, 0, 1, 1, 0, 1, 1], bool)
    both = before & now
    wanted = np.eye(7)
    wanted[np.ix_(both, both)] = np.linalg.inv(M[np.ix_(both, both)])
    close("curvature among", found.among(now), wanted[np.ix_(now, now)])


def test_what_is_of_no_use_is_refused():
    free = np.ones(3, bool)
    assert Curvature(np.diag([1.0, -1.0, 1.0]), free).among(free) is None
    assert Curvature(np.eye(3), free).among(np.ones(4, bool)) is None
    assert learned(None, free) is None


@pytest.mark.parametrize("own", [False, True])
def test_a_warm_path_takes_half_of_the_steps_and_ends_as_cold_fits_do(own):
    A, I = np.array([[0.9, 0.0, 0.1], [0.2, 0.7, 0.0], [0.0, 0.0, 0.5]]), np.eye(3)
    truth = LDSParams(A, I, 0.1 * I, 0.1 * I, np.zeros(3), I)
    cohort = simulate(jax.random.key(0), truth, [25] * 30).cohort.standardize()
    asked = {"constraints": Constraints.levels(own=own, independent=True), "priors": "weak"}
    prior = Laplace.towards_persistence(1.0)
    path = regularization_path(cohort, 3, prior, n_betas=12, **asked)
    cold = [fit_map(cohort, 3, prior.scaled(float(beta)), **asked) for beta in path.betas]
    gaps = [a.objective[-1] - b.objective[-1] for a, b in zip(path.fits, cold, strict=True)]
    assert min(gaps) > -1e-5
    steps = [sum(fit.n_iter for fit in fits[:-1]) for fits in (path.fits, cold)]
    assert steps[0] < 0.5 * steps[1]


@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 8])
def test_a_path_may_be_cut_short_at_any_step(max_iter):
    """Steps that end at a bound and at the limit at once end the fit, not the path."""
    rng = np.random.default_rng(0)
    A, I = 0.9 * np.eye(3) + 0.05 * rng.normal(size=(3, 3)), np.eye(3)
    truth = LDSParams(A, I, 0.1 * I, 0.1 * I, np.zeros(3), I)
    cohort = simulate(jax.random.key(1), truth, [12] * 10).cohort.standardize()
    constraints = Constraints.levels(own=True)
    asked = {"constraints": constraints, "priors": "weak", "max_iter": max_iter}
    betas = np.geomspace(0.3, 300, 8)
    path = regularization_path(cohort, 3, Laplace.off_diagonal(1.0), betas=betas, **asked)
    assert len(path.fits) == 8 and max(fit.n_iter for fit in path.fits) <= max_iter + 1
