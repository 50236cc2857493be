"""A prior with a centre: what it pulls A to is what its exact zeros are counted from, everywhere."""

import jax
import numpy as np
import pytest

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import (
    Constraints,
    beta_max,
    compare_map_posterior,
    fit_map,
    regularization_path,
    relaxed_fit,
    sample_posterior,
)
from sparse_lds.models import GroupLaplace, Laplace, LDSParams, log_likelihood, simulate

TRUTH = LDSParams(
    np.array([[1.0, 0.0], [0.3, 0.6]]),
    np.eye(2),
    0.2 * np.eye(2),
    0.1 * np.eye(2),
    np.zeros(2),
    np.eye(2),
)
LEVELS = Constraints.levels()


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(0), TRUTH, [20] * 20).cohort


def slope(fit, cohort):
    at = jax.grad(lambda A: log_likelihood(fit.params._replace(A=A), cohort).sum())
    return np.asarray(at(fit.params.A))


def test_a_fit_is_optimal_by_subgradients_about_its_centre(cohort):
    beta = 25.0
    for prior in (
        Laplace.towards_persistence(beta),
        Laplace.off_diagonal(beta),
        Laplace(beta, center=TRUTH.A),
    ):
        fit = fit_map(cohort, 2, prior, constraints=LEVELS, tol=1e-6)
        A, g, M = np.asarray(fit.params.A), slope(fit, cohort), prior.center_of(2)
        assert fit.converged
        weight = beta * prior.penalised(2)
        away = ~fit.zeros
        np.testing.assert_allclose(g[away], (weight * np.sign(A - M))[away], atol=0.02 * beta)
        assert (np.abs(g[~away]) <= weight[~away] * (1 + 1e-6)).all()
    assert fit.zeros.any()  # the truth as centre


def test_under_a_large_penalty_towards_persistence_a_fit_is_a_local_level_model(cohort):
    """A = I exactly, and all else as where A is held there."""
    path = regularization_path(
        cohort, 2, Laplace.towards_persistence(1.0), n_betas=3, constraints=LEVELS
    )
    strong = fit_map(
        cohort, 2, Laplace.towards_persistence(1.01 * path.betas[0]), constraints=LEVELS
    )
    np.testing.assert_array_equal(strong.params.A, np.eye(2))
    nonzero = path.table()["nonzero"].tolist()
    assert nonzero[0] <= 1 and nonzero[-1] > 1  # at the largest β one may just leave the centre
    start = strong.params._replace(Q=0.1 * np.eye(2), R=0.1 * np.eye(2))
    held = fit_map(cohort, 2, Laplace(1.0), init=start, constraints=LEVELS.holding("A"))
    np.testing.assert_allclose(strong.log_likelihood, held.log_likelihood, atol=1e-4)


def test_beta_max_needs_the_second_moment_where_the_centre_is_not_zero():
    Q, S10, S00 = np.eye(2), np.array([[5.0, 1.0], [0.0, 3.0]]), np.array([[4.0, 0.5], [0.5, 2.0]])
    assert (
        float(beta_max(Q, S10, Laplace.towards_persistence(2.0), S00)) == 1 / 2
    )  # |S10 - S00| <= 1
    assert float(beta_max(Q, S10, Laplace.off_diagonal(2.0))) == 1 / 2
    assert float(beta_max(Q, S10, GroupLaplace.off_diagonal(0.5, "rows"))) == 2
    with pytest.raises(ValueError, match="give S00"):
        beta_max(Q, S10, Laplace.towards_persistence(2.0))


def test_relaxed_fits_posteriors_comparisons_and_files_follow_the_centre(cohort, tmp_path):
    fit = fit_map(cohort, 2, Laplace.towards_persistence(60.0), constraints=LEVELS)
    assert fit.zeros.any() and not fit.zeros.all()
    assert "at the prior's centre" in str(fit) and "towards I" in str(fit)
    relaxed = relaxed_fit(cohort, fit)
    np.testing.assert_array_equal(np.asarray(relaxed.params.A)[fit.zeros], np.eye(2)[fit.zeros])
    assert relaxed.log_likelihood >= fit.log_likelihood
    options = {"num_warmup": 100, "num_samples": 150, "num_chains": 2, "num_predictive": 10}
    draws = sample_posterior(jax.random.key(1), cohort, relaxed, **options)["posterior"]["A"].values
    assert (draws[..., fit.zeros] == np.eye(2)[fit.zeros]).all()
    assert (draws.std((0, 1))[~fit.zeros] > 0).all()
    posterior = sample_posterior(jax.random.key(2), cohort, fit, **options)
    table = compare_map_posterior(fit, posterior, truth=TRUTH.A).table
    np.testing.assert_array_equal(table["map_zero"].to_numpy().reshape(2, 2), fit.zeros)
    near = (np.abs(posterior["posterior"]["A"].values - np.eye(2)) < 0.1).mean((0, 1))
    np.testing.assert_allclose(table["p_small"].to_numpy().reshape(2, 2), near)
    again = load_fit(save_fit(tmp_path / "fit.json", fit))
    assert repr(again.prior) == repr(fit.prior) == "Laplace(beta=60.0, center='identity')"
    np.testing.assert_array_equal(again.zeros, fit.zeros)


@pytest.mark.parametrize("center", [1.0, "persistence", [[1.0, 2.0]], [[np.nan, 0.0], [0.0, 1.0]]])
def test_a_centre_that_is_none_is_refused(center):
    with pytest.raises(ValueError, match="center is .*; give 0, 'identity' or a matrix"):
        Laplace(1.0, center=center)
    with pytest.raises(ValueError, match="diagonal is 'open'"):
        Laplace(1.0, diagonal="open")
    with pytest.raises(ValueError, match=r"center has shape \(2, 2\), which does not fit A"):
        Laplace(1.0, center=np.eye(2)).value(np.eye(3))


def test_the_largest_beta_of_a_path_holds_the_links_where_the_diagonal_is_free(cohort):
    """At a little more than it no link is left; at a little less one is, from the same start."""
    for prior in (
        Laplace.off_diagonal(1.0),
        GroupLaplace.off_diagonal(1.0, "rows"),
        Laplace(1.0 - np.eye(2)),
    ):
        path = regularization_path(cohort, 2, prior, n_betas=2, constraints=LEVELS)
        empty = path.fits[0].params._replace(A=np.diag(np.diagonal(path.fits[0].params.A)))
        for factor, left in ((1.01, False), (0.95, True)):
            strong = prior.scaled(factor * path.betas[0])
            A = np.asarray(fit_map(cohort, 2, strong, init=empty, constraints=LEVELS).params.A)
            assert np.diagonal(A).all() and A[~np.eye(2, dtype=bool)].any() == left


def test_a_centre_under_jit_is_a_matrix_too():
    with pytest.raises(ValueError, match=r"center has shape \(\)"):
        jax.jit(lambda m: Laplace(1.0, center=m).log_prob(np.eye(2)))(0.5)


def test_an_entry_at_a_centre_is_so_in_32_bits():
    M = np.array([[0.3, 0.1], [0.0, 0.7]])
    A = M.astype(np.float32).astype(float)
    for prior in (Laplace(30.0, center=M), GroupLaplace(30.0, "rows", center=M)):
        piece = prior.expanded(2, np.float32).piece(A, np.ones((2, 2)))
        assert (piece.lower == A).all()
