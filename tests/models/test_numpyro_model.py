"""The NumPyro model: its density, its states written out, and what NumPyro users do with it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide
from numpyro.infer import log_likelihood as site_log_likelihood
from numpyro.infer.util import log_density
from numpyro.optim import Adam
from scipy import stats

from sparse_lds.models import (
    LDS,
    Cohort,
    Flat,
    GroupLaplace,
    Laplace,
    LDSParams,
    default_priors,
    explicit_lds_model,
    lds_model,
    log_likelihood,
    simulate,
)

pytestmark = pytest.mark.interfaces
NAMES = LDSParams._fields


def covariance(rng, n):
    B = rng.normal(size=(n, n))
    return B @ B.T / n + 0.3 * np.eye(n)


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(0)
    A = np.array([[0.8, 0.0], [0.3, -0.5]])
    C, pi1 = rng.normal(size=(3, 2)), rng.normal(size=2)
    return LDSParams(A, C, covariance(rng, 2), covariance(rng, 3), pi1, covariance(rng, 2))


@pytest.fixture(scope="module", params=["complete", "gappy"])
def cohort(request, params):
    cohort = simulate(jax.random.key(1), params, [4, 2, 5]).cohort
    if request.param == "complete":
        return cohort
    rng = np.random.default_rng(2)
    return Cohort.from_sequences(
        [np.where(rng.random(y.shape) < 0.3, np.nan, y) for y in cohort.sequences()]
    )


def rest(params, *free):
    return {name: x for name, x in params._asdict().items() if name not in free}


@pytest.mark.parametrize("prior", [Flat(), Laplace(2.0), GroupLaplace(3.0, "rows")])
def test_density_is_likelihood_times_priors(params, cohort, prior):
    found, _ = log_density(lds_model, (cohort, 2, prior), {}, params._asdict())
    given = default_priors(cohort, 2)
    others = sum(d.log_prob(getattr(params, name)) for name, d in given.items())
    expected = log_likelihood(params, cohort).sum() + prior.log_prob(params.A) + others
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_held_parameters_leave_the_density(params, cohort):
    prior = Laplace(2.0)
    found, trace = log_density(
        lds_model, (cohort, 2, prior), {"held": rest(params, "A")}, {"A": params.A}
    )
    expected = log_likelihood(params, cohort).sum() + prior.log_prob(params.A)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert [name for name in NAMES if trace[name]["type"] == "sample"] == ["A"]


def test_default_priors_follow_the_data_s_units(params, cohort):
    """Changing the unit of a channel changes C and R's priors with it, and nothing else."""
    unit = np.array([1.0, 100.0, 0.01])
    scaled = Cohort.from_sequences([y * unit for y in cohort.sequences()])
    there, here = default_priors(scaled, 2), default_priors(cohort, 2)
    C = params.C * unit[:, None]
    R = params.R * unit[:, None] * unit
    jacobian_C, jacobian_R = 2 * np.log(unit).sum(), 4 * np.log(unit).sum()
    np.testing.assert_allclose(
        there["C"].log_prob(C) + jacobian_C, here["C"].log_prob(params.C), rtol=1e-10
    )
    np.testing.assert_allclose(
        there["R"].log_prob(R) + jacobian_R, here["R"].log_prob(params.R), rtol=1e-10
    )


def test_a_prior_can_be_replaced_and_names_are_checked(params, cohort):
    tight = {"pi1": dist.Normal(jnp.zeros(2), 1e-3).to_event(1)}
    draw = Predictive(handlers.uncondition(lds_model), num_samples=20)
    pi1 = draw(jax.random.key(0), cohort, 2, Laplace(1.0), priors=tight)["pi1"]
    assert np.abs(pi1).max() < 1e-2
    with pytest.raises(ValueError, match="held names .'B'.*parameters are"):
        draw(jax.random.key(0), cohort, 2, Laplace(1.0), held={"B": 1.0})


def states_log_density(params, y, z):
    """log p(z | y) of one sequence, (T, l), from the dense joint Gaussian of states and cells."""
    A, C, Q, R, pi1, V1 = params
    T, l = z.shape
    mean = np.concatenate([np.linalg.matrix_power(A, t) @ pi1 for t in range(T)])
    cov = np.zeros((T, l, T, l))
    for t in range(T):
        for s in range(T):
            for k in range(min(t, s) + 1):  # the noise of step k reaches both
                noise = V1 if k == 0 else Q
                left, right = (np.linalg.matrix_power(A, u - k) for u in (t, s))
                cov[t, :, s] += left @ noise @ right.T
    cov, H = cov.reshape(T * l, T * l), np.kron(np.eye(T), C)
    seen = ~np.isnan(y).ravel()
    H, noise = H[seen], np.kron(np.eye(T), R)[np.ix_(seen, seen)]
    gain = np.linalg.solve(H @ cov @ H.T + noise, H @ cov).T
    posterior = stats.multivariate_normal(
        mean + gain @ (y.ravel()[seen] - H @ mean), cov - gain @ H @ cov, allow_singular=True
    )
    return posterior.logpdf(z.ravel())


def test_explicit_states_integrate_to_the_marginal_model(params, cohort):
    """p(Ω, z, y) = p(Ω, y) p(z | y, Ω) at any point: the two models are one."""
    T, N = cohort.n_steps, cohort.n_sequences
    rng = np.random.default_rng(3)
    z = jnp.asarray(rng.normal(size=(T, N, 2)))
    args = (cohort, 2, Laplace(2.0))
    joint, _ = log_density(explicit_lds_model, args, {}, {**params._asdict(), "z": z})
    marginal, _ = log_density(lds_model, args, {}, params._asdict())
    conditional = 0.0
    for n, y in enumerate(cohort.sequences()):
        padded = np.full((T, y.shape[1]), np.nan)  # past the end: latent states without data
        padded[: len(y)] = y
        conditional += states_log_density(params, padded, z[:, n])
    np.testing.assert_allclose(joint, marginal + conditional, rtol=1e-9)


