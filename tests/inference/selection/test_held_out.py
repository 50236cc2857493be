"""Scores of held-out sequences and the rules on them: against slow loops, and on tables made by hand."""

import jax
import numpy as np
import pandas as pd
import pytest
from oracles import Shape, random_problem

from sparse_lds.experiments.protocol import exact_errors, lds_forecaster
from sparse_lds.inference import Candidate, Constraints, Selection, fit_map, forecast_errors, select
from sparse_lds.inference.map import loop
from sparse_lds.inference.selection.cross_validation import bic
from sparse_lds.inference.selection.held_out import HeldOut, choose, scores
from sparse_lds.inference.selection.path import regularization_path, scaled_beta
from sparse_lds.models import Laplace, LDSParams, forecast, log_likelihood, simulate

SHAPE = Shape(l=2, d=2, N=6, T=7)


def slow_errors(params, cohort, scale):
    """Every step seen and every later step, one forecast at a time."""
    each = [[] for _ in range(len(cohort))]
    lengths = np.asarray(cohort.lengths)
    for psi in range(1, cohort.n_steps):
        ahead = np.asarray(forecast(params, cohort, cohort.n_steps, np.minimum(psi, lengths)).mean)
        for n, y in enumerate(cohort.sequences()):
            for phi in range(psi + 1, len(y) + 1):
                gap = np.abs(y[phi - 1] - ahead[n, phi - psi - 1]) / scale
                each[n] += gap[~np.isnan(gap)].tolist()
    return np.array([np.mean(x) if x else np.nan for x in each])


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])
def test_errors_of_forecasts_are_those_of_a_slow_loop(gaps, close):
    empty = 0
    for seed in range(4):
        params, cohort = random_problem(seed, SHAPE, gaps=gaps, ragged=True, radius=0.9)
        wanted = slow_errors(params, cohort, np.ones(2))
        seen = np.isfinite(wanted)
        empty += (~seen).sum()
        for found in (
            forecast_errors(params, cohort),
            exact_errors(lds_forecaster(params), cohort),
        ):
            assert (np.isfinite(found) == seen).all()
            close("forecast_errors", found[seen], wanted[seen])
        scale, held = np.array([0.5, 3.0]), np.arange(len(cohort)) % 2 == 0
        density, error = scores(params, cohort, held, scale)
        at = held & seen
        close("held_out errors", error[seen[held]], slow_errors(params, cohort, scale)[at])
        close("held_out density", density, np.asarray(log_likelihood(params, cohort))[held])
    assert empty or not gaps  # a sequence of one step, or of none with a value, is among them


# ---- rules, by hand


def made(density, error=None, cells=None, fold=None, **columns):
    """Scores, and a table with the columns that rules read."""
    density = np.array(density, float)
    k, N = density.shape
    error = -density if error is None else np.array(error, float)
    cells = np.ones(N) if cells is None else np.array(cells, float)
    fold = np.arange(N) if fold is None else np.array(fold)
    table = {"n_states": [2] * k, "nonzero": range(k), "explodes": [False] * k, "bic": range(k)}
    table |= {"candidate": ["one"] * k, "beta": np.arange(k, 0, -1.0)}
    return pd.DataFrame(table | columns), HeldOut(density, error, cells, fold)


def test_one_se_goes_by_the_paired_difference():
    """Sequences differ by far more than models: by unpaired errors all models would be alike."""
    level = np.array([-100.0, 0.0, 100.0, 50.0])
    worse = level - 1.0 - np.array([0.1, -0.1, 0.05, -0.05])  # always by about 1
    near = level - np.array([0.9, -0.6, 0.3, -0.5])  # a little, by chance
    table, found = made([worse, near, level], nonzero=[0, 1, 2])
    assert choose("best_density", table, found) == 2
    assert choose("one_se", table, found) == 1
    unpaired = level.std(ddof=1) / 2
    assert worse.mean() > level.mean() - unpaired  # would be taken, as the sparsest
    gap, se = found.density_gaps(2)
    np.testing.assert_allclose(gap, (level - np.array([worse, near, level])).mean(1), atol=1e-12)
    wanted = (level - np.array([worse, near, level])).std(1, ddof=1) / 2
    np.testing.assert_allclose(se, wanted, atol=1e-12)


