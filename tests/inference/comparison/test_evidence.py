"""What the data added to the prior, against quadrature, closed forms, and draws without any data."""

from functools import partial

import jax
import numpy as np
import pytest
from made_posteriors import fit_of, posterior_of
from scipy import integrate, stats

from sparse_lds.inference import compare_map_posterior, fit_map, sample_posterior
from sparse_lds.inference.comparison.evidence import (
    Added,
    added,
    contraction,
    prior_draws,
    savage_dickey,
    smoothed,
    verdicts,
)
from sparse_lds.inference.comparison.rules import RULES
from sparse_lds.inference.comparison.sparse_summary import sparse_summary
from sparse_lds.models import (
    Flat,
    GammaLaplace,
    GroupLaplace,
    Horseshoe,
    Laplace,
    LDSParams,
    SpikeSlab,
    simulate,
)

PRIORS = {
    "laplace": Laplace(5.0),
    "learned": GammaLaplace(),
    "persistence": GammaLaplace(1.0, 0.1, Laplace.towards_persistence(1.0)),
    "rows": GammaLaplace(2.0, 0.2, GroupLaplace(1.0, "rows")),
    "spikes": SpikeSlab(),
    "few": SpikeSlab(0.5, 1.0, 3.0),
}


def by_quadrature(density, m, s, n, rng):
    """Return the Bayes factor of zero, and draws, of θ with a prior density and one observation m ~ N(θ, s²)."""

    def joint(x):
        return density(x) * stats.norm.pdf(m, x, s)

    edges = {"points": [0.0, m], "limit": 400}
    evidence = integrate.quad(joint, -10, 10, **edges)[0]
    grid = np.sort(np.concatenate([np.linspace(-10, 10, 200_001), [0.0]]))
    cdf = np.cumsum(joint(grid))
    draws = np.interp(rng.random(n), cdf / cdf[-1], grid)
    return stats.norm.pdf(m, 0, s) / evidence, draws


@pytest.mark.parametrize(("m", "s"), [(0.0, 0.05), (0.1, 0.1), (0.4, 0.15), (0.0, 2.0), (0.3, 0.1)])
@pytest.mark.parametrize("kind", ["laplace", "learned"])
def test_the_bayes_factor_of_a_normal_mean(kind, m, s):
    """The marginal of Laplace is beta/2 exp(-beta |x|), that of GammaLaplace(a, b) a / 2b (1 + |x|/b)^-(a+1)."""
    rng = np.random.default_rng(0)
    prior = PRIORS[kind]
    density = {
        "laplace": lambda x: 2.5 * np.exp(-5 * np.abs(x)),
        "learned": lambda x: 5.0 * (1 + np.abs(x) / 0.1) ** -2,
    }[kind]
    wanted, draws = by_quadrature(density, m, s, 4000, rng)
    found = added(draws[:, None, None], prior, prior_draws(prior, 1))
    assert np.log(found.bayes_factor_zero[0, 0]) == pytest.approx(np.log(wanted), abs=0.3)
    assert found.p_zero[0, 0] == pytest.approx(wanted / (1 + wanted), abs=0.08)


def test_a_peak_at_zero_is_not_flattened_away():
    """Of draws of the prior the Bayes factor is 1; by the density at its peak alone it would be far below."""
    rng = np.random.default_rng(0)
    x, y = (rng.laplace(size=(n, 20, 20)) for n in (1000, 4000))
    found = savage_dickey(x, np.full((20, 20), 0.5), partial(smoothed, y))
    assert found.mean() == pytest.approx(1.0, abs=0.02)
    assert savage_dickey(x, np.full((20, 20), 0.5)).mean() < 0.9


def test_the_bayes_factor_of_spikes_and_slabs():
    """θ = 0 or N(0, slab²), one observation: the ratio of the two normal densities of m; ω has mean a / (a + b)."""
    rng, slab, s = np.random.default_rng(0), 0.5, 0.2
    for m in (0.0, 0.2, 0.5):
        for a, b in ((1.0, 1.0), (1.0, 3.0)):
            wanted = stats.norm.pdf(m, 0, s) / stats.norm.pdf(m, 0, np.hypot(s, slab))
            p = wanted * b / (wanted * b + a)
            draws = rng.normal(size=(20_000, 1, 1)) * (rng.random((20_000, 1, 1)) > p)
            found = added(draws, SpikeSlab(slab, a, b), None)
            assert found.bayes_factor_zero[0, 0] == pytest.approx(wanted, rel=0.15)
            assert found.p_zero[0, 0] == (draws == 0).mean()
    never = added(np.ones((99, 1, 1)), SpikeSlab(), None)
    assert never.bayes_factor_zero[0, 0] == pytest.approx(0.5 / 99.5) and never.p_zero[0, 0] == 0