def test_nuts_finds_the_posterior_of_a_scalar_lds():
    """Posterior mean and sd of A (l = d = 1, the rest held) against quadrature."""
    one = np.ones((1, 1))
    truth = LDSParams(0.6 * one, one, 0.5 * one, 0.4 * one, np.zeros(1), one)
    cohort = simulate(jax.random.key(5), truth, [6, 9, 4, 8]).cohort
    prior, held = Laplace(4.0), rest(truth, "A")
    grid = np.linspace(-2, 2, 801)
    at = jax.jit(jax.vmap(lambda a: log_likelihood(truth._replace(A=a[None, None]), cohort).sum()))
    log_p = at(jnp.asarray(grid)) - 4.0 * np.abs(grid)
    p = np.exp(log_p - log_p.max())
    mean = (grid * p).sum() / p.sum()
    sd = np.sqrt(((grid - mean) ** 2 * p).sum() / p.sum())
    mcmc = MCMC(NUTS(lds_model), num_warmup=500, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(0), cohort, 1, prior, held=held)
    A = np.asarray(mcmc.get_samples()["A"]).ravel()
    assert abs(A.mean() - mean) < 0.1 * sd  # some 1,000 effective draws: 3 standard errors
    assert abs(A.std() / sd - 1) < 0.1


def test_forced_zeros_stay_zero_in_every_draw(params, cohort):
    beta = np.array([[1.0, np.inf], [1.0, 1.0]])
    mcmc = MCMC(NUTS(lds_model), num_warmup=20, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), cohort, 2, Laplace(beta), held=rest(params, "A"))
    A = np.asarray(mcmc.get_samples()["A"])
    assert A.shape == (20, 2, 2)
    assert (A[:, 0, 1] == 0).all() and A[:, 1, 0].std() > 0


def test_log_likelihood_is_per_sequence(params, cohort):
    draws = jax.tree.map(lambda x: jnp.stack([x, x * 1.1]), params._asdict())
    found = site_log_likelihood(lds_model, draws, cohort, 2, Laplace(1.0))["y"]
    first = log_likelihood(params, cohort)
    np.testing.assert_allclose(found[0], first, rtol=1e-12)
    assert found.shape == (2, cohort.n_sequences)


def test_predictive_draws_have_the_cohort_s_shape(params, cohort):
    model = handlers.uncondition(lds_model)
    draws = Predictive(model, num_samples=400)(
        jax.random.key(0), cohort, 2, Laplace(1.0), held=params._asdict()
    )
    y = np.asarray(draws["y"])
    assert y.shape == (400, *cohort.y.shape)
    inside = np.arange(cohort.n_steps) < cohort.lengths[:, None]
    assert (np.isfinite(y) == inside[None, ..., None]).all()
    first = params.C @ params.pi1
    sd = np.sqrt(np.diag(params.C @ params.V1 @ params.C.T + params.R))
    assert (np.abs(y[:, :, 0].mean((0, 1)) - first) < 5 * sd / np.sqrt(400 * len(cohort))).all()


def test_mask_and_scale_handlers_act_on_sequences(params, cohort):
    keep = np.array([True, False, True])
    each = np.asarray(log_likelihood(params, cohort))
    masked = LDS(params, cohort).mask(keep)
    np.testing.assert_allclose(masked.log_prob(jnp.asarray(cohort.y)), each * keep, rtol=1e-12)
    scaled = handlers.scale(lds_model, scale=0.5)
    found, _ = log_density(scaled, (cohort, 2), {"held": params._asdict()}, {})
    np.testing.assert_allclose(found, 0.5 * each.sum(), rtol=1e-12)


def test_batches_of_values_are_taken(params, cohort):
    y = jnp.asarray(cohort.y)
    d = LDS(params, cohort)
    found = d.log_prob(jnp.stack([y, y + 1.0]))
    np.testing.assert_allclose(found[1], d.log_prob(y + 1.0), rtol=1e-12)
    assert found.shape == (2, cohort.n_sequences)


def test_svi_guide_climbs(params, cohort):
    guide = autoguide.AutoNormal(lds_model)
    svi = SVI(lds_model, guide, Adam(0.02), Trace_ELBO())
    held = rest(params, "A")
    result = svi.run(jax.random.key(0), 300, cohort, 2, Laplace(1.0), held=held, progress_bar=False)
    losses = np.asarray(result.losses)
    assert np.isfinite(losses).all() and losses[-50:].mean() < losses[:20].mean()


def test_laplace_approximation_uses_the_hessian(params, cohort):
    """AutoLaplaceApproximation differentiates twice through the custom rule."""
    held = rest(params, "pi1")
    guide = autoguide.AutoLaplaceApproximation(lds_model)
    svi = SVI(lds_model, guide, Adam(0.02), Trace_ELBO())
    result = svi.run(jax.random.key(0), 1500, cohort, 2, Flat(), held=held, progress_bar=False)
    found = guide.get_posterior(result.params)
    prior = default_priors(cohort, 2)["pi1"]

    def potential(pi1):
        return -log_likelihood(params._replace(pi1=pi1), cohort).sum() - prior.log_prob(pi1)

    exact = np.linalg.inv(jax.hessian(potential)(jnp.asarray(params.pi1)))  # quadratic in pi1
    np.testing.assert_allclose(found.covariance_matrix, exact, rtol=1e-6)
