"""EM and MAP-EM: monotone, equal to a dense EM step, and at a stationary point when they say so."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy import optimize

from sparse_lds.inference import fit_em, fit_map
from sparse_lds.models import (
    Cohort,
    Flat,
    GroupLaplace,
    Laplace,
    LDSParams,
    log_likelihood,
    simulate,
    spectral_radius,
)

# enough data that no likelihood is unbounded: there, rounding is magnified by a singular R
SHAPES = [oracles.Shape(2, 3, 15, 6), oracles.Shape(3, 2, 15, 8)]
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def objective(params, cohort, prior):
    return float(log_likelihood(params, cohort).sum() + prior.log_prob(params.A))


def assert_sound(fit, cohort):
    for x in fit.params:
        assert np.isfinite(x).all()
    for S in (fit.params.Q, fit.params.R, fit.params.V1):
        assert np.linalg.eigvalsh(S).min() > 0
        np.testing.assert_array_equal(S, np.transpose(S))
    np.testing.assert_allclose(
        fit.objective[-1], objective(fit.params, cohort, fit.prior), rtol=1e-10
    )


@both_routes
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("accelerate", [False, True], ids=["plain", "accelerated"])
def test_objective_never_falls(shape, gaps, accelerate):
    for seed in range(3):
        params, cohort = oracles.random_problem(seed, shape, gaps=gaps, ragged=True, radius=0.8)
        for prior in (
            (Laplace(3.0), GroupLaplace(2.0, "rows")) if accelerate else (Flat(), Laplace(3.0))
        ):
            fit = fit_map(
                cohort, shape.l, prior, init=params, accelerate=accelerate, max_iter=30, tol=0.0
            )
            trace = np.concatenate([[objective(params, cohort, prior)], fit.objective])
            assert len(fit.objective) == fit.n_iter == 30
            assert (np.diff(trace) >= -1e-9 * np.abs(trace[:-1])).all()
            assert_sound(fit, cohort)


def dense_m_step(s, params, beta, variant):
    """One M-step from oracle statistics; A by a general-purpose minimiser, zeros by its bounds."""
    A, C, Q, R, pi1, V1 = (np.asarray(x) for x in params)
    l = len(A)
    C = s.Syz @ np.linalg.inv(s.Szz)
    pi1 = s.z1 / s.n_sequences
    V1 = s.M1 / s.n_sequences - np.outer(pi1, pi1)
    if variant == "paper":  # line 1 of Algorithm 1: Q from the previous A
        Q = (s.S11 - A @ s.S10.T) / s.n_transitions
        Q = (Q + Q.T) / 2
        R = (s.Syy - C @ s.Syz.T) / s.n_emissions
    else:
        R = (s.Syy - C @ s.Syz.T - s.Syz @ C.T + C @ s.Szz @ C.T) / s.n_emissions
    precision = np.linalg.inv(Q)

    def f(x):  # A = positive - negative part, so that the penalty is linear
        B = (x[: l * l] - x[l * l :]).reshape(l, l)
        gradient = precision @ (B @ s.S00 - s.S10)
        value = 0.5 * np.sum(B * (precision @ (B @ s.S00 - 2 * s.S10))) + beta * x.sum()
        return value, np.concatenate([gradient.ravel(), -gradient.ravel()]) + beta

    start = np.concatenate([np.maximum(A, 0).ravel(), np.maximum(-A, 0).ravel()])
    x = optimize.minimize(
        f,
        start,
        jac=True,
        bounds=[(0, None)] * start.size,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-12},
    ).x
    A = (x[: l * l] - x[l * l :]).reshape(l, l)
    if variant == "exact":
        Q = (s.S11 - A @ s.S10.T - s.S10 @ A.T + A @ s.S00 @ A.T) / s.n_transitions
    return LDSParams(A, C, Q, (R + R.T) / 2, pi1, V1)


@both_routes
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_one_step_agrees_with_a_dense_em_step(gaps, variant, beta):
    shape = SHAPES[0]
    for seed in range(4):
        params, cohort = oracles.random_problem(seed, shape, gaps=gaps, ragged=True, radius=0.8)
        fit = fit_map(
            cohort,
            shape.l,
            Laplace(beta) if beta else Flat(),
            variant=variant,
            init=params,
            accelerate=False,
            max_iter=1,
            tol=0.0,
        )
        wanted = dense_m_step(oracles.statistics(params, cohort), params, beta, variant)
        # states are normalised at the end of a fit: compare what does not depend on it
        for k in range(3):
            found_markov = markov(fit.params, k)
            np.testing.assert_allclose(found_markov, markov(wanted, k), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(fit.params.R, wanted.R, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(np.abs(fit.params.A).sum(), np.abs(wanted.A).sum(), rtol=1e-6)


def markov(params, k):
    A, C, V1 = (np.asarray(x) for x in (params.A, params.C, params.V1))
    return C @ np.linalg.matrix_power(A, k) @ V1 @ C.T


def test_beta_zero_is_ordinary_em():
    params, cohort = oracles.random_problem(1, SHAPES[1], gaps=True, ragged=True, radius=0.7)
    options = {"init": params, "accelerate": False, "max_iter": 10, "tol": 0.0}
    sparse = fit_map(cohort, 3, Laplace(0.0), **options)
    plain = fit_em(cohort, 3, **options)
    np.testing.assert_allclose(sparse.objective, plain.objective, rtol=1e-9)
    for a, b in zip(sparse.params, plain.params, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert "prior of A: Flat" in str(plain) and "0 of 9 entries of A" in str(plain)
    assert "Laplace(β = 0)" in str(sparse) and f"{plain.n_iter} iterations" in str(plain)


@both_routes
def test_held_parameters_do_not_move_and_diagonals_stay(gaps):
    params, cohort = oracles.random_problem(3, SHAPES[1], gaps=gaps, ragged=True, radius=0.7)
    hold = ("C", "Q", "R", "pi1", "V1")
    fit = fit_map(cohort, 3, Laplace(1.0), init=params, hold=hold, max_iter=50)
    for name in hold:
        np.testing.assert_array_equal(getattr(fit.params, name), getattr(params, name))
    start = params._replace(Q=np.diag(np.diag(params.Q)), R=np.diag(np.diag(params.R)))
    fit = fit_em(cohort, 3, init=start, diagonal=("Q", "R"), max_iter=20, tol=0.0)
    for S in (fit.params.Q, fit.params.R):
        np.testing.assert_array_equal(S, np.diag(np.diag(S)))


@both_routes
def test_convergence_is_certified_by_the_gradient(gaps):
    """In the conditional problem (A alone) the subgradient conditions of the marginal likelihood hold."""
    truth = LDSParams(
        np.diag([0.9, 0.5, 0.2]),
        np.eye(3),
        0.3 * np.eye(3),
        0.2 * np.eye(3),
        np.zeros(3),
        np.eye(3),
    )
    cohort = simulate(jax.random.key(0), truth, [20, 14, 30, 25]).cohort
    if gaps:
        rng = np.random.default_rng(0)
        cohort = Cohort.from_sequences(
            [np.where(rng.random(y.shape) < 0.2, np.nan, y) for y in cohort.sequences()]
        )
    prior, hold = Laplace(4.0), ("C", "Q", "R", "pi1", "V1")
    fit = fit_map(cohort, 3, prior, init=truth, hold=hold, tol=1e-8, max_iter=3000)
    assert fit.converged and "converged" in fit.reason and fit.kkt_residual <= 1e-8
    A = np.asarray(fit.params.A)
    gradient = jax.grad(lambda A: log_likelihood(truth._replace(A=A), cohort).sum())(jnp.asarray(A))
    zero = A == 0
    assert zero.any() and not zero.all()
    assert (np.abs(gradient)[zero] <= 4.0 * (1 + 1e-6)).all()
    np.testing.assert_allclose(np.asarray(gradient)[~zero], 4.0 * np.sign(A[~zero]), rtol=1e-5)
    assert not np.signbit(A[zero]).any()


def test_forced_zeros_hold():
    params, cohort = oracles.random_problem(5, SHAPES[1], ragged=True, radius=0.7)
    beta = np.where(np.eye(3) > 0, 0.0, np.inf)
    fit = fit_map(cohort, 3, Laplace(beta), init=params, max_iter=20, tol=0.0)
    A = np.asarray(fit.params.A)
    assert (A[~np.eye(3, dtype=bool)] == 0).all() and (np.diag(A) != 0).all()


def test_a_fit_from_data_alone_beats_the_noise_model():
    truth = LDSParams(
        np.diag([0.9, 0.6]),
        np.array([[1.0, 0.0], [0.5, 1.0], [0.0, 1.0]]),
        0.3 * np.eye(2),
        0.2 * np.eye(3),
        np.zeros(2),
        np.eye(2),
    )
    cohort = simulate(jax.random.key(3), truth, [25] * 40).cohort
    fit = fit_em(cohort, 2, max_iter=300)
    at_truth = float(log_likelihood(truth, cohort).sum())
    assert fit.log_likelihood > at_truth  # a maximum is above the truth
    assert abs(float(spectral_radius(fit.params)) - 0.9) < 0.05


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_states": 0}, "n_states is 0"),
        ({"prior": 3.0}, "prior is 3.0"),
        ({"variant": "letter"}, "variant is 'letter'"),
        ({"hold": ("B",)}, "hold names 'B'"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"tol": -1.0}, "tol is -1.0"),
    ],
)
def test_bad_arguments_are_named(change, match):
    _, cohort = oracles.random_problem(0, SHAPES[0])
    arguments = {"n_states": 2, "prior": Laplace(1.0), **change}
    with pytest.raises((ValueError, TypeError), match=match):
        fit_map(cohort, **arguments)


def test_cohorts_that_cannot_say_anything_are_refused():
    short = Cohort.from_sequences([np.ones((1, 2)), np.zeros((1, 2))])
    with pytest.raises(ValueError, match="single step"):
        fit_em(short, 1)
    unseen = Cohort.from_sequences([np.array([[1.0, np.nan], [2.0, np.nan]])], channels=["a", "b"])
    with pytest.raises(ValueError, match="'b' is entirely missing"):
        fit_em(unseen, 1)


def test_warnings_name_what_was_asked_for():
    """Channels far from zero, and a C that is held where nobody put it."""
    params, cohort = oracles.random_problem(0, oracles.Shape(2, 2, 15, 8))
    calm = fit_map(cohort, 2, Laplace(1.0), init=params, hold=("C",), max_iter=3)
    assert not any("intercept" in x or "C is held" in x for x in calm.warnings)
    shifted = Cohort.from_sequences([x + 300.0 for x in cohort.sequences()])
    assert any("intercept" in x for x in fit_em(shifted, 2, max_iter=3).warnings)
    assert any("C is held" in x for x in fit_em(cohort, 2, hold=("C",), max_iter=3).warnings)