def test_what_others_tell_of_sparsity_is_no_evidence_on_an_entry():
    """Of one entry there are no data. Others, all large or nearly all included, tell β or ω: its Bayes factor is 1."""
    rng, n = np.random.default_rng(0), 20_000
    prior = GammaLaplace()
    A = np.full((n, 2, 2), 0.8) + 0.01 * rng.normal(size=(n, 2, 2))
    # β given the three others, then the entry given β
    beta = rng.gamma(1.0 + 3, 1 / (0.1 + np.abs(A[:, [0, 1, 1], [0, 0, 1]]).sum(1)))
    A[:, 0, 1] = rng.laplace(size=n) / beta
    found = added(A, prior, prior_draws(prior, 2)).bayes_factor_zero
    assert (
        found[0, 1] == pytest.approx(1.0, abs=0.15) and (found[[0, 1, 1], [0, 0, 1]] < 1e-3).all()
    )
    prior = SpikeSlab(0.5, 1.0, 2.0)
    A = rng.normal(size=(n, 4, 4))
    A[:, 0, :2] = 0.0  # two of the 15 others
    A[rng.random(n) < (2 + 2) / (1 + 2 + 15), 3, 3] = 0.0  # ω given the others
    found = added(A, prior, None)
    assert found.bayes_factor_zero[3, 3] == pytest.approx(1.0, abs=0.1)
    assert found.p_zero[3, 3] == pytest.approx(4 / 18, abs=0.02)


def test_contraction_of_normals_and_of_constants():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 40_000, 3))
    found = contraction(0.3 + z[0] * [0.1, 0.5, 1.0], z[1])
    np.testing.assert_allclose(found, [0.99, 0.75, 0.0], atol=0.04)
    still = np.zeros((10, 1))
    assert contraction(still, still) == 0 and contraction(still, z[0, :, :1]) == 1


def test_verdicts_by_hand():
    nan, inf = np.nan, np.inf
    factor = np.array([[4.0, 0.2, 1.0, 1.0], [4.0, 0.2, 1.0, 1.0], [nan, 0.0, inf, 3.0], [1.0] * 4])
    narrow = np.array([[0.9, 0.9, 0.9, 0.1]] * 3 + [[0.49, 0.51, nan, -9.0]])
    zero = np.array([[True] * 4, [False] * 4, [False] * 4, [True] * 4])
    judged = np.ones((4, 4), bool)
    judged[3, 3] = False
    found = verdicts(zero, Added(factor, factor, narrow), 3.0, 0.5, judged)
    assert found.tolist() == [
        ["supported", "contradicted", "undecided", "prior only"],
        ["contradicted", "supported", "undecided", "prior only"],
        ["not judged", "supported", "contradicted", "contradicted"],
        ["prior only", "undecided", "undecided", "not judged"],
    ]


@pytest.mark.parametrize("kind", PRIORS)
def test_without_data_the_prior_speaks(kind):
    """Draws of the prior in place of a posterior: no entry is supported or contradicted, and rules say the same."""
    prior = PRIORS[kind]
    A = np.asarray(prior.sample(jax.random.key(7), 3, (4, 1000)))
    A_map = np.where(np.eye(3) > 0, 0.5, prior.center_of(3))
    base = getattr(prior, "base", prior)
    fit = fit_of(A_map, Laplace(1.0, center=base.center))
    found = compare_map_posterior(fit, posterior_of(A, fit, prior=prior))
    t = found.table
    assert (t["verdict"] == "prior only").all()
    assert (np.abs(t["contraction"]) < 0.4).all()
    assert t["bayes_factor_zero"].between(0.7, 1.4).all()
    for rule in ("hdi", "neighbourhood"):
        assert (t[f"prior_{rule}"] == t[f"zero_{rule}"]).all()
    assert found.verdicts.loc["prior only"].tolist() == [6, 3]


