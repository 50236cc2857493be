"""Whole inputs switched off: columns of B that are exactly zero, and an intercept that no β draws to zero."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import Constraints, fit_em, fit_map, regularization_path, select
from sparse_lds.inference.selection.path import beta_grid
from sparse_lds.models import (
    ColumnLaplace,
    GroupLaplace,
    Laplace,
    LDSParams,
    fisher_score,
    simulate,
)

LEVELS = Constraints.levels()


def driven(N=16, T=15, intercept=0.0, seed=0):
    """A cohort of two levels, moved by the first of two inputs alone."""
    rng = np.random.default_rng(seed)
    us = [rng.normal(size=(T, 2)) for _ in range(N)]
    I = np.eye(2)
    B = np.array([[0.8, 0.0], [-0.3, 0.0]])
    truth = LDSParams(0.7 * I, I, 0.1 * I, 0.05 * I, np.zeros(2), I, B, np.zeros((2, 2)))
    cohort = simulate(jax.random.key(seed), truth, lengths=[T] * N, inputs=us).cohort
    return type(cohort).from_sequences(
        [cohort.sequence(i) + intercept for i in range(N)], inputs=us
    )


def test_its_density_integrates_to_one_and_draws_follow_it():
    prior = ColumnLaplace(np.array([0.5]), 2)
    x = np.linspace(-12, 12, 1201)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2, 1)
    density = np.exp(np.asarray(jax.vmap(prior.log_prob)(jnp.asarray(grid))))
    assert density.sum() * (x[1] - x[0]) ** 2 == pytest.approx(1, abs=1e-3)
    draws = np.asarray(ColumnLaplace(np.array([0.5, 2.0]), 3).sample(jax.random.key(0), (4000,)))
    radius = np.linalg.norm(draws, axis=1)  # Gamma(3, 1 / scale)
    np.testing.assert_allclose(radius.mean(0), [1.5, 6.0], rtol=0.05)
    np.testing.assert_allclose(radius.var(0), [0.75, 12.0], rtol=0.15)


@pytest.mark.parametrize("own", [False, True])
def test_columns_of_B_are_exactly_zero_where_the_likelihood_allows_it(own, tmp_path):
    """By the score of the dense Gaussian: β B_j / ‖B_j‖ for a column that is there, else a norm within β."""
    cohort, beta = driven(), 60.0
    l = 4 if own else 2
    priors = {"B": ColumnLaplace(np.full(2, 1 / beta), l)}
    options = {"constraints": Constraints.levels(own=own), "priors": priors, "tol": 1e-6}
    fit = fit_em(cohort, 2, max_iter=500, **options)
    assert fit.converged and np.diff(fit.objective).min() > -1e-7
    B = np.asarray(fit.params.B)[:2]
    score = fisher_score(fit.params, oracles.statistics(fit.params, cohort)).B[:2]
    assert (B[:, 1] == 0).all() and (B[:, 0] != 0).all()
    np.testing.assert_allclose(score[:, 0], beta * B[:, 0] / np.linalg.norm(B[:, 0]), atol=0.03)
    assert np.linalg.norm(score[:, 1]) <= beta + 0.02
    plain = fit_em(cohort, 2, accelerate=False, max_iter=30, **options)
    assert np.diff(plain.objective).min() > -1e-7
    assert plain.objective[-1] < fit.objective[-1] + 1e-4
    found = load_fit(save_fit(tmp_path / "fit.json", fit)).priors["B"]
    np.testing.assert_allclose(found.scale, 1 / beta)


def test_a_path_switches_inputs_off_as_a_whole():
    cohort = driven()
    prior = GroupLaplace(1.0, "rows", beta_B=2.0)
    options = {"constraints": LEVELS, "priors": "weak"}
    path = regularization_path(cohort, 2, prior, n_betas=4, **options)
    zero = path.B == 0
    assert zero[0].all() and not zero[-1, :, 0].any()
    assert (zero.any(1) == zero.all(1)).all()
    assert "of B 2" in str(prior) and prior.scaled(3.0).beta_B == 6.0
    kept = LEVELS.holding("D")  # with A = 0 too, D does all that B does
    grid = beta_grid(cohort, 2, GroupLaplace(1.0, "rows", beta_B=1e-3), 2, constraints=kept, priors="weak")  # fmt: skip
    empty = fit_map(cohort, 2, Laplace(np.inf), constraints=kept.holding("B"), priors="weak")
    pull = fisher_score(empty.params, oracles.statistics(empty.params, cohort)).B
    assert grid[0] * 1e-3 == pytest.approx(np.linalg.norm(pull, axis=0).max(), rel=1e-5)


def test_selection_takes_it():
    found = select(
        driven(), 2, GroupLaplace(1.0, "rows", beta_B=1.0), constraints=LEVELS, priors="weak", n_betas=4,
        n_folds=2, max_iter=60,
    )  # fmt: skip
    assert (np.asarray(found.fit.params.B)[:, 0] != 0).all()


@pytest.mark.parametrize("prior", [Laplace(1.0, beta_B=1e4), GroupLaplace(1.0, "rows", beta_B=1e4)])
def test_an_intercept_on_states_is_not_drawn_to_zero(prior):
    """Unless the β of each column is given; the inputs beside it are."""
    cohort = driven(intercept=5.0).with_intercept("state")
    options = {"constraints": LEVELS, "priors": "weak"}
    fit = fit_map(cohort, 2, prior, **options)
    assert (np.asarray(fit.params.B)[:, :2] == 0).all()
    kept = replace(LEVELS, absent=(("B", 0), ("B", 1)))
    alone = fit_map(cohort, 2, replace(prior, beta_B=None), constraints=kept, priors="weak")
    np.testing.assert_allclose(fit.params.B[:, 2], alone.params.B[:, 2], rtol=0.02)
    shape = (3,) if isinstance(prior, GroupLaplace) else (2, 3)
    asked = fit_map(cohort, 2, replace(prior, beta_B=np.full(shape, 1e4)), **options)
    assert (np.asarray(asked.params.B) == 0).all()
    grid = beta_grid(cohort, 2, prior, 2, **options)
    path_start = fit_map(cohort, 2, prior.scaled(grid[0] * 1.001), **options)
    assert (np.asarray(path_start.params.B)[:, :2] == 0).all()


def test_beta_B_is_one_for_each_input():
    with pytest.raises(ValueError, match=r"an array \(p,\)"):
        GroupLaplace(1.0, "rows", beta_B=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"beta_B has shape \(3,\)"):
        fit_map(driven(N=3), 2, GroupLaplace(1.0, "rows", beta_B=np.ones(3)), max_iter=1)
    assert "beta_B" not in GroupLaplace(1.0, "rows").to_dict()
