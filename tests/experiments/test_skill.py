"""The skill of a model: its errors and the baselines', by hand on the same folds, and what is said of them."""

import jax
import numpy as np
import pytest
from scipy.stats import ttest_rel

from sparse_lds.experiments.skill import MODEL, skill
from sparse_lds.inference import Constraints, Selection, fit_map, forecast_errors, select
from sparse_lds.models import Cohort, Laplace, LDSParams, log_likelihood, simulate

A = np.array([[0.9, 0.0], [0.7, 0.2]])  # the second channel follows the first: no baseline knows
STRONG = LDSParams(A, np.eye(2), 0.05 * np.eye(2), 0.3 * np.eye(2), np.zeros(2), np.eye(2))


def chosen_on(cohort):
    return select(
        cohort, 2, constraints=Constraints.levels(), priors="weak", betas=[20.0, 1.0], n_folds=3,
        max_iter=60, tol=1e-3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cohort():
    """A short cohort with gaps, of different lengths."""
    drawn = simulate(jax.random.key(0), STRONG, [8] * 15).cohort
    y, rng = np.array(drawn.y), np.random.default_rng(0)
    y[rng.random(y.shape) < 0.2] = np.nan
    return Cohort.from_sequences([x[: rng.integers(4, 9)] for x in y]).standardize()


@pytest.fixture(scope="module")
def chosen(cohort):
    return chosen_on(cohort)


def by_hand(cohort, forecast):
    """The error of each patient, in the cohort's standardised units: every pair of steps, one at a time."""
    found = []
    for n, y in enumerate(cohort.sequences()):
        gaps = []
        for psi in range(1, len(y)):
            for phi in range(psi + 1, len(y) + 1):
                gaps += np.abs(forecast(n, y[:psi], phi - psi) - y[phi - 1]).tolist()
        found.append(np.nanmean(gaps))
    return np.array(found)


def carried(y, mean):
    """The last value of each channel so far, or the mean."""
    out = np.array(mean, float)
    for row in y:
        out = np.where(np.isnan(row), out, row)
    return out


def test_errors_are_those_made_by_hand_on_the_folds(cohort, chosen):
    """Baselines from the other folds only; the model's at the β that the other folds choose."""
    shown, fold, sequences = skill(cohort, chosen), chosen.held_out.fold, cohort.sequences()
    train = {
        k: [y for y, f in zip(sequences, fold, strict=True) if f != k] for k in np.unique(fold)
    }
    mean = dict.fromkeys(train, np.zeros(2))  # of the whole cohort, as for the model
    wanted = {
        "last value": by_hand(cohort, lambda n, y, h: carried(y, mean[fold[n]])),
        "channel mean": by_hand(cohort, lambda n, y, h: mean[fold[n]]),
        MODEL: chosen.held_out.error[chosen.honest_rows(), np.arange(len(cohort))],
    }
    steps = {}
    for k, ys in train.items():  # y_t = b + B y_{t-1} by normal equations, channel by channel
        rows = [(carried(y[:t], mean[k]), y[t]) for y in ys for t in range(1, len(y))]
        X = np.array([[1.0, *before] for before, _ in rows])
        Y = np.array([after for _, after in rows])
        seen = ~np.isnan(Y)
        steps[k] = np.array(
            [np.linalg.solve(X[s].T @ X[s], X[s].T @ Y[s, j]) for j, s in enumerate(seen.T)]
        )

    def vector(n, y, h):
        now = carried(y, mean[fold[n]])
        for _ in range(h):
            now = steps[fold[n]] @ [1.0, *now]
        return now

    wanted["VAR(1)"] = by_hand(cohort, vector)
    # the cohort is standardised already, so that its units are those of the errors
    for name, error in wanted.items():
        np.testing.assert_allclose(shown.by_patient[name], error, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(shown.table.loc[name, "error"], error.mean(), rtol=1e-9)


def test_the_model_is_scored_by_fits_that_have_not_seen_the_patient(cohort, chosen):
    shown, fold, rows = skill(cohort, chosen), chosen.held_out.fold, chosen.honest_rows()
    n = 0
    rest = cohort.take(fold != fold[n])
    beta = chosen.table["beta"][rows[n]]
    lengths = np.asarray(cohort.lengths)
    share = (lengths[fold != fold[n]] - 1).sum() / (lengths - 1).sum()
    fit = fit_map(
        rest, 2, Laplace(beta * share), constraints=Constraints.levels(), priors="weak", tol=1e-5
    )
    np.testing.assert_allclose(
        shown.by_patient[MODEL].iloc[n], forecast_errors(fit.params, cohort)[n], atol=0.02
    )
    assert np.isfinite(log_likelihood(fit.params, cohort)).all()


def test_the_table_is_made_of_the_errors(cohort, chosen):
    shown = skill(cohort, chosen)
    errors, table = shown.by_patient, shown.table
    assert list(errors.index) == list(cohort.ids) and not errors.isna().any().any()
    baselines = [name for name in table.index if name != MODEL]
    for name in baselines:
        row = table.loc[name]
        np.testing.assert_allclose(row["skill"], 1 - errors[MODEL].mean() / errors[name].mean())
        np.testing.assert_allclose(row["p"], ttest_rel(errors[name], errors[MODEL]).pvalue)
        np.testing.assert_allclose(row["patients better"], (errors[MODEL] < errors[name]).mean())
    assert shown.best == errors[baselines].mean().idxmin()
    assert shown.score == table.loc[shown.best, "skill"]


def test_strong_dynamics_are_seen_and_white_noise_is_not_called_skill():
    strong = simulate(jax.random.key(1), STRONG, [8] * 60).cohort.standardize()
    noise = np.random.default_rng(2).normal(size=(60, 8, 2))
    white = Cohort.from_array(noise).standardize()
    heads = []
    for cohort in (strong, white):
        shown = skill(cohort, chosen_on(cohort))
        heads.append(str(shown).split("\n")[0])
        assert heads[-1].startswith("Forecasts") == shown.beats_baselines
    assert heads[0].startswith("Forecasts of held-out patients are better than by")
    assert "skill +" in heads[0]
    assert heads[1].startswith("This model") and "are better" not in heads[1]
    assert any(words in heads[1] for words in ("no better than", "not surely better", "does NOT"))


def test_a_clear_loss_is_said_loudly(cohort, chosen):
    """Errors twice as large as they are: worse than the best baseline, and not by chance."""
    worse = chosen.held_out._replace(error=3 * chosen.held_out.error)
    shown = skill(cohort, Selection(chosen.table, worse, chosen.fits, chosen.rule))
    assert not shown.beats_baselines and shown.score < 0
    assert str(shown).startswith("This model does NOT forecast held-out patients as well as")


def test_patients_without_a_later_value_do_not_count():
    drawn = simulate(jax.random.key(3), STRONG, [6] * 9).cohort
    sequences = [*drawn.sequences(), np.array([[0.1, 0.2]])]
    cohort = Cohort.from_sequences(sequences).standardize()
    shown = skill(cohort, chosen_on(cohort))
    assert shown.by_patient.iloc[-1].isna().all()
    assert np.isfinite(shown.table.drop(columns=["skill", "p", "patients better"])).all().all()
    np.testing.assert_allclose(
        shown.table.loc["last value", "se"],
        shown.by_patient["last value"][:-1].std(ddof=1) / 3,
    )