def test_entries_without_a_prior_are_not_judged():
    """Free, forced, of a horseshoe, of another centre, or of an unknown prior."""
    rng = np.random.default_rng(0)
    A = rng.normal(0.5, 0.05, size=(4, 200, 2, 2))
    A[..., 0, 1] = 0.0
    fit = fit_of([[0.5, 0.0], [0.5, 0.5]])
    free = GammaLaplace(1.0, 0.1, Laplace(np.array([[0.0, np.inf], [1.0, 1.0]])))
    found = compare_map_posterior(fit, posterior_of(A, fit, prior=free), truth=A[0, 0] != 0)
    t = found.table
    assert t["verdict"].tolist() == ["not judged", "not judged", "supported", "supported"]
    assert t["contraction"].isna().tolist() == [True, True, False, False]
    for rule in RULES:
        assert t[f"prior_{rule}"].isna().tolist() == [True, True, False, False]
    np.testing.assert_array_equal(t["p_zero"].round(3), [np.nan, 1, 0, 0])
    assert found.scores.loc["posterior", "f1"] == 1.0  # what is forced is zero, what is free is not
    for other in (None, Flat(), Horseshoe(), Laplace.towards_persistence(1.0)):
        found = compare_map_posterior(fit, posterior_of(A, fit, prior=other), truth=np.eye(2))
        off = [1, 2] if isinstance(other, Laplace) else []  # there both centres are zero
        assert (found.table["verdict"].drop(found.table.index[off]) == "not judged").all()
    own = posterior_of(A, fit, prior=None, prior_json='{"kind": "MyOwn"}')
    assert (compare_map_posterior(fit, own).table["verdict"] == "not judged").all()


def test_the_report_leads_with_what_the_data_say():
    rng = np.random.default_rng(0)
    mean, sd = np.array([[0.8, 0.0], [0.5, 0.0]]), np.array([[0.05, 0.02], [0.05, 0.02]])
    A = mean + sd * rng.normal(size=(4, 500, 2, 2))
    fit = fit_of([[0.8, 0.0], [0.0, 0.1]])  # its second row is wrong
    posterior = posterior_of(A, fit, prior=Laplace(2.0), conditional=1)
    found = compare_map_posterior(fit, posterior)
    assert found.table["verdict"].tolist() == ["supported", "supported"] + 2 * ["contradicted"]
    text = str(found)
    order = ["supported", "at least 3 times", "prior of A was Laplace", "too narrow"]
    order += ["that the data contradict (2)", "By rules"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    strict = compare_map_posterior(fit, posterior, odds=1e9, contraction=0.9999)
    assert "at least 1e+09 times" in str(strict) and "contraction below 0.9999" in str(strict)
    assert strict.table["verdict"].loc[(0, 1)] == "prior only"
    assert "contradict no entry" not in text and "too narrow" not in str(
        compare_map_posterior(fit, posterior_of(A, fit, prior=Laplace(2.0)))
    )
    for wrong in ({"odds": 1.0}, {"contraction": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            compare_map_posterior(fit, posterior, **wrong)


def test_a_whole_row_of_the_sparse_summary_may_be_zero():
    rng = np.random.default_rng(0)
    draws = 0.01 * rng.laplace(size=(2000, 3, 3))
    draws[:, 1] += [0.9, 0.0, 0.0]
    found = sparse_summary(draws, 20 * np.eye(3))
    assert (found[[0, 2]] == 0).all() and found[1, 0] == pytest.approx(0.9, abs=0.05)


@pytest.mark.interfaces
def test_data_decide_where_there_are_any():
    """Two states, seen well, or under a noise of ten million times their variance."""
    rest = ("C", "Q", "R", "pi1", "V1")
    seen = {}
    for name, noise in (("much", 0.01), ("nothing", 1e7)):  # of one size: they share their programs
        A, I = np.array([[0.8, 0.0], [0.5, 0.6]]), np.eye(2)
        truth = LDSParams(A, I, 0.2 * I, noise * I, np.zeros(2), I)
        cohort = simulate(jax.random.key(0), truth, [30] * 20).cohort
        fit = fit_map(cohort, 2, Laplace(20.0), init=truth, hold=rest)
        for prior in (None, SpikeSlab()):
            posterior = sample_posterior(
                jax.random.key(1), cohort, fit, prior=prior, num_warmup=150, num_samples=500,
                num_chains=2, num_predictive=0,
            )  # fmt: skip
            seen[name, prior is None] = compare_map_posterior(fit, posterior, truth=A)
    for kind in (True, False):
        much = seen["much", kind]
        assert (much.table["verdict"] == "supported").all()
        assert (much.table["contraction"] > 0.9).all()
        assert much.scores.loc["posterior", "f1"] == 1.0
        # chains this short do not reach the far tails of the prior, so that `undecided` is allowed
        assert seen["nothing", kind].table["verdict"].isin(["prior only", "undecided"]).all()