def test_one_se_takes_the_fewest_entries_then_states_then_the_best():
    level = np.zeros(4)
    jitter = 0.1 * np.array([1.0, -0.9, 1.0, -0.9])
    rows = [level, level - jitter, level - 0.8 * jitter, level - 0.9 * jitter]
    for columns, wanted in (
        ({"nonzero": [5, 3, 3, 4], "n_states": [2, 2, 2, 2]}, 2),
        ({"nonzero": [5, 3, 3, 4], "n_states": [2, 1, 2, 2]}, 1),
        ({"nonzero": [5, 3, 3, 1], "n_states": [2, 1, 2, 3]}, 3),
    ):
        table, found = made(rows, **columns)
        assert choose("best_density", table, found) == 0
        assert choose("one_se", table, found) == wanted


def test_densities_are_for_one_value_and_gaps_are_a_ratio():
    """Long sequences count for more; a difference in proportion to the cells has no error."""
    cells = [1, 2, 5]
    table, found = made([[-1, -2, -5], [-2.0, -4, -10]], cells=cells)
    np.testing.assert_allclose(found.densities(), [-1.0, -2.0])
    gap, se = found.density_gaps(0)
    np.testing.assert_allclose(gap, [0.0, 1.0])
    np.testing.assert_allclose(se, 0.0, atol=1e-12)


def test_best_error_and_best_bic_read_their_own_scores():
    error = [[0.5, np.nan, 0.6], [0.4, np.nan, 0.6], [0.9, np.nan, 0.0]]
    table, found = made([[3, 3, 3], [2, 2, 2], [1, 1, 1.0]], error, bic=[9.0, 8.0, 7.5])
    assert choose("best_density", table, found) == 0
    assert choose("best_error", table, found) == 2
    assert choose("best_bic", table, found) == 2
    np.testing.assert_allclose(found.errors(), [0.55, 0.5, 0.45])
    gap, se = found.error_gaps(2)
    np.testing.assert_allclose(gap, [0.1, 0.05, 0.0], atol=1e-12)
    np.testing.assert_allclose(se[:2], [0.5, 0.55], rtol=1e-12)  # (-0.4, 0.6), (-0.5, 0.6)
    assert choose("best_error", table, found, np.array([True, True, False])) == 1


def test_of_structures_with_all_but_equal_errors_the_first_is_taken():
    """Within a quarter of a standard error of the paired difference; of one structure always the least error."""
    least = np.array([0.5, 0.6, 0.4, 0.7])
    noise = np.array([0.1, -0.1, 0.1, -0.1])  # a standard error of 0.058
    error = [least + 0.2, least + 0.01 + noise, least + 0.05 + noise, least]
    names = ["a", "b", "c", "d"]
    table, found = made(np.zeros((4, 4)), error, candidate=names)
    assert choose("best_error", table, found) == 1  # 0.01 is within 0.014, and b comes before d
    table, found = made(np.zeros((4, 4)), error, candidate=["a", "a", "a", "d"])
    assert choose("best_error", table, found) == 1  # the best of a
    table, found = made(np.zeros((4, 4)), error, candidate=["d", "b", "b", "b"])
    assert choose("best_error", table, found) == 3
    table, found = made(np.zeros((4, 4)), error)
    assert choose("best_error", table, found) == 3


def test_models_that_explode_are_left_out_unless_all_do():
    rows = [[3.0, 3.0], [2.0, 2.5], [1.0, 1.0]]
    bic = [1.0, 2.0, 3.0]
    for rule in ("best_density", "best_error", "one_se", "best_bic"):
        table, found = made(rows, explodes=[True, False, False], bic=bic, nonzero=[0, 1, 2])
        assert choose(rule, table, found) == 1
        table, found = made(rows, explodes=[True] * 3, bic=bic, nonzero=[0, 1, 2])
        assert choose(rule, table, found) == 0
    with pytest.raises(ValueError, match="rule is 'best'; it may be 'best_density', the largest"):
        choose("best", table, found)


