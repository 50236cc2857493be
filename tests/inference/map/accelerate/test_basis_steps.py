"""Basis steps: the likelihood stays, the penalty falls, and Q = I is kept by the turns."""

import jax
import numpy as np
import oracles
import pytest
from scipy.stats import ortho_group

from sparse_lds.inference import fit_map
from sparse_lds.inference.constraints import Constraints
from sparse_lds.inference.map.accelerate.basis_steps import basis_step
from sparse_lds.models import (
    GroupLaplace,
    Laplace,
    change_basis,
    check_params,
    log_likelihood,
    simulate,
)


def problem(seed, l=4):
    params, cohort = oracles.random_problem(seed, oracles.Shape(l, 3, 12, 5), radius=0.8)
    white = change_basis(params, np.linalg.inv(np.linalg.cholesky(params.Q)))
    return white._replace(Q=np.eye(l)), cohort


@pytest.mark.parametrize("rotations", [False, True], ids=["free", "turns"])
def test_a_step_keeps_the_likelihood_and_lowers_the_penalty(rotations):
    for seed in range(5):
        params, cohort = problem(seed)
        prior = Laplace(2.0)
        moved, W, gain = basis_step(params, prior, rotations)
        assert gain > 0
        np.testing.assert_allclose(prior.value(params.A) - prior.value(moved.A), gain, rtol=1e-12)
        np.testing.assert_allclose(
            log_likelihood(moved, cohort), log_likelihood(params, cohort), rtol=1e-9
        )
        np.testing.assert_allclose(moved.A, W @ params.A @ np.linalg.inv(W), atol=1e-10)
        if rotations:
            np.testing.assert_allclose(W @ W.T, np.eye(4), atol=1e-12)
            np.testing.assert_array_equal(moved.Q, np.eye(4))


@pytest.mark.parametrize("l", [2, 3, 5, 8])
def test_turns_find_a_diagonal(l):
    """A symmetric A has an orthogonal eigenbasis: nothing is sparser, and ‖A‖₁ is least there."""
    rng = np.random.default_rng(l)
    values, U = rng.uniform(-0.9, 0.9, l), ortho_group.rvs(l, random_state=rng)
    params = problem(0, l)[0]._replace(A=U * values @ U.T)
    moved, _, _ = basis_step(params, Laplace(1.0), rotations=True)
    np.testing.assert_allclose(np.abs(moved.A).sum(), np.abs(values).sum(), rtol=1e-9)


def test_a_plane_is_turned_to_its_best_angle():
    """l = 2 against all angles, on a grid."""
    angles = np.linspace(0, np.pi, 100_001)
    turns = np.array([[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]])
    params = problem(0, 2)[0]
    for seed in range(20):
        A = np.random.default_rng(seed).normal(size=(2, 2))
        all_angles = np.abs(np.einsum("pqk,qr,srk->kps", turns, A, turns)).sum((1, 2))
        moved, _, _ = basis_step(params._replace(A=A), Laplace(1.0), rotations=True)
        np.testing.assert_allclose(np.abs(moved.A).sum(), all_angles.min(), rtol=1e-4)


def test_fits_find_an_orthogonal_eigenbasis_from_any_rotation():
    """Where A is symmetric, its eigenbasis is the sparsest one with Q = I; EM alone would be stuck at kinks.

    For other A the turns end in local minima, and the fit depends on the start.
    """
    params = problem(0, 3)[0]._replace(A=np.diag([0.9, 0.6, -0.5]))
    cohort = simulate(jax.random.key(0), params, lengths=[20] * 60).cohort
    reached = []
    for seed in range(4):
        turned = change_basis(params, ortho_group.rvs(3, random_state=seed))
        start = turned._replace(Q=np.eye(3))
        fit = fit_map(cohort, 3, Laplace(20.0), init=start, Q="identity", max_iter=500)
        assert fit.converged and fit.steps["basis"] > 0
        np.testing.assert_array_equal(fit.params.Q, np.eye(3))
        assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()
        reached.append(fit.objective[-1])
    np.testing.assert_allclose(reached, reached[0], rtol=1e-7)


def test_weights_that_differ_between_entries_are_not_turned():
    params, _ = problem(1)
    weights = Laplace(np.arange(1.0, 17.0).reshape(4, 4))
    assert basis_step(params, weights, rotations=True)[2] == 0
    assert basis_step(params, GroupLaplace(1.0, "rows"), rotations=True)[2] >= 0


def test_what_a_fit_returns_is_a_start():
    """V1 that has grown a millionfold in one direction, as with more states than patients."""
    params, cohort = problem(5, 3)
    long = np.array([1.0, 1.0, 1.0]) * 1e8
    params = params._replace(V1=np.outer(long, long) + np.eye(3))
    with pytest.raises(ValueError, match="not positive definite"):
        check_params(params)
    check_params(Constraints().regular(params))
    held = Constraints(hold=("V1",)).regular(params)
    np.testing.assert_array_equal(held.V1, params.V1)
    near = params._replace(V1=1e-4 * np.outer(long, long) + np.eye(3))
    check_params(
        near
    )  # a start as it is, so that nothing is added, which would lower the objective
    for found, x in zip(Constraints().regular(near), near, strict=True):
        np.testing.assert_array_equal(found, x)


def test_entries_on_their_way_to_zero_are_set_to_it():
    """EM goes there only linearly, and stops at the tolerance: what is left is small, and no gain."""
    _, cohort = problem(2, 3)
    fit = fit_map(cohort, 3, Laplace(20.0), Q="identity", max_iter=300)
    A = np.asarray(fit.params.A)
    small = (A != 0) & (np.abs(A) < 1e-5 * np.abs(A).max())
    assert not small.any()
    prior = fit.prior
    cleared = np.where(np.abs(A) < 1e-2 * np.abs(A).max(), 0.0, A)
    for candidate in (A, cleared):
        value = log_likelihood(fit.params._replace(A=candidate), cohort).sum() + prior.log_prob(
            candidate
        )
        assert fit.objective[-1] >= float(value) - 1e-9 * abs(float(value))
