"""What a zero means: symmetries, alignment, basis-free quantities, rules of comparison, verdicts, and pictures."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import oracles
import pytest
from made_posteriors import fit_of, posterior_of
from scipy.linalg import expm

from sparse_lds.experiments.figures import (
    plot_eigenvalues,
    plot_forecast_fan,
    plot_forest,
    plot_path,
    plot_transition,
)
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    identifiability_report,
)
from sparse_lds.inference.alignment import align, relabelling
from sparse_lds.inference.comparison.sparse_summary import sparse_summary
from sparse_lds.inference.comparison.table import _confusion, _scores
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.basis_free import basis_free
from sparse_lds.inference.selection.path import Path
from sparse_lds.models import Cohort, LDSParams, change_basis

matplotlib.use("Agg")


def host(params) -> LDSParams:
    return LDSParams(*(np.asarray(x, float) for x in params))


@pytest.mark.parametrize(
    ("held", "count"),
    [
        ((), 16),
        (("R",), 16),
        (("C",), 8),
        (("Q",), 6),
        (("V1",), 6),
        (("Q", "V1"), 0),
        (("C", "V1"), 1),
        (("A",), 4),
    ],
)
def test_symmetries_are_counted_and_are_symmetries(held, count):
    """Counts by hand, for generic matrices of l = 4, d = 2; and the likelihood really does not change."""
    params, cohort = oracles.random_problem(0, oracles.Shape(4, 2, 3, 5))
    params = host(params)
    report = identifiability_report(params, held)
    assert report.n_directions == len(report.generators) == count
    before = oracles.log_likelihood(params, cohort).sum()
    for X in report.generators[:4]:
        moved = host(change_basis(params, expm(0.3 * X)))
        assert oracles.log_likelihood(moved, cohort).sum() == pytest.approx(before, rel=1e-9)
        for name in held:
            np.testing.assert_allclose(getattr(moved, name), getattr(params, name), atol=1e-9)
    text = str(report)
    assert ("no continuous change" in text) == (count == 0)
    assert count in (0, 16) or f"{count} direction" in text


def test_symmetries_have_names():
    params = host(oracles.random_params(np.random.default_rng(0), 3, 2))
    params = params._replace(Q=np.eye(3), C=np.array([[1.0, 0, 0], [0, 1, 0]]))
    assert "rotation of states 0 and 2" in str(identifiability_report(params, ("Q",)))
    # C does not see state 2: its scale, and others added to it
    report = identifiability_report(params, "C")
    assert set(report.named) == {
        "the scale of state 2", "state 0 added to state 2", "state 1 added to state 2"
    }  # fmt: skip
    with pytest.raises(ValueError, match="'Z'"):
        identifiability_report(params, ("Z",))


def test_relabellings_that_are_symmetries():
    params = host(oracles.random_params(np.random.default_rng(0), 3, 2))
    assert relabelling(params, LDSParams._fields) == "signed permutations"
    assert relabelling(params, ("A",)) == "none"
    everything_but_Q = tuple(k for k in LDSParams._fields if k != "Q")
    assert relabelling(params, everything_but_Q) == "none"
    assert relabelling(params._replace(Q=np.eye(3)), everything_but_Q) == "signed permutations"
    assert relabelling(params._replace(Q=np.diag([1.0, 2, 3])), everything_but_Q) == "signs"
    assert relabelling(params, LDSParams._fields, "signs") == "signs"
    assert relabelling(params, LDSParams._fields, "none") == "none"


@pytest.mark.parametrize("kind", ["signed permutations", "signs"])
def test_alignment_undoes_a_relabelling(kind):
    rng = np.random.default_rng(0)
    params = host(oracles.random_params(rng, 5, 3))
    W = np.zeros((200, 5, 5))
    for w in W:
        order = rng.permutation(5) if kind == "signed permutations" else np.arange(5)
        w[np.arange(5), order] = rng.choice([-1.0, 1.0], 5)
    A = W @ params.A @ W.swapaxes(1, 2) + 0.05 * rng.normal(size=(200, 5, 5))
    C = params.C @ W.swapaxes(1, 2) + 0.05 * rng.normal(size=(200, 3, 5))
    np.testing.assert_array_equal(
        align(A, C, params, kind) @ W, np.broadcast_to(np.eye(5), W.shape)
    )


def test_basis_free_quantities_are():
    rng = np.random.default_rng(0)
    for _ in range(5):
        params = host(oracles.random_params(rng, 4, 2))
        moved = host(change_basis(params, rng.normal(size=(4, 4)) + 2 * np.eye(4)))
        one, other = (basis_free(p.A, p.C, p.V1) for p in (params, moved))
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-8, atol=1e-8, err_msg=name)
        _, cov = oracles.joint(
            params, 3
        )  # of three z (4,) and three y (2,), stacked: Cov(y_3, y_1)
        np.testing.assert_allclose(one["markov"][2], cov[16:18, 12:14], rtol=1e-9, atol=1e-12)
    values = basis_free(np.array([[0.5, 0.4], [-0.4, 0.5]]), np.eye(2), np.eye(2))
    assert values["eigenvalue_imag"][0] > 0
    np.testing.assert_allclose(values["eigenvalue_modulus"], np.hypot(0.5, 0.4))


@pytest.fixture(scope="module")
def known():
    """Independent normal draws whose rules can be worked out by hand."""
    rng = np.random.default_rng(0)
    mean = np.array([[0.8, 0.0, 0.15], [0.3, 0.6, 0.0], [0.0, -0.2, 0.5]])
    sd = np.array([[0.05, 0.03, 0.1], [0.2, 0.05, 0.3], [0.02, 0.05, 0.05]])
    A = mean + sd * rng.normal(size=(4, 1000, 3, 3))
    fit = fit_of(np.where(np.abs(mean) < 0.2, 0.0, mean))
    return fit, posterior_of(A, fit)


@pytest.mark.interfaces
def test_rules(known):
    fit, posterior = known
    truth = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]])
    found = compare_map_posterior(fit, posterior, epsilon=0.1, prob=0.95, truth=truth)
    t = found.table
    # |mean| < 1.96 sd
    assert t["zero_hdi"].tolist() == [False, True, True, True, False, True, True, False, False]
    # Φ((0.1 - m)/s) - Φ((-0.1 - m)/s) > ½
    assert t["zero_epsilon"].tolist() == [
        False,
        True,
        False,
        False,
        False,
        False,
        True,
        False,
        False,
    ]
    # P(|x| < sd) > ½ where |mean|/sd < 1.0 nearly: 0 for means 0, 0.05 of 0.15/0.1 and 0.3/0.2
    assert t["zero_neighbourhood"].tolist() == [
        False,
        True,
        False,
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert t["p_sign"].loc[(0, 0)] == 1.0
    assert t["p_small"].loc[(1, 2)] == pytest.approx(0.261, abs=0.03)
    assert t["map_zero"].sum() == 4
    row = found.confusion.loc["hdi"]
    assert row.tolist()[:4] == [4, 0, 1, 4] and row["kappa"] == pytest.approx(32 / 41)
    assert found.scores.loc["map", "recall"] == pytest.approx(5 / 6)
    assert "exact zeros" in str(found)


def test_kappa_and_scores_by_hand():
    # Cohen's own kind of table: 20 yes-yes, 5, 10, 15 no-no: kappa 0.4
    one = np.repeat([True, True, False, False], [20, 5, 10, 15])
    two = np.repeat([True, False, True, False], [20, 5, 10, 15])
    assert _confusion(one, two)["kappa"] == pytest.approx(0.4)
    assert _confusion(one | True, one | True)["kappa"] == 1.0
    assert _scores(two, one) == pytest.approx(
        {"precision": 20 / 30, "recall": 20 / 25, "f1": 40 / 55}
    )
    assert np.isnan(_scores(one & False, one)["precision"])


def test_the_sparse_summary_is_sparse_and_good():
    """Row by row; and a state with wide draws leaves the rows of others as they are."""
    rng = np.random.default_rng(0)
    truth = np.diag([0.8, 0.6, 0.7, 0.5])
    truth[1, 0] = 0.4
    S00 = oracles.covariance(rng, 4) * 20
    root = np.linalg.cholesky(np.linalg.inv(S00))  # of the covariance of a row of A, for Q = I
    center = truth + rng.normal(size=(4, 4)) @ root.T
    draws = center + rng.normal(size=(2000, 4, 4)) @ root.T
    A = sparse_summary(draws, S00)

    def loss(A):
        E = A - draws.mean(0)
        return 0.5 * np.einsum("...ij,jk,...ik->...i", E, S00, E)

    assert (loss(A) <= np.median(loss(draws), axis=0) * (1 + 1e-9)).all()
    assert (A == 0).sum() >= 6
    assert (A[truth != 0] != 0).all()
    wide = draws.copy()
    wide[:, 3] = 30 * rng.normal(size=(2000, 4)) @ root.T
    np.testing.assert_allclose(sparse_summary(wide, S00)[:3], A[:3], atol=1e-6)


@pytest.mark.interfaces
def test_verdicts(known):
    fit, posterior = known
    assert diagnose(posterior).ok
    rng = np.random.default_rng(1)
    apart = rng.normal(size=(4, 300, 3, 3)) + np.arange(4)[:, None, None, None]
    bad = diagnose(posterior_of(apart, fit))
    assert not bad.ok and "have not mixed" in str(bad)
    signs = np.array([1, -1, 1, -1.0])
    W = np.stack([np.diag([1.0, s, 1.0]) for s in signs])[:, None]
    base = az.group(posterior, "posterior")["A"].values
    text = str(diagnose(posterior_of(W @ base @ W, fit, C=W)))
    assert "no change of basis alters has mixed" in text
    groups = {k: az.group(posterior, k) for k in ("posterior", "observed_data", "sample_stats")}
    stats = groups["sample_stats"]
    dims = stats["energy"].dims
    groups["sample_stats"] = stats.assign(
        diverging=(dims, np.ones(stats["energy"].shape, bool)),
        n_steps=(dims, np.full(stats["energy"].shape, 1023)),
        energy=(dims, np.cumsum(stats["energy"].values, axis=1)),
    )
    text = str(diagnose(az.assemble(groups)))
    for part in ("diverged", "target_accept", "as deep as allowed", "E-BFMI"):
        assert part in text


def test_verdicts_on_poor_runs(known):
    fit, _ = known
    rng = np.random.default_rng(0)
    one = diagnose(posterior_of(rng.normal(size=(1, 500, 3, 3)), fit))
    assert not one.ok and "one chain only" in str(one) and "nan" not in str(one)
    few = str(diagnose(posterior_of(rng.normal(size=(4, 20, 3, 3)), fit)))
    assert "more draws" in few and "modes" not in few
    still = diagnose(posterior_of(np.broadcast_to(np.eye(3), (4, 50, 3, 3)), fit))
    assert not still.ok and "did not move" in str(still)


def test_verdicts_on_the_question(known):
    """Draws may be sound, and still be of a model with a state too many, around no fit, or in no basis."""
    fit, posterior = known
    base = az.group(posterior, "posterior")["A"].values * np.array([1.0, 1.0, 0.0])
    base[..., 2] = 0.01 * np.random.default_rng(0).normal(size=base.shape[:-1])
    text = str(diagnose(posterior_of(base, fit)))
    assert "no draw uses more than 2" in text and "Fit 2 states" in text
    groups = {k: az.group(posterior, k) for k in ("posterior", "observed_data", "sample_stats")}
    why = {"directions_left": 6, "fit_converged": 0, "fit_reason": "stopped"}
    groups["posterior"] = groups["posterior"].assign_attrs(why)
    text = str(diagnose(az.assemble(groups)))
    assert "6 directions" in text and "had not converged (stopped)" in text


def test_scales_are_not_symmetries():
    """States of very different scales are told apart as well as others."""
    params = host(oracles.random_params(np.random.default_rng(0), 4, 2))
    moved = host(change_basis(params, np.diag([1.0, 1e-5, 1e3, 1e-2])))
    for held in (("Q", "V1"), ("C",), ("Q",), ()):
        counts = [identifiability_report(p, held).n_directions for p in (params, moved)]
        assert counts[0] == counts[1]


def test_forced_zeros_are_zeros_by_every_rule():
    A = np.random.default_rng(0).normal(0.5, 0.05, size=(4, 200, 2, 2))
    A[..., 0, 1] = 0.0
    fit = fit_of(np.array([[0.5, 0.0], [0.5, 0.5]]))
    row = compare_map_posterior(fit, posterior_of(A, fit)).table.loc[(0, 1)]
    assert row["agreement"] == 1.0 and row["p_sign"] == 0.0


def test_comparison_refuses(known):
    fit, posterior = known
    with pytest.raises(ValueError, match="3 states, the fit 2"):
        compare_map_posterior(fit_of(np.eye(2)), posterior)
    with pytest.raises(ValueError, match="another fit or cohort: its A"):
        compare_map_posterior(fit_of(np.eye(3)), posterior)
    with pytest.raises(ValueError, match="epsilon is 0"):
        compare_map_posterior(fit, posterior, epsilon=0)
    with pytest.raises(ValueError, match="prob is 95"):
        compare_map_posterior(fit, posterior, prob=95)
    with pytest.raises(ValueError, match="truth has shape"):
        compare_map_posterior(fit, posterior, truth=np.eye(2))
    A = az.group(posterior, "posterior")["A"].values
    with pytest.raises(ValueError, match="3 draws"):
        compare_map_posterior(fit, posterior_of(A[:1, :3], fit))
    with pytest.raises(ValueError, match="no group 'posterior'"):
        compare_map_posterior(fit, {})


@pytest.mark.interfaces
def test_pictures(known):
    import jax

    fit, posterior = known
    comparison = compare_map_posterior(fit, posterior)
    betas = np.array([10.0, 1.0, 0.1])
    path = Path(betas, (fit, fit, fit))
    cohort = Cohort.from_sequences([np.random.default_rng(0).normal(size=(8, 3))])
    figures = {
        "transition": plot_transition(comparison),
        "forest": plot_forest(comparison),
        "path": plot_path(path, comparison, 1.0),
        "eigenvalues": plot_eigenvalues(fit, posterior),
        "fan": plot_forecast_fan(jax.random.key(0), fit, posterior, cohort, 0, 5),
    }
    for name, figure in figures.items():
        figure.canvas.draw()
        for axis in figure.axes:
            assert axis.has_data(), name
    ticks = [t.get_text() for t in figures["forest"].axes[0].get_yticklabels()]
    assert ticks[0] == "A[0, 0]" and len(ticks) == 9
    for figure in figures.values():
        plt.close(figure)
    with pytest.raises(ValueError, match="given is 8"):
        plot_forecast_fan(jax.random.key(0), fit, posterior, cohort, 0, 8)
