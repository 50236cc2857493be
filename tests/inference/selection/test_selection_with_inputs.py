"""The choice of β with inputs: errors against slow loops, a path over [A B], and the choice on data with a known B."""

import jax
import numpy as np
import numpyro.distributions as dist
import oracles
import pytest
from oracles import Shape, random_problem

from sparse_lds.experiments.baselines import var1_forecaster
from sparse_lds.experiments.estimator import SparseLDS
from sparse_lds.experiments.protocol import exact_errors, lds_forecaster
from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.experiments.skill import skill
from sparse_lds.experiments.tasks import every_task
from sparse_lds.inference import (
    Constraints,
    fit_map,
    forecast_errors,
    regularization_path,
    select,
    stability_selection,
)
from sparse_lds.inference.selection.cross_validation import bic
from sparse_lds.inference.selection.held_out import scores
from sparse_lds.inference.selection.path import beta_grid
from sparse_lds.models import Cohort, Laplace, LDSParams, simulate

SHAPE = Shape(l=2, d=2, N=5, T=6)
LEVELS = Constraints(C="identity", hold=("D",), diagonal=("R",))


def slow_errors(params, cohort, scale):
    """Every pair (ψ, φ), by the dense Gaussian of a sequence given its first ψ steps."""
    found = []
    for y, u in zip(cohort.sequences(), oracles.inputs_of(cohort), strict=True):
        gaps = []
        for psi in range(1, len(y)):
            ahead = oracles.posterior(params, y, given=psi, u=u).y
            gap = np.abs(y - ahead)[psi:] / scale
            gaps += gap[~np.isnan(gap)].tolist()
        found.append(np.mean(gaps) if gaps else np.nan)
    return np.array(found)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])
def test_errors_of_forecasts_are_those_of_the_dense_gaussian(gaps, close):
    for seed in range(3):
        params, cohort = random_problem(seed, SHAPE, gaps=gaps, ragged=True, radius=0.9, p=2)
        wanted = slow_errors(params, cohort, np.ones(2))
        seen = np.isfinite(wanted)
        for found in (
            forecast_errors(params, cohort),
            exact_errors(lds_forecaster(params), cohort),
        ):
            assert (np.isfinite(found) == seen).all()
            close("forecast_errors", found[seen], wanted[seen])
        held, scale = np.arange(len(cohort)) % 2 == 0, np.array([0.5, 3.0])
        density, error = scores(params, cohort, held, scale)
        wanted = slow_errors(params, cohort, scale)[held]
        close("held_out errors", error[seen[held]], wanted[seen[held]])
        close("held_out density", density, oracles.log_likelihood(params, cohort)[held])


def driven(N=24, T=20, seed=0):
    """A cohort of two levels and two inputs, of which each moves one level, and the truth."""
    rng = np.random.default_rng(seed)
    us = [rng.normal(size=(T, 2)) for _ in range(N)]
    I = np.eye(2)
    B = np.array([[0.8, 0.0], [0.0, -0.6]])
    truth = LDSParams(0.7 * I, I, 0.1 * I, 0.05 * I, np.zeros(2), I, B, np.zeros((2, 2)))
    cohort = simulate(jax.random.key(seed), truth, lengths=[T] * N, inputs=us).cohort
    return truth, cohort


def test_a_path_over_both_starts_at_zero_and_has_the_prior_of_each_beta():
    truth, cohort = driven()
    prior = Laplace(1.0, beta_B=2.0)
    path = regularization_path(cohort, 2, prior, n_betas=4, constraints=LEVELS, priors="weak")
    table = path.table()
    assert table["nonzero_B"].iloc[0] == 0
    assert table["nonzero_B"].iloc[-1] >= 2 and path.B.shape == (4, 2, 2)
    for beta, fit in zip(path.betas, path.fits, strict=True):
        by_hand = {**LEVELS.weak_priors(cohort, 2), "B": laplace(2 * beta)}
        same = fit_map(cohort, 2, Laplace(beta), constraints=LEVELS, priors=by_hand)
        assert same.objective[-1] == pytest.approx(fit.objective[-1], abs=0.05)


