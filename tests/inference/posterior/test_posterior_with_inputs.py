"""NUTS with inputs: the model's density, draws against a posterior in closed form, and names, files and forecasts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracles
import pytest
from numpyro.infer.util import log_density
from oracles import random_problem
from scipy import stats

from sparse_lds.experiments.calibration import calibrate
from sparse_lds.experiments.saving import load_posterior, save_posterior
from sparse_lds.inference import (
    Constraints,
    diagnose,
    fit_em,
    fit_map,
    posterior_forecast,
    sample_posterior,
)
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.free import default_free, site_priors
from sparse_lds.models import (
    Cohort,
    Laplace,
    LDSParams,
    default_priors,
    explicit_lds_model,
    forecast,
    lds_model,
    log_likelihood,
    prepare,
    simulate,
)
from sparse_lds.models.kalman.complete import Complete

pytestmark = pytest.mark.interfaces


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])
def test_the_models_have_the_density_of_the_dense_gaussian(gaps):
    """By sequence, prepared, and with states as sites, whose density given the data is the dense Gaussian's."""
    params, cohort = random_problem(1, (2, 3, 3, 4), gaps=gaps, ragged=True, p=2)
    params = LDSParams(*map(jnp.asarray, params))
    args, priors = (cohort, 2, Laplace(2.0)), default_priors(cohort, 2)
    wanted = oracles.log_likelihood(params, cohort).sum() + Laplace(2.0).log_prob(params.A)
    wanted += sum(prior.log_prob(getattr(params, name)) for name, prior in priors.items())
    options = {"prepared": prepare(cohort, jnp.float64)}
    for found in (
        log_density(lds_model, args, {}, params._asdict())[0],
        log_density(lds_model, args, options, params._asdict())[0],
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    T = cohort.n_steps
    z = np.random.default_rng(0).normal(size=(T, 3, 2))
    for n, y in enumerate(cohort.sequences()):
        padded = np.full((T, 3), np.nan)
        padded[: len(y)] = y
        p = oracles.posterior(params, padded, u=np.asarray(cohort.u[n]))
        law = stats.multivariate_normal(p.z.ravel(), p.zz.reshape(2 * T, -1), allow_singular=True)
        wanted += law.logpdf(z[:, n].ravel())
    sites = {**params._asdict(), "z": jnp.asarray(z)}
    found, _ = log_density(explicit_lds_model, args, {}, sites)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def cohort_and_truth(intercept=False):
    rng = np.random.default_rng(0)
    A, I = np.array([[0.7, 0.2], [0.0, 0.5]]), np.eye(2)
    truth = LDSParams(A, I, 0.3 * I, 0.2 * I, np.zeros(2), I, B=[[1.0], [0.0]], D=[[0.0], [0.5]])
    truth = LDSParams(*(jnp.asarray(x) for x in truth))
    us = [rng.normal(size=(14, 1)) for _ in range(12)]
    cohort = simulate(jax.random.key(0), truth, [10] * 12, inputs=us, input_names=["dose"]).cohort
    ys = [np.where(rng.random(y.shape) < 0.1, np.nan, y) for y in cohort.sequences()]
    cohort = Cohort.from_sequences(ys, inputs=us, input_names=["dose"])
    return truth, cohort.with_intercept() if intercept else cohort


@pytest.fixture(scope="module")
def case():
    """B and D alone are free: their posterior is normal."""
    truth, cohort = cohort_and_truth()
    held = ("A", "C", "Q", "R", "V1", "pi1")
    fit = fit_em(cohort, 2, init=truth, hold=held)
    assert default_free(fit) == ("B", "D")
    options = {"num_warmup": 150, "num_samples": 400, "num_chains": 2}
    return cohort, fit, sample_posterior(jax.random.key(0), cohort, fit, **options)


def test_draws_of_B_and_D_follow_their_normal_posterior(case):
    cohort, fit, posterior = case
    priors = site_priors(cohort, fit, ("B", "D"), {})

    def log_posterior(x):
        B, D = x[:2, None], x[2:, None]
        params = fit.params._replace(B=B, D=D)
        prior = priors["B"].log_prob(B) + priors["D"].log_prob(D)
        return log_likelihood(params, cohort).sum() + prior

    x = jnp.zeros(4)
    g, H = jax.jit(jax.grad(log_posterior))(x), jax.jit(jax.hessian(log_posterior))(x)
    mean, cov = -np.linalg.solve(H, g), -np.linalg.inv(H)
    data = az.group(posterior, "posterior")
    draws = np.concatenate([data[name].values.reshape(800, 2) for name in ("B", "D")], axis=1)
    sd = np.sqrt(np.diagonal(cov))
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 0.2 * sd)
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.15)
    assert "never moved" not in diagnose(posterior).text