def test_a_choice_judges_by_the_sequences_asked_for_and_honest_rows_by_the_other_folds():
    rows = [[9.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]  # the first sequence alone speaks for row 0
    table, found = made(rows, fold=[0, 0, 1, 2])
    assert choose("best_density", table, found) == 0
    assert choose("best_density", table, found, np.array([False, True, True, True])) == 1
    assert choose("best_density", table, found, [0, 1]) == 0
    result = Selection(table, found, (), "best_density")
    assert result.honest_rows().tolist() == [1, 1, 0, 0]
    assert result.honest_rows("best_bic").tolist() == [0, 0, 0, 0]
    assert result.best_density.beta == 2.0 and result.best_density.candidate == "one"


# ---- select

CORE = np.array([[0.9, 0.0], [0.5, 0.6]])
TRUTH = LDSParams(CORE, np.eye(2), 0.2 * np.eye(2), 0.1 * np.eye(2), np.zeros(2), np.eye(2))
LEVELS = [
    Candidate("to zero", 2, Laplace(1.0), Constraints.levels(independent=True)),
    Candidate("persistent", 2, Laplace.towards_persistence(1.0), Constraints.levels()),
]


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(3), TRUTH, [10] * 24).cohort


@pytest.fixture(scope="module")
def chosen(cohort):
    return select(
        cohort, candidates=LEVELS, n_betas=4, n_folds=3, priors="weak", max_iter=60, smallest=0.01
    )


def test_the_table_is_that_of_the_scores(cohort, chosen):
    table, found = chosen.table, chosen.held_out
    assert len(table) == len(chosen.fits) == len(found.density)
    numbers = table.drop(columns="candidate").to_numpy(float)
    assert np.isfinite(numbers).all() and set(table["candidate"]) == {"to zero", "persistent"}
    np.testing.assert_allclose(table["density"], found.density.sum(1) / found.cells.sum())
    np.testing.assert_allclose(table["error"], found.error.mean(1))
    assert table["density_gap"].min() == 0 == table["error_gap"].min()
    assert found.cells.tolist() == [20.0] * 24 and set(found.fold) == {0, 1, 2}
    for rule in ("best_density", "best_error", "one_se", "best_bic"):
        row = table.iloc[choose(rule, table, found)]
        choice = chosen.choice(rule)
        assert (choice.candidate, choice.n_states) == (row["candidate"], row["n_states"])
        assert choice.beta == row["beta"]
    assert chosen.best_density.beta == table.loc[table["density"].idxmax(), "beta"]
    assert chosen.fit.log_likelihood == chosen.fits[table["density"].idxmax()].log_likelihood
    for name, part in table.groupby("candidate", sort=False):
        assert (np.diff(part["beta"]) < 0).all(), name
    for fit, (_, row) in zip(chosen.fits, table.iterrows(), strict=True):
        assert row["nonzero"] == (~fit.zeros).sum() and row["bic"] == bic(fit, cohort)


def test_scores_are_of_fits_without_the_fold_at_a_scaled_beta(cohort):
    """Fits made again to the other folds alone; one at the β of the whole cohort scores otherwise."""
    kept, scale = LEVELS[0], np.asarray(cohort.y).std((0, 1))
    options = {"priors": "weak", "tol": 1e-6, "max_iter": 500}
    found = select(cohort, candidates=[kept], betas=[20.0], n_folds=2, **options).held_out
    held = found.fold == 1
    rest = cohort.take(~held)
    assert scaled_beta(20.0, cohort, rest) == 10.0

    def judged(beta):
        alone = fit_map(rest, 2, Laplace(beta), constraints=kept.constraints, **options)
        return scores(alone.params, cohort, held, scale)

    density, error = judged(10.0)
    np.testing.assert_allclose(found.density[0, held], density, atol=1e-3)
    np.testing.assert_allclose(found.error[0, held], error, atol=1e-4)
    assert np.abs(judged(20.0)[0] - density).max() > 0.05


def test_bic_counts_steps_and_free_parameters(cohort, chosen):
    fit = chosen.fits[0]
    assert fit.constraints == LEVELS[0].constraints  # C = I, Q and R diagonal
    free = 2 + 2 + 2 + 3 + int((~fit.zeros).sum())  # Q, R, pi1, V1, A
    wanted = -2 * fit.log_likelihood + np.log(240) * free
    np.testing.assert_allclose(bic(fit, cohort), wanted, rtol=1e-12)