def test_a_path_starts_where_the_likelihood_pulls_B_no_more_than_the_penalty():
    _, cohort = driven(N=6)
    grid = beta_grid(cohort, 2, Laplace(1.0, beta_B=1e-3), 2, constraints=LEVELS, priors="weak")
    empty = fit_map(cohort, 2, Laplace(np.inf), constraints=LEVELS.holding("B"), priors="weak")
    pull = np.zeros((2, 2))
    for i, j in np.ndindex(2, 2):
        h = np.zeros((2, 2))
        h[i, j] = 1e-4
        up, down = (
            oracles.log_likelihood(empty.params._replace(B=sign * h), cohort).sum()
            for sign in (1, -1)
        )
        pull[i, j] = abs(up - down) / 2e-4
    assert grid[0] * 1e-3 == pytest.approx(pull.max(), rel=1e-5)


def laplace(beta):
    return dist.Laplace(np.zeros((2, 2)), np.full((2, 2), 1 / beta)).to_event(2)


def test_selection_finds_which_input_moves_which_state(tmp_path):
    truth, cohort = driven()
    found = select(
        cohort, 2, Laplace(1.0, beta_B=1.0), constraints=LEVELS, priors="weak", n_betas=6, rule="one_se",
        n_folds=3, max_iter=100,
    )  # fmt: skip
    B = np.asarray(found.fit.params.B)
    assert ((B != 0) >= (truth.B != 0)).all() and np.abs(B - truth.B).max() < 0.15
    assert "nonzero_B" in found.table
    fit = found.fit
    again = load_fit(save_fit(tmp_path / "fit.json", fit))
    assert again.prior.to_dict() == fit.prior.to_dict() and "of B" in str(fit.prior)
    # zeros of B are not counted as parameters
    n = np.log(int(np.asarray(cohort.mask).any(2).sum()))
    full = fit._replace(priors={k: v for k, v in fit.priors.items() if k != "B"})
    assert bic(full, cohort) - bic(fit, cohort) == pytest.approx(n * fit.zeros_B.sum())
    shown = skill(cohort, found)
    assert shown.table.loc["this model", "error"] < shown.table.loc["local level", "error"]
    share = stability_selection(cohort, fit, n_bootstraps=3)
    assert share.shape == (2, 4) and (share[:, 2:][truth.B != 0] == 1).all()


def test_an_autoregression_has_the_inputs():
    rng = np.random.default_rng(0)
    G, step = np.array([[0.5], [-1.0]]), np.array([[0.5, 0.2], [0.0, 0.8]])
    ys, us = [], []
    for _ in range(4):
        u, y = rng.normal(size=(9, 1)), [rng.normal(size=2)]
        for t in range(1, 9):
            y.append(0.1 + step @ y[-1] + G @ u[t])
        ys, us = [*ys, np.array(y)], [*us, u]
    cohort = Cohort.from_sequences(ys, inputs=us)
    for given in (cohort, cohort.with_intercept()):
        error = exact_errors(var1_forecaster(given), given)
        assert np.abs(error).max() < 1e-10 and len(every_task(given).psi)


def test_the_estimator_takes_inputs():
    truth, cohort = driven(N=8)
    model = SparseLDS(beta=1.0, max_iter=50).fit(cohort.with_intercept())
    none, some = (model.predict(2, inputs=np.full((2, 2), x)) for x in (0.0, 1.0))
    assert some.shape == (8, 2, 2) and np.abs(some - none).min() > 0.1
    with pytest.raises(ValueError, match="'u0', which is not known"):
        model.predict(2)
    with pytest.raises(ValueError, match="X has inputs"):
        model.predict(2, cohort)


def test_two_priors_of_B_are_refused():
    _, cohort = driven(N=4)
    with pytest.raises(ValueError, match="another prior of B besides"):
        fit_map(cohort, 2, Laplace(1.0, beta_B=1.0), priors={"B": laplace(3.0)}, max_iter=1)
    with pytest.raises(ValueError, match=r"beta_B has shape \(3, 2\)"):
        fit_map(cohort, 2, Laplace(1.0, beta_B=np.ones((3, 2))), max_iter=1)
    for bad in (0.0, -1.0, np.inf, np.ones(2), "x"):
        with pytest.raises(ValueError, match="beta_B is"):
            Laplace(1.0, beta_B=bad)
    assert "beta_B" not in Laplace(1.0).to_dict()
