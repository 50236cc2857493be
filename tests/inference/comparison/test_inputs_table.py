"""Verdicts on B: with all else held the likelihood of B is normal, so that Bayes factors have a closed form."""

from itertools import product

import jax
import numpy as np
import numpyro.distributions as dist
import oracles
import pytest
from scipy import stats
from scipy.special import betaln

from sparse_lds.experiments.saving import load_posterior, save_posterior
from sparse_lds.inference import Constraints, compare_map_posterior, fit_map, sample_posterior
from sparse_lds.inference.comparison.inputs import table_of_inputs
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.free import site_priors
from sparse_lds.inference.posterior.input_prior import InputPrior
from sparse_lds.models import Cohort, GammaLaplace, Laplace, LDSParams, SpikeSlab, simulate

L, P = 2, 2


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    I = np.eye(L)
    A, B = np.array([[0.7, 0.2], [0.0, 0.5]]), np.array([[0.6, 0.0], [0.1, 0.0]])
    truth = LDSParams(A, I, 0.3 * I, 0.2 * I, np.zeros(L), I, B=B, D=np.zeros((2, P)))
    u = [rng.normal(size=(8, P)) for _ in range(10)]
    drawn = simulate(jax.random.key(1), truth, [8] * 10, inputs=u).cohort
    cohort = Cohort.from_sequences(drawn.sequences(), inputs=u)
    fit = fit_map(
        cohort, L, Laplace(2.0), constraints=Constraints.levels().holding("D"), priors="weak"
    )
    return cohort, fit


def quadratic(cohort, fit):
    """Return g and H of the log-likelihood c + g'b - ½ b'Hb of b = vec B, by differences, which are exact."""

    def value(b):
        params = LDSParams(*fit.params[:6], B=b.reshape(L, P), D=fit.params.D)
        return oracles.log_likelihood(params, cohort).sum()

    n, e = L * P, np.eye(L * P)
    zero = value(np.zeros(n))
    ahead, back = (np.array([value(s * x) for x in e]) for s in (1, -1))
    H = np.array([[ahead[i] + ahead[j] - value(e[i] + e[j]) - zero for j in range(n)] for i in range(n)])  # fmt: skip
    return (ahead - back) / 2, H


def sampled(cohort, fit, **options):
    return sample_posterior(
        jax.random.key(0), cohort, fit, free=("B",), num_samples=2000, num_chains=2, num_predictive=0,
        **options,
    )  # fmt: skip


def test_bayes_factors_of_a_normal_prior_are_those_in_closed_form(fitted):
    cohort, fit = fitted
    posterior = sampled(cohort, fit)
    table = of_inputs(fit, posterior)
    sd = np.asarray(site_priors(cohort, fit, ("B",), {})["B"].base_dist.scale).ravel()
    g, H = quadratic(cohort, fit)
    V = np.linalg.inv(H + np.diag(sd**-2.0))
    m = V @ g
    s = np.sqrt(np.diagonal(V))
    wanted = stats.norm.logpdf(0, m, s) - stats.norm.logpdf(0, 0, sd)
    near = wanted > -8  # further out no draw is near 0
    assert near.sum() >= 2 and (~near).any()
    found = np.log(np.maximum(table["bayes_factor_zero"].to_numpy(), 1e-12))
    np.testing.assert_allclose(found[near], wanted[near], atol=0.3)
    assert (found[~near] < -4).all()
    np.testing.assert_allclose(table["contraction"], 1 - (s / sd) ** 2, atol=0.05)
    np.testing.assert_allclose(table["mean"], m, atol=5 * s.max() / np.sqrt(2000))
    assert table["verdict"].iloc[0] == "supported"  # a link of 0.6
    assert list(table.index.names) == ["state", "input"]