def test_a_grid_goes_on_where_its_smallest_beta_is_best(cohort):
    """Strong links and a grid that ends at 0.3 of its largest β: all of it shrinks too much."""
    kept = LEVELS[0]
    options = {"candidates": [kept], "n_folds": 3, "priors": "weak", "max_iter": 60, "tol": 1e-3}
    found = select(cohort, n_betas=2, smallest=0.3, **options)
    betas = found.table["beta"].to_numpy()
    np.testing.assert_allclose(betas[1] / betas[0], 0.3)
    assert len(betas) > 2 and (np.diff(betas) < 0).all() and (len(betas) - 2) % 3 == 0
    np.testing.assert_allclose(betas[1:] / betas[:-1], 0.3, rtol=1e-9)  # at the same distance
    assert found.best_density.beta < betas[1]
    given = select(cohort, betas=betas[:2], **options)  # a grid that is given is kept
    assert given.table["beta"].tolist() == betas[:2].tolist()


def test_a_warm_path_ends_where_single_fits_do(cohort):
    options = {"constraints": LEVELS[1].constraints, "priors": "weak", "max_iter": 500}
    grid = [200.0, 50.0, 10.0, 2.0, 0.5]
    warm, cold = (
        regularization_path(cohort, 2, LEVELS[1].prior, betas=grid, warm=w, **options)
        for w in (True, False)
    )
    gap = warm.table()["objective"] - cold.table()["objective"]
    assert (gap > -0.1).all()
    for near, before, far in zip(warm.fits[:-1], warm.fits[1:], cold.fits[:-1], strict=True):
        A = (
            before.params.A
        )  # begun there, a step of EM raises the objective from what it is at the new β
        start = before.objective[-1] - float(before.prior.log_prob(A) - near.prior.log_prob(A))
        assert near.objective[0] >= start - 1e-6
        assert abs(near.objective[0] - far.objective[0]) > 1e-3
    assert warm.table()["n_iter"][:-1].sum() < cold.table()["n_iter"][:-1].sum()


def test_an_interruption_keeps_the_structures_that_are_done(cohort, monkeypatch):
    calls, original, stop = [], loop.run, [np.inf]

    def interrupted(*args):
        calls.append(1)
        if len(calls) >= stop[0]:
            stop[0] = np.inf
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(loop, "run", interrupted)
    options = {"betas": [5.0, 1.0], "n_folds": 2, "priors": "weak", "max_iter": 20}
    whole = select(cohort, candidates=LEVELS, **options)
    n = len(calls)
    calls.clear()
    stop[0] = n - 1  # within the second structure
    part = select(cohort, candidates=LEVELS, **options)
    assert len(calls) <= n and set(part.table["candidate"]) == {"to zero"}
    np.testing.assert_allclose(part.table["density"], whole.table["density"][:2])
    for first in (1, 3):  # in the first path, before a fit is done and after one
        calls.clear()
        stop[0] = first
        with pytest.raises(KeyboardInterrupt):
            select(cohort, candidates=LEVELS, **options)
        assert len(calls) == first  # nothing is fitted after Ctrl-C


def test_a_beta_given_twice_counts_once(cohort):
    options = {"candidates": LEVELS[:1], "n_folds": 2, "priors": "weak", "max_iter": 20}
    assert select(cohort, betas=[1.0, 5.0, 1.0], **options).table["beta"].tolist() == [5.0, 1.0]


def test_bad_selections_are_named(cohort):
    for change, message in (
        ({"rule": "best"}, "rule is 'best'"),
        ({}, "n_states is None; give it, or candidates"),
        ({"n_states": 2, "candidates": LEVELS}, "candidates is given, and n_states or prior"),
        ({"n_states": 2, "n_folds": 99}, "n_folds is 99"),
    ):
        with pytest.raises(ValueError, match=message):
            select(cohort, **change)
    with pytest.raises(ValueError, match="one sequence, and none to hold out: give beta"):
        select(cohort.take([0]), 2)
