"""The posterior around a fit: against quadrature, explicit states and calibration; what it holds and refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import oracles
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

from sparse_lds.experiments.calibration import calibrate
from sparse_lds.experiments.saving import load_posterior, save_posterior
from sparse_lds.inference import (
    diagnose,
    fit_em,
    fit_map,
    posterior_forecast,
    relaxed_fit,
    sample_posterior,
)
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior import chains as nuts
from sparse_lds.models import (
    Cohort,
    Flat,
    GammaLaplace,
    GroupLaplace,
    Horseshoe,
    Laplace,
    LDSParams,
    explicit_lds_model,
    forecast,
    lds_model,
    log_likelihood,
    prepare,
    simulate,
)
from sparse_lds.models.kalman.complete import Complete

HOLD = ("C", "Q", "R", "pi1", "V1")


def system(l=2, d=2) -> LDSParams:
    A = np.diag(np.linspace(0.8, 0.4, l))
    rng = np.random.default_rng(0)
    C = np.eye(d, l) + 0.2 * rng.normal(size=(d, l))
    parts = A, C, 0.3 * np.eye(l), 0.2 * np.eye(d), np.full(l, 0.1), np.eye(l)
    return LDSParams(*(jnp.asarray(x) for x in parts))


def cohort_of(params, N=12, T=10, gaps=0.0, seed=0) -> Cohort:
    cohort = simulate(
        jax.random.key(seed), params, [T] * N, channels=("Na", "K")[: params.n_channels]
    ).cohort
    if not gaps:
        return cohort
    rng = np.random.default_rng(seed)
    holes = [np.where(rng.random(y.shape) < gaps, np.nan, y) for y in cohort.sequences()]
    return Cohort.from_sequences(holes, channels=cohort.channels, ids=[f"p{i}" for i in range(N)])


@pytest.fixture(scope="module")
def case():
    """A cohort with gaps, a fit of A alone, and its posterior."""
    params = system()
    cohort = cohort_of(params, gaps=0.1)
    fit = fit_map(cohort, 2, Laplace(4.0), init=params, hold=HOLD)
    assert fit.converged
    posterior = sample_posterior(
        jax.random.key(0), cohort, fit, prior=fit.prior, num_warmup=150, num_samples=250
    )
    return cohort, fit, posterior


def log_posterior(cohort, fit, A):
    return float(log_likelihood(fit.params._replace(A=A), cohort).sum() + fit.prior.log_prob(A))


@pytest.mark.interfaces
def test_no_draw_is_above_the_map(case):
    cohort, fit, posterior = case
    lp = az.group(posterior, "sample_stats")["lp"].values
    top = log_posterior(cohort, fit, fit.params.A)
    assert top == pytest.approx(fit.objective[-1], rel=1e-9)
    assert lp.max() <= top + 1e-9
    # and the densities recorded are those of the draws
    A = az.group(posterior, "posterior")["A"].values
    for chain, draw in ((0, 0), (1, 100), (3, 249)):
        assert lp[chain, draw] == pytest.approx(
            log_posterior(cohort, fit, A[chain, draw]), rel=1e-9
        )


@pytest.mark.interfaces
def test_groups_dimensions_and_a_file(case, tmp_path):
    cohort, fit, posterior = case
    data = az.group(posterior, "posterior")
    assert posterior["posterior"]["A"].dims == ("chain", "draw", "state", "from_state")
    assert data["A"].shape == (4, 250, 2, 2)
    assert set(data.data_vars) >= {
        "A", "eigenvalue_modulus", "spectral_radius", "markov", "active_states", "log_likelihood_total"
    }  # fmt: skip
    found = az.group(posterior, "log_likelihood")["y"]
    assert found.dims == ("chain", "draw", "sequence")
    assert found["sequence"].values.tolist() == list(cohort.ids)
    A = data["A"].values[2, 7]
    np.testing.assert_allclose(
        found.values[2, 7], log_likelihood(fit.params._replace(A=A), cohort), rtol=1e-9
    )
    replicated = az.group(posterior, "posterior_predictive")["y"]
    assert replicated.dims == ("chain", "draw", "sequence", "time", "channel")
    assert replicated["channel"].values.tolist() == ["Na", "K"]
    prior = az.group(posterior, "prior")["A"].values
    assert prior.std() == pytest.approx(np.sqrt(2) / 4, rel=0.2)
    observed = az.group(posterior, "observed_data")["y"].values
    assert (np.isnan(observed) == ~np.asarray(cohort.mask)).all()
    assert {"prior_predictive", "constant_data"} <= set(az.group_names(posterior))

    again = load_posterior(save_posterior(posterior, tmp_path / "posterior.nc"))
    for name in ("posterior", "sample_stats", "log_likelihood", "observed_data", "prior"):
        assert az.group(again, name).equals(az.group(posterior, name))
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        load_posterior(tmp_path / "no-such-file.nc")


@pytest.mark.interfaces
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")  # ArviZ 0.23's own, with pandas 3
@pytest.mark.filterwarnings("ignore::pandas.errors.PandasChangeWarning")
def test_arviz_takes_it(case):
    import arviz

    cohort, fit, posterior = case
    loo = arviz.loo(posterior)
    elpd = float(getattr(loo, "elpd", getattr(loo, "elpd_loo", np.nan)))
    total = az.group(posterior, "posterior")["log_likelihood_total"].values
    assert total.min() - 30 < elpd < total.max()
    ranking = arviz.compare({"a": posterior, "b": posterior})
    assert len(ranking) == 2


@pytest.mark.interfaces
def test_intervals_are_the_shortest(case):
    _, _, posterior = case
    data = az.group(posterior, "posterior")[["A"]]
    found = az.hdi(data, 0.9)["A"].values
    for i, j in np.ndindex(2, 2):
        x = np.sort(data["A"].values[..., i, j].ravel())
        k = int(np.floor(0.9 * len(x)))
        width = x[k:] - x[: len(x) - k]
        assert found[i, j, 1] - found[i, j, 0] == pytest.approx(width.min(), rel=0.02)


@pytest.mark.interfaces
def test_a_sound_run_is_called_so(case):
    _, _, posterior = case
    verdict = diagnose(posterior)
    assert verdict.table.loc["A[0, 0]", "r_hat"] < 1.02
    assert int(az.group(posterior, "sample_stats")["diverging"].sum()) == 0
    # four chains of 250 draws: nothing severe, at most "try more draws"
    assert verdict.ok or "more draws" in str(verdict)


def test_quadrature_of_a_scalar_system():
    """l = d = 1: mean, sd and quantiles of A by a sum over a grid of the dense oracle."""
    params = LDSParams(
        *(jnp.asarray(x) for x in ([[0.6]], [[1.0]], [[0.5]], [[0.3]], [0.2], [[1.0]]))
    )
    cohort = cohort_of(params, N=3, T=5)
    prior = Laplace(3.0)
    fit = fit_map(cohort, 1, prior, init=params, hold=HOLD)
    posterior = sample_posterior(
        jax.random.key(1),
        cohort,
        fit,
        prior=prior,
        num_warmup=200,
        num_samples=1500,
        num_predictive=0,
    )
    a = np.linspace(-1.5, 2.0, 1401)
    host = LDSParams(*(np.asarray(x) for x in fit.params))
    log_p = np.array(
        [oracles.log_likelihood(host._replace(A=np.array([[x]])), cohort).sum() for x in a]
    )
    log_p = log_p - 3.0 * np.abs(a)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ a
    sd = np.sqrt(p @ (a - mean) ** 2)
    data = az.group(posterior, "posterior")[["A"]]
    draws = data["A"].values.ravel()
    ess = float(az.ess(data, "bulk")["A"].values[0, 0])
    assert ess > 500
    assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(ess)
    assert draws.std() == pytest.approx(sd, rel=4 / np.sqrt(ess))
    for q in (0.1, 0.5, 0.9):
        at = a[np.searchsorted(np.cumsum(p), q)]
        assert abs((draws < at).mean() - q) < 4 * np.sqrt(q * (1 - q) / ess)


def test_the_states_written_out_give_the_same_posterior():
    params = system(1, 1)
    cohort = cohort_of(params, N=4, T=5)
    prior = Laplace(3.0)
    fit = fit_map(cohort, 1, prior, init=params, hold=HOLD)
    posterior = sample_posterior(
        jax.random.key(1),
        cohort,
        fit,
        prior=prior,
        num_warmup=200,
        num_samples=1000,
        num_predictive=0,
    )
    data = az.group(posterior, "posterior")[["A"]]
    held = {k: v for k, v in fit.params._asdict().items() if k != "A"}
    mcmc = MCMC(NUTS(explicit_lds_model), num_warmup=300, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(2), cohort, 1, prior, held=held)
    other = np.asarray(mcmc.get_samples()["A"])[None, :, 0, 0]
    ours = data["A"].values.ravel()
    explicit = az.dataset({"a": other}, {})
    n = [float(az.ess(x, "bulk")[k].values.ravel()[0]) for x, k in ((data, "A"), (explicit, "a"))]
    assert min(n) > 200
    se = np.sqrt(ours.var() / n[0] + other.var() / n[1])
    assert abs(ours.mean() - other.mean()) < 4 * se
    assert ours.std() == pytest.approx(other.std(), rel=4 * np.sqrt(0.5 / n[0] + 0.5 / n[1]))


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_one_factor_is_the_same_density(gaps):
    params = system()
    cohort = cohort_of(params, N=40, gaps=gaps)  # more sequences than T d + 1: compressed
    held = {k: v for k, v in params._asdict().items() if k != "A"}
    prepared = prepare(cohort, jnp.float64)
    args, values = (cohort, 2, Laplace(2.0)), {"A": params.A}
    one = log_density(lds_model, args, {"held": held, "prepared": prepared}, values)[0]
    each = log_density(lds_model, args, {"held": held}, values)[0]
    assert float(one) == pytest.approx(float(each), rel=1e-12)


def test_same_key_same_draws_and_a_run_goes_on(case, tmp_path):
    cohort, fit, _ = case
    options = {"num_warmup": 60, "num_samples": 130, "num_chains": 2, "num_predictive": 0}

    def draws(**more):
        found = sample_posterior(jax.random.key(5), cohort, fit, **options, **more)
        return az.group(found, "posterior")["A"].values

    whole = draws()
    np.testing.assert_array_equal(whole, draws())
    # stopped in the midst of it, then run again
    told = []

    class Stop(Exception):
        pass

    def advanced(n):
        told.append(n)
        if len(told) == 4:
            raise Stop

    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        import sparse_lds.inference.posterior.sample as module

        patch.setattr(module, "run_chains", lambda *a: nuts.run_chains(*a[:-1], advanced))
        with pytest.raises(Stop):
            draws(folder=folder)
    assert list(folder.glob("chain*.npz"))
    np.testing.assert_array_equal(whole, draws(folder=folder))
    np.testing.assert_array_equal(whole, draws(folder=folder))  # finished: read, not sampled
    with pytest.raises(ValueError, match="another key"):
        sample_posterior(jax.random.key(6), cohort, fit, **options, folder=folder)


def test_ctrl_c_keeps_the_draws(case):
    cohort, fit, _ = case
    import sparse_lds.inference.posterior.sample as module

    def interrupted(key, target, settings, n, chains, folder, advanced):
        return nuts.run_chains(key, target, settings, n, chains, folder, advanced)._replace(
            interrupted=True
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run_chains", interrupted)
        found = sample_posterior(jax.random.key(0), cohort, fit, num_warmup=60, num_samples=50)
    assert "interrupted" in str(diagnose(found))


def test_forced_zeros_stay(case):
    cohort, fit, _ = case
    beta = np.array([[0.5, np.inf], [1.0, 2.0]])
    sparse = fit_map(cohort, 2, Laplace(beta), init=fit.params, hold=HOLD)
    found = sample_posterior(
        jax.random.key(0), cohort, sparse, num_warmup=60, num_samples=50, num_predictive=5
    )
    A = az.group(found, "posterior")["A"].values
    assert (A[..., 0, 1] == 0).all() and (A[..., 1, 0] != 0).all()
    assert (az.group(found, "prior")["A"].values[..., 0, 1] == 0).all()
    relaxed = relaxed_fit(cohort, sparse)
    found = sample_posterior(jax.random.key(0), cohort, relaxed, num_warmup=60, num_samples=50)
    assert (az.group(found, "posterior")["A"].values[..., 0, 1] == 0).all()
    assert "prior" not in az.group_names(found)  # the rest is flat


@pytest.mark.parametrize(
    "prior",
    [GammaLaplace(4.0, 1.0), Horseshoe(), GroupLaplace(2.0, by="rows")],
    ids=lambda p: type(p).__name__,
)
def test_other_priors(case, prior):
    cohort, fit, _ = case
    found = sample_posterior(
        jax.random.key(0),
        cohort,
        fit,
        prior=prior,
        num_warmup=200,
        num_samples=150,
        num_predictive=5,
    )
    data = az.group(found, "posterior")
    A = data["A"].values
    assert np.abs(A.mean((0, 1)) - np.asarray(fit.params.A)).max() < 0.25
    if isinstance(prior, GammaLaplace):
        # β | A ~ Gamma(4 + 4, 1 + Σ|A|), drawn for each draw of A
        scaled = data["beta"].values * (1 + np.abs(A).sum((-2, -1)))
        assert scaled.mean() == pytest.approx(8.0, rel=0.1)
        assert scaled.var() == pytest.approx(8.0, rel=0.3)


def test_a_beta_that_is_integrated_out_agrees_with_quadrature():
    """∫ p(A | β) p(β) dβ on a grid of β, free and forced entries included."""
    import scipy.stats

    beta = np.linspace(1e-4, 60, 200_001)
    hyper = scipy.stats.gamma(3.0, scale=1 / 2.0).pdf(beta)
    free = Laplace(np.array([[1.0, 0.0], [np.inf, 2.0]]))
    for seed, base in enumerate((Laplace(1.0), Laplace.towards_persistence(1.5), free)):
        A = np.random.default_rng(seed).normal(size=(2, 2)) * 0.5
        A[base.forced(2)] = 0.0
        weight, D = np.broadcast_to(base.beta, (2, 2)), np.abs(A - base.center_of(2))
        scales = [w for w in weight.ravel() if 0 < w < np.inf]
        total = sum(w * x for w, x in zip(weight.ravel(), D.ravel(), strict=True) if w < np.inf)
        given = np.prod([w * beta / 2 for w in scales], axis=0) * np.exp(-beta * total)
        expected = np.log(np.trapezoid(given * hyper, beta))
        found = float(GammaLaplace(3.0, 2.0, base).log_prob(A))
        assert found == pytest.approx(expected, abs=1e-6)


def test_the_horseshoe_starts_where_it_should():
    prior = Horseshoe(0.2, 1.5)
    A = jnp.asarray([[0.9, 0.0], [-0.3, 0.01]])
    with numpyro.handlers.trace() as tr, numpyro.handlers.substitute(data=prior.start(A)):
        np.testing.assert_allclose(prior.site(2), A, rtol=1e-12, atol=1e-15)
    assert set(tr) == {"tau", "slab2", "lambda", "A_unit", "A"}
    with pytest.raises(ValueError, match="scale is -1"):
        Horseshoe(-1)
    with pytest.raises(TypeError, match="Horseshoe"):
        fit_map(cohort_of(system()), 2, prior)


def test_joint_with_C_held(case):
    cohort, fit, _ = case
    found = sample_posterior(
        jax.random.key(0),
        cohort,
        fit,
        free=("A", "Q", "R"),
        num_warmup=150,
        num_samples=100,
        num_predictive=0,
    )
    data = az.group(found, "posterior")
    assert data["Q"].dims == ("chain", "draw", "state", "state_bis")
    assert np.linalg.eigvalsh(data["Q"].values).min() > 0
    assert data.attrs["alignment"] == "none"
    assert np.abs(data["A"].values.mean((0, 1)) - np.asarray(fit.params.A)).max() < 0.25


def test_a_free_basis_is_told(case):
    cohort, _, _ = case
    fit = fit_map(cohort, 2, Laplace(4.0), tol=1e-3, max_iter=500)
    if not fit.converged:
        pytest.skip("the fit with a free basis has not converged")
    with pytest.warns(UserWarning, match="4 directions of 4"):
        found = sample_posterior(
            jax.random.key(0),
            cohort,
            fit,
            free=LDSParams._fields,
            num_warmup=20,
            num_samples=10,
            num_chains=1,
            max_tree_depth=4,
            num_predictive=0,
        )
    assert az.group(found, "posterior").attrs["alignment"] == "signed permutations"
    flat = fit._replace(prior=Flat())
    with pytest.raises(ValueError, match="improper"):
        sample_posterior(jax.random.key(0), cohort, flat, prior=flat.prior, free=LDSParams._fields)


def test_bad_input(case):
    cohort, fit, posterior = case
    other = cohort_of(system(), seed=3)
    for message, call in {
        "free is empty": {"free": ()},
        "free names 'B'": {"free": ("B",)},
        "num_samples is 3": {"num_samples": 3},
        "num_chains is 0": {"num_chains": 0},
    }.items():
        with pytest.raises(ValueError, match=message):
            sample_posterior(jax.random.key(0), cohort, fit, **call)
    with pytest.raises(ValueError, match="another cohort"):
        sample_posterior(jax.random.key(0), other, fit)
    with pytest.raises(TypeError, match="LDSParams"):
        sample_posterior(jax.random.key(0), cohort, fit.params)
    with pytest.raises(ValueError, match="2 channels"):
        one = Cohort.from_sequences([y[:, :1] for y in cohort.sequences()])
        sample_posterior(jax.random.key(0), one, fit)
    rough = fit_em(cohort, 2, init=system(), hold=HOLD, max_iter=1, tol=0.0)
    with pytest.warns(UserWarning, match="not converged"):
        sample_posterior(
            jax.random.key(0), cohort, rough, num_warmup=20, num_samples=4, num_predictive=0
        )
    with pytest.raises(ValueError, match="horizon is 0"):
        posterior_forecast(jax.random.key(0), posterior, cohort, 0)
    with pytest.raises(ValueError, match="given is 11"):
        posterior_forecast(jax.random.key(0), posterior, cohort, 2, given=11)


def test_forecasts_of_a_posterior_without_spread(case):
    """All draws at the MAP: the pooled paths have the moments of `forecast`."""
    cohort, fit, posterior = case
    groups = {k: az.group(posterior, k) for k in ("posterior", "constant_data", "observed_data")}
    A = groups["posterior"]["A"]
    groups["posterior"] = groups["posterior"].assign(
        A=(A.dims, np.broadcast_to(np.asarray(fit.params.A), A.shape))
    )
    S = 1000
    found = posterior_forecast(jax.random.key(0), az.assemble(groups), cohort, 3, 6, num_draws=S)
    wanted = forecast(fit.params, cohort, 3, 6)
    sd = np.sqrt(np.diagonal(wanted.cov, axis1=-2, axis2=-1))
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-9, atol=1e-12)
    assert np.abs((found.draws.mean(0) - wanted.mean) / sd).max() < 5 / np.sqrt(S)
    assert np.abs(found.draws.std(0) / sd - 1).max() < 5 / np.sqrt(2 * S)
    low, high = found.interval(0.9)
    assert np.abs((low - wanted.mean) / sd + 1.645).mean() < 0.1
    covered = found.coverage(cohort, 0.9)
    assert covered.shape == (3, 2) and 0.6 < np.nanmean(covered) <= 1


def test_calibration():
    """Ranks of the truth are uniform; and are not when the likelihood is wrong."""
    params = system()._replace(A=jnp.zeros((2, 2)))
    options = {"n_simulations": 60, "n_draws": 39, "thin": 4, "num_warmup": 100}
    good = calibrate(jax.random.key(0), params, [6] * 10, Laplace(3.0), **options).table(bins=5)
    assert good[["chi2_p", "ks_p"]].min().min() > 0.05 / (2 * len(good))
    true_total = Complete.log_likelihood
    with pytest.MonkeyPatch.context() as patch:
        # a deliberate bug: every sequence counts four times
        patch.setattr(Complete, "log_likelihood", lambda data, p: 4 * true_total(data, p))
        # another number of steps: nothing compiled before is used
        bad = calibrate(jax.random.key(0), params, [7] * 10, Laplace(3.0), **options).table(bins=5)
    assert bad[["chi2_p", "ks_p"]].min().min() < 1e-3
    with pytest.raises(ValueError, match="Q is free"):
        calibrate(jax.random.key(0), params, [6], Laplace(3.0), free=("A", "Q"))


def test_a_users_own_site_for_A_has_nothing_of_the_fits_prior():
    """A prior with forced zeros, and an infinite curvature there, must not freeze it."""
    params = system()
    cohort = cohort_of(params)
    forced = Laplace(np.array([[1.0, np.inf], [1.0, 1.0]]))
    fit = fit_map(cohort, 2, forced, init=params, hold=HOLD)
    own = {"A": numpyro.distributions.Normal(jnp.zeros((2, 2)), 1.0).to_event(2)}
    options = {"num_warmup": 200, "num_samples": 100, "num_chains": 1, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, priors=own, **options)
    draws = az.group(posterior, "posterior")["A"].values
    assert (draws.std((0, 1)) > 0.01).all() and np.isfinite(draws).all()
