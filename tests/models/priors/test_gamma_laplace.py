"""The Laplace prior with β integrated out: a fit of it, and draws of β and A."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import Constraints, fit_map, regularization_path
from sparse_lds.models import GammaLaplace, Laplace, LDSParams, Prior, log_likelihood, simulate

A = np.array([[0.8, 0.0, 0.0], [0.3, 0.6, 0.0], [0.0, 0.0, 0.5]])
TRUTH = LDSParams(A, np.eye(3), 0.2 * np.eye(3), 0.2 * np.eye(3), np.zeros(3), np.eye(3))


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(0), TRUTH, [12] * 20).cohort


@pytest.mark.parametrize(
    "prior",
    [GammaLaplace(), GammaLaplace(2.0, 0.5, Laplace.towards_persistence(1.0))],
    ids=["to 0", "to I"],
)
def test_a_fit_is_a_local_mode_of_the_density(cohort, prior):
    fit = fit_map(cohort, 3, prior, constraints=Constraints.levels(), priors="weak", tol=1e-6)
    assert fit.converged and (np.diff(fit.objective) > -1e-8).all()
    assert fit.zeros.any() and not fit.zeros.all()
    here, M = np.asarray(fit.params.A, float), prior.center_of(3)

    def density(X):
        held = fit.params._replace(A=X)
        return float(log_likelihood(held, cohort).sum() + prior.log_prob(X))

    top = density(here)
    for at in np.ndindex(3, 3):
        for step in (1e-3, -1e-3):
            other = here.copy()
            other[at] += step
            assert density(other) <= top + 1e-7
    beta = float(prior.mean_beta(here))
    a, b, n = prior.shape, prior.rate, 9
    assert beta == pytest.approx((a + n) / (b + np.abs(here - M).sum()))


def test_the_majorant_touches_and_is_nowhere_below():
    prior, rng = GammaLaplace(2.0, 0.3), np.random.default_rng(0)
    here = rng.normal(size=(3, 3))
    over = prior.majorant(here)
    shift = float(prior.value(here) - over.value(here))
    for size in (0.01, 0.3, 3.0):
        for _ in range(20):
            X = here + size * rng.normal(size=(3, 3))
            assert float(prior.value(X)) <= float(over.value(X)) + shift + 1e-9


def test_draws_are_those_of_the_hierarchy():
    prior = GammaLaplace(3.0, 2.0)
    draws = np.asarray(prior.sample(jax.random.key(0), 2, (40_000,)))
    # of one entry: P(|A_ij| < x) = 1 - (b / (b + x))^a
    for x in (0.2, 1.0, 3.0):
        assert (np.abs(draws) < x).mean() == pytest.approx(1 - (2 / (2 + x)) ** 3, abs=0.01)
    near = (np.abs(draws) < 0.02).mean() / 0.04
    assert near == pytest.approx(prior.density_at_center(2)[0, 0], rel=0.1)
    assert prior.density_at_center(2)[0, 0] == pytest.approx(3 / (2 * 2))


def test_like_keeps_all_but_the_scale():
    beta = np.array([[0.0, 4.0], [np.inf, 9.0]])
    prior = GammaLaplace.like(Laplace(beta))
    np.testing.assert_allclose(prior.base.beta, beta / 6)
    assert GammaLaplace.like(Laplace.off_diagonal(7.0)).base.diagonal == "free"
    assert GammaLaplace.like(prior) is prior
    assert Prior.from_dict(prior.to_dict()).to_dict() == prior.to_dict()
    with pytest.raises(TypeError, match="learns β"):
        regularization_path(simulate(jax.random.key(0), TRUTH, [5] * 3).cohort, 3, GammaLaplace())
    with pytest.raises(ValueError, match="rate is 0"):
        GammaLaplace(1.0, 0)