def test_names_files_and_forecasts(case, tmp_path):
    cohort, fit, posterior = case
    found = load_posterior(save_posterior(posterior, tmp_path / "posterior.nc"))
    for result in (posterior, found):
        data, constant = az.group(result, "posterior"), az.group(result, "constant_data")
        assert data["B"].dims == ("chain", "draw", "state", "input")
        assert data["D"].dims == ("chain", "draw", "channel", "input")
        assert data["input"].values.tolist() == ["dose"]
        assert constant["u"].dims == ("sequence", "time", "input")
        assert {"map_B", "map_D"} <= set(constant.data_vars)
        ahead = posterior_forecast(jax.random.key(1), result, cohort, 3, num_draws=200)
        wanted = forecast(fit.params, cohort, 3).mean
        assert np.abs(ahead.mean - np.asarray(wanted)).max() < 0.3
    more = posterior_forecast(
        jax.random.key(1), posterior, cohort, 3, num_draws=200, inputs=np.full((3, 1), 5.0)
    )
    other = forecast(fit.params, cohort, 3, inputs=np.full((3, 1), 5.0)).mean
    assert np.abs(more.mean - np.asarray(other)).max() < 1.0
    assert (more.mean - ahead.mean)[..., 0].min() > 1.0  # the first channel is moved by B
    with pytest.raises(ValueError, match="needs its input 'dose'"):
        posterior_forecast(jax.random.key(1), posterior, cohort, 5)
    bare = Cohort.from_sequences(cohort.sequences())
    with pytest.raises(ValueError, match="the posterior is of 1 inputs, the cohort has 0"):
        posterior_forecast(jax.random.key(1), posterior, bare, 3)


def test_a_column_that_is_not_there_stays_zero():
    """An intercept of the channels has no column of B; everything else that the basis allows is sampled."""
    _, cohort = cohort_and_truth(intercept=True)
    fit = fit_map(cohort, 2, Laplace(2.0), constraints=Constraints.levels(), priors="weak")
    options = {"num_warmup": 60, "num_samples": 30, "num_chains": 1, "num_predictive": 5}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, **options)
    data = az.group(posterior, "posterior")
    assert {"A", "B", "D", "Q", "R", "pi1", "V1"} == set(str(data.attrs["free"]).split())
    B, D = data["B"].values, data["D"].values
    np.testing.assert_array_equal(B[..., 1], 0)
    assert (np.ptp(B[..., 0], axis=(0, 1)) > 0).all() and (np.ptp(D, axis=(0, 1)) > 0).all()
    assert az.group(posterior, "posterior_predictive")["y"].shape[2:] == cohort.y.shape
    assert set(az.group(posterior, "prior").data_vars) >= {"A", "B", "D"}
    np.testing.assert_array_equal(az.group(posterior, "prior")["B"].values[..., 1], 0)


def test_ranks_of_the_truth_are_uniform_with_inputs():
    """And are not where the posterior sees other inputs than moved the states."""
    I = np.eye(2)
    params = LDSParams(0 * I, I, 0.5 * I, 0.2 * I, np.zeros(2), I, B=0 * I, D=0 * I)
    us = list(np.random.default_rng(0).normal(size=(10, 6, 2)))
    priors = {"B": dist.Normal(jnp.zeros((2, 2)), 0.5).to_event(2)}
    options = {"free": ("A", "B"), "priors": priors, "n_simulations": 40, "n_draws": 39, "thin": 3}
    run = partial(calibrate, jax.random.key(1), params, prior=Laplace(3.0), **options)
    good = run(inputs=us, num_warmup=100, lengths=[6] * 10).table(bins=5)
    assert {"A[0, 0]", "B[1, 1]"} <= {*good.index}
    assert good[["chi2_p", "ks_p"]].min().min() > 0.05 / (2 * len(good))
    with pytest.MonkeyPatch.context() as patch:
        true = Complete.log_likelihood
        wrong = lambda data, p: true(data._replace(u=2 * data.u), p)  # noqa: E731
        patch.setattr(Complete, "log_likelihood", wrong)
        bad = run(inputs=[u[:5] for u in us], num_warmup=101, lengths=[5] * 10).table(bins=5)
    assert bad[["chi2_p", "ks_p"]].min().min() < 1e-3
    with pytest.raises(ValueError, match="params have 2 inputs, and inputs is None"):
        run(lengths=[6] * 10)
