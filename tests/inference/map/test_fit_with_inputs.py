"""Fits with inputs: the M-step against the dense Gaussian, ascent, optimality, and what cannot be asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracles
import pytest
from oracles import Shape, random_params, random_problem

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import Constraints, fit_em, fit_map, initial_params
from sparse_lds.inference.map.mstep import Floors, m_step
from sparse_lds.models import Cohort, Flat, Laplace, LDSParams, fisher_score, simulate
from sparse_lds.models.conjugate import as_conjugate

SHAPE = Shape(2, 3, 6, 8)


def normal_log_density(S, mean, cov):
    """Σ over the rows of E log N(x; 0, S), for x of these means (n, k) and covariances (n, k, k)."""
    second = mean.T @ mean + cov.sum(0)
    constant = np.linalg.slogdet(S)[1] + len(S) * np.log(2 * np.pi)
    return -0.5 * (np.trace(np.linalg.solve(S, second)) + len(mean) * constant)


def expected_complete(new, old, cohort):
    """E[log p(z, y | new) | observed, old], from one dense Gaussian a sequence."""
    A, C, Q, R, pi1, V1, B, D = (np.asarray(x, float) for x in new)
    total = 0.0
    for y, u in zip(cohort.sequences(), oracles.inputs_of(cohort), strict=True):
        p = oracles.posterior(old, y, u=u)
        P, lag = oracles.diagonal(p.zz), oracles.diagonal(p.zz, 1)
        total += normal_log_density(V1, p.z[:1] - pi1 - u[:1] @ B.T, P[:1])
        move = p.z[1:] - p.z[:-1] @ A.T - u[1:] @ B.T
        cross = A @ lag.swapaxes(1, 2)
        total += normal_log_density(
            Q, move, P[1:] + A @ P[:-1] @ A.T - cross - cross.swapaxes(1, 2)
        )
        seen = ~np.isnan(y).all(1)
        yz = C @ oracles.diagonal(p.yz).swapaxes(1, 2)
        cov = oracles.diagonal(p.yy) + C @ P @ C.T - yz - yz.swapaxes(1, 2)
        total += normal_log_density(R, (p.y - p.z @ C.T - u @ D.T)[seen], cov[seen])
    return total


def problem(gaps):
    """Parameters and a cohort; gaps leave an observed cell at every step, where EM has the plain M-step."""
    params, cohort = random_problem(0, SHAPE, p=2, radius=0.8, ragged=True)
    if gaps:
        rng = np.random.default_rng(0)
        ys = [y.copy() for y in cohort.sequences()]
        for y in ys:
            y[rng.random(len(y)) < 0.5, rng.integers(3)] = np.nan
        cohort = Cohort.from_sequences(ys, inputs=oracles.inputs_of(cohort))
    return LDSParams(*map(jnp.asarray, params)), cohort


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])
def test_m_step_is_where_the_dense_expectation_is_largest(gaps):
    """Each block at its maximum given the others: A, then B with π1, Q, C with D, R, V1."""
    params, cohort = problem(gaps)
    stats = oracles.statistics(params, cohort)
    stats = jax.tree.map(jnp.asarray, stats)
    floors = Floors(*(1e-9 * jnp.eye(n) for n in (2, 3, 2)))
    new = m_step(stats, params, Flat(), as_conjugate({}, 2, 3, float), floors, Constraints())
    now, rng = params, np.random.default_rng(1)
    for block in (("A",), ("B", "pi1"), ("Q",), ("C", "D"), ("R",), ("V1",)):
        now = now._replace(**{name: getattr(new, name) for name in block})
        best = expected_complete(now, params, cohort)
        for _ in range(5):
            steps = {name: rng.normal(size=np.shape(getattr(now, name))) for name in block}
            if block[0] in ("Q", "R", "V1"):
                steps = {name: x + x.T for name, x in steps.items()}
            values = [
                expected_complete(
                    now._replace(**{k: getattr(now, k) + h * x for k, x in steps.items()}),
                    params,
                    cohort,
                )
                for h in (1e-4, -1e-4)
            ]
            assert max(values) < best
            slope = (values[0] - values[1]) / 2e-4
            curvature = (2 * best - values[0] - values[1]) / 1e-8
            assert abs(slope) < 1e-5 * curvature


OPTIONS = {
    "sparse": ({}, 2),
    "levels": ({"constraints": Constraints.levels()}, 3),
    "own levels": ({"constraints": Constraints.levels(own=True)}, 3),
    "B held": ({"hold": ("B",)}, 2),
    "D held": ({"hold": ("D",)}, 2),
    "pi1 held": ({"hold": ("pi1",), "Q": "identity"}, 2),
    "weak": ({"priors": "weak"}, 2),
    "one input of each": ({"constraints": Constraints(absent=(("B", 0), ("D", 1)))}, 2),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_objective_never_falls(name):
    """Plain EM and accelerated, some with gaps; what is held stays."""
    options, l = OPTIONS[name]
    for gaps in (False, True) if name == "own levels" else (name == "sparse",):
        _, cohort = problem(gaps)
        for accelerate in (False, True):
            fit = fit_map(
                cohort, l, Laplace(1.0), accelerate=accelerate, max_iter=40, tol=0.0, **options
            )
            assert np.diff(fit.objective).min() > -1e-7
            kept = fit.constraints
            for name in {"B", "D"} & {*kept.hold}:
                np.testing.assert_array_equal(getattr(fit.params, name), 0)
            for name, j in kept.absent:
                np.testing.assert_array_equal(np.asarray(getattr(fit.params, name))[:, j], 0)
            if kept.own_levels:
                np.testing.assert_array_equal(fit.params.B[l:], 0)


def simulated(seed=0, gaps=0.0, shift=0.0, N=30):
    """A cohort from a model with C = I: one input acts on a state, the other on a channel."""
    rng = np.random.default_rng(seed)
    A, I = np.array([[0.8, 0.3], [0.0, 0.6]]), np.eye(2)
    B, D = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 0.8]])
    truth = LDSParams(A, I, 0.2 * I, 0.1 * I, np.zeros(2), I, B=B, D=D)
    us = [np.stack([rng.random(15) < 0.3, rng.normal(size=15)], 1).astype(float) for _ in range(N)]
    cohort = simulate(jax.random.key(seed), truth, [15] * N, inputs=us).cohort
    ys = [np.where(rng.random(y.shape) < gaps, np.nan, y + shift) for y in cohort.sequences()]
    return truth, Cohort.from_sequences(ys, inputs=us)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_fit_ends_where_the_score_is_zero(gaps):
    truth, cohort = simulated(gaps=gaps)
    fit = fit_em(cohort, 2, constraints=Constraints.levels(), tol=1e-7)
    assert fit.converged
    stats = oracles.statistics(fit.params, cohort)
    score = fisher_score(fit.params, stats)
    for name in ("A", "B", "D", "Q", "pi1", "V1"):
        assert np.abs(getattr(score, name)).max() < 1e-2, name  # of nats, for a change by 1
    np.testing.assert_allclose(np.diagonal(score.R), 0, atol=1e-2)
    assert np.abs(np.asarray(fit.params.B) - truth.B).max() < 0.25
    assert np.abs(np.asarray(fit.params.D) - truth.D).max() < 0.25


def test_an_intercept_takes_the_place_of_standardising():
    """The likelihood does not depend on the level of the data, and no warning is given."""
    found = []
    for shift in (0.0, 50.0):
        _, cohort = simulated(shift=shift)
        fit = fit_em(cohort.with_intercept(), 2, constraints=Constraints.levels(), tol=1e-6)
        assert not any("intercept" in text for text in fit.warnings)
        np.testing.assert_array_equal(fit.params.B[:, 2], 0)
        found.append(fit)
    np.testing.assert_allclose(found[1].log_likelihood, found[0].log_likelihood, atol=1e-3)
    np.testing.assert_allclose(found[1].params.D[:, 2] - found[0].params.D[:, 2], 50, atol=0.05)
    _, cohort = simulated(shift=50.0)
    state = fit_em(cohort.with_intercept("state"), 2, max_iter=5)
    np.testing.assert_array_equal(state.params.D[:, 2], 0)
    assert np.abs(state.params.B[:, 2]).max() > 0


def test_starts_explain_what_inputs_explain():
    _, cohort = simulated()
    start = initial_params(cohort, 2)
    np.testing.assert_array_equal(start.B, 0)
    assert abs(start.D[1, 1] - 0.8) < 0.1
    known = LDSParams(*start[:6])
    fit = fit_em(cohort, 2, init=known, max_iter=1, accelerate=False)
    assert fit.params.n_inputs == 2


def test_what_cannot_be_fitted_is_named():
    _, cohort = simulated(N=5)
    plain = Cohort.from_sequences(cohort.sequences())
    us = oracles.inputs_of(cohort)
    double = Cohort.from_sequences(
        cohort.sequences(), inputs=[np.hstack([u, u[:, :1] + 2 * u[:, 1:]]) for u in us]
    )
    with pytest.raises(ValueError, match="input 'u2' is a combination of u0, u1"):
        fit_em(double, 2)
    ones = Cohort.from_sequences(cohort.sequences(), inputs=[np.ones((15, 1))] * 5)
    with pytest.raises(ValueError, match="input 'intercept' is a combination of u0"):
        fit_em(ones.with_intercept(), 2)
    zeros = Cohort.from_sequences(cohort.sequences(), inputs=[np.zeros((15, 1))] * 5)
    with pytest.raises(ValueError, match="input 'u0' is 0 at every step"):
        fit_em(zeros, 2)
    with pytest.raises(ValueError, match="hold names 'B', and the cohort has no inputs"):
        fit_em(plain, 2, hold=("B",))
    with pytest.raises(ValueError, match="Algorithm 1 knows no inputs"):
        fit_em(cohort, 2, variant="paper")
    with pytest.raises(ValueError, match="absent names column 7"):
        fit_em(cohort, 2, constraints=Constraints(absent=(("B", 7),)))
    with pytest.raises(ValueError, match="there are no inputs"):
        fit_em(plain, 2, init=random_params(np.random.default_rng(0), 2, 2, p=1))


def test_files_keep_a_fit_with_inputs(tmp_path):
    _, cohort = simulated(N=5)
    fit = fit_em(cohort.with_intercept(), 2, max_iter=3)
    found = load_fit(save_fit(tmp_path / "fit.json", fit))
    assert found.constraints == fit.constraints
    for x, y in zip(found.params, fit.params, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("constraints", [Constraints.levels(), Constraints.levels(own=True)])
def test_a_laplace_prior_on_B_has_exact_zeros(constraints, tmp_path):
    """By the score of the dense Gaussian at the end: β sign(B) where B is not 0, and within β where it is."""
    beta = 12.0
    priors = {"B": dist.Laplace(jnp.zeros((2, 2)), 1 / beta).to_event(2)}
    if constraints.own_levels:
        priors = {"B": dist.Laplace(jnp.zeros((4, 2)), 1 / beta).to_event(2)}
    _, cohort = simulated(gaps=0.1)
    options = {"constraints": constraints, "priors": priors, "tol": 1e-6}
    fit = fit_em(cohort, 2, max_iter=500, **options)
    assert fit.converged and np.diff(fit.objective).min() > -1e-7
    assert fit.steps["quasi-newton"] > 0
    B = np.asarray(fit.params.B)[:2]
    score = fisher_score(fit.params, oracles.statistics(fit.params, cohort)).B[:2]
    assert (B == 0).sum() >= 1 and B[0, 0] > 0.5
    np.testing.assert_allclose(score[B != 0], beta * np.sign(B[B != 0]), atol=0.02)
    assert np.abs(score[B == 0]).max() <= beta + 0.02
    plain = fit_em(cohort, 2, accelerate=False, max_iter=30, init=fit.params, **options)
    assert plain.objective[-1] < fit.objective[-1] + 1e-4
    found = load_fit(save_fit(tmp_path / "fit.json", fit)).priors["B"]
    np.testing.assert_allclose(found.base_dist.scale, 1 / beta)
    assert isinstance(found.base_dist, dist.Laplace)