@pytest.mark.parametrize("family", ["normal", "laplace"])
def test_smoothed_densities_are_those_of_quadrature(family):
    scale, x = np.array([[0.3, 2.0]]), np.linspace(-60, 60, 2_000_001)
    prior = InputPrior(family, scale)
    for h in (0.0, 0.05, 1.0):
        for j, s in enumerate(scale[0]):
            own = {"normal": stats.norm, "laplace": stats.laplace}[family].pdf(x, 0, s)
            wanted = own[len(x) // 2] if h == 0 else np.trapezoid(own * stats.norm.pdf(x, 0, h), x)
            assert abs(prior.density_at_zero(h)[0, j] / wanted - 1) < 1e-6


def of_inputs(fit, posterior):
    """Return the table of B, for a posterior in which A was held."""
    table = table_of_inputs(fit, posterior, 0.95, 3.0, 0.5, None)
    assert table is not None
    return table


def test_spikes_have_the_probabilities_of_an_enumeration(fitted):
    cohort, fit = fitted
    posterior = sampled(cohort, fit, priors={"B": SpikeSlab(0.5)})
    table = of_inputs(fit, posterior)
    width = 0.5 * np.asarray(site_priors(cohort, fit, ("B",), {"B": SpikeSlab(0.5)})["B"].scale)
    g, H = quadratic(cohort, fit)
    n, sd = L * P, width.ravel()
    marginal, joint = {}, {}
    for gamma in product((0, 1), repeat=n):
        on = np.flatnonzero(gamma)
        J = H[np.ix_(on, on)] + np.diag(sd[on] ** -2.0)
        value = 0.5 * g[on] @ np.linalg.solve(J, g[on]) - 0.5 * np.linalg.slogdet(J)[1]
        marginal[gamma] = value - np.log(sd[on]).sum()
        joint[gamma] = marginal[gamma] + betaln(1 + len(on), 1 + n - len(on))
    top = max(joint.values())
    weights = {gamma: np.exp(x - top) for gamma, x in joint.items()}
    total = sum(weights.values())
    p_zero = [sum(w for c, w in weights.items() if not c[i]) / total for i in range(n)]
    ours = table["p_zero"].to_numpy()
    error = np.sqrt(np.maximum(ours * (1 - ours), 1e-3) / 400)  # at least 400 independent draws
    assert (np.abs(ours - p_zero) < 4 * error).all(), (ours, p_zero)
    data = az.group(posterior, "posterior")
    np.testing.assert_array_equal(data["included_B"].values, data["B"].values != 0)

    def of_one(i, value):  # with the others as their own prior has them
        others = [c for c in marginal if c[i] == value]
        k = [sum(c) - value for c in others]
        prior = [betaln(1 + x, n - x) - betaln(1, 1) for x in k]
        return sum(np.exp(marginal[c] + p - top) for c, p in zip(others, prior, strict=True))

    for i in range(n):
        wanted = of_one(i, 0) / of_one(i, 1)
        if 0.02 < p_zero[i] < 0.98:
            assert abs(np.log(table["bayes_factor_zero"].iloc[i] / wanted)) < 0.4


def test_a_comparison_has_rows_for_inputs_and_says_so(fitted, tmp_path):
    cohort, fit = fitted
    options = {"num_warmup": 100, "num_samples": 100, "num_chains": 2, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(2), cohort, fit, **options)
    save_posterior(posterior, tmp_path / "posterior.nc")
    for draws in (posterior, load_posterior(tmp_path / "posterior.nc")):
        comparison = compare_map_posterior(fit, draws, names=["a", "b"])
        assert comparison.inputs is not None and len(comparison.inputs) == 4
        assert len(comparison.table) == 4  # A's
        assert "Of the inputs:" in str(comparison)
        assert comparison.inputs.index[0] == ("a", str(cohort.inputs[0]))


def test_a_beta_of_B_that_was_chosen_does_not_judge(fitted):
    cohort, fit = fitted
    sparse = fit_map(cohort, L, Laplace(2.0, beta_B=30.0), constraints=fit.constraints)
    given = site_priors(cohort, sparse, ("B",), {})["B"]
    judge = site_priors(cohort, sparse, ("B",), {}, as_fitted=False)["B"]
    assert isinstance(given.base_dist, dist.Laplace) and isinstance(judge.base_dist, dist.Normal)
    assert (np.asarray(judge.base_dist.scale) > 10 * np.asarray(given.base_dist.scale)).all()
    assert "of B" not in str(GammaLaplace.like(sparse.prior))
