"""Fits with priors of all parameters: the mode of the NumPyro model, reached without a fall."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import numpyro.infer.util
import pytest
from oracles import Shape, covariance, log_likelihood, random_problem

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import Constraints, fit_em, fit_map
from sparse_lds.models import Cohort, Laplace, lds_model

SHAPE = Shape(l=2, d=2, N=12, T=8)
REST = ("C", "Q", "R", "pi1", "V1")
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def every_prior(seed=0):
    """Of C, Q, R, pi1 and V1; none treats the states alike."""
    rng = np.random.default_rng(seed)

    def near():
        return dist.InverseWishart(5.0, scale_matrix=covariance(rng, 2))

    C = dist.Normal(rng.normal(size=(2, 2)), rng.uniform(0.3, 1, (2, 2))).to_event(2)
    pi1 = dist.Normal(rng.normal(size=2), rng.uniform(0.3, 1, 2)).to_event(1)
    return {"C": C, "Q": near(), "R": near(), "pi1": pi1, "V1": near()}


def log_density(fit, cohort):
    """The density of the NumPyro model at given values of what the fit learned."""
    names = [name for name in fit.params._fields if fit.constraints.free(name)]
    held = {k: getattr(fit.params, k) for k in fit.params._fields if k not in names}

    @jax.jit
    def at(params):
        def model():
            lds_model(cohort, 2, fit.prior, priors=fit.priors, held=held)

        values = {name: getattr(params, name) for name in names}
        return numpyro.infer.util.log_density(model, (), {}, values)[0]

    return names, lambda params: float(at(params))


CASES = {
    "all priors, all free": (every_prior(), Constraints()),
    "all priors, Q = I": (every_prior(), Constraints(Q="identity")),
    "weak, levels": ("weak", Constraints(C="identity")),
    "weak, C held": ("weak", Constraints(hold=("C",))),
}
every_case = pytest.mark.parametrize(("priors", "kept"), CASES.values(), ids=CASES.keys())


def fitted(cohort, start, priors, kept, **options):
    start = start._replace(C=np.eye(2)) if kept.C == "identity" else start
    return fit_map(cohort, 2, Laplace(1.5), init=start, constraints=kept, priors=priors, **options)


@pytest.mark.interfaces
@every_case
def test_a_fit_is_a_joint_mode_of_the_numpyro_model(priors, kept):
    """Its objective is the density there, and no small step in any direction raises that."""
    start, cohort = random_problem(0, SHAPE, gaps=True, ragged=True, radius=0.7)
    for max_iter in (3, 3000):
        fit = fitted(cohort, start, priors, kept, max_iter=max_iter, tol=1e-6)
        names, density = log_density(fit, cohort)
        assert set(fit.priors) == {*REST} & {*names}
        best = density(fit.params)
        np.testing.assert_allclose(fit.objective[-1], best, rtol=1e-10)
    assert fit.converged
    rng = np.random.default_rng(1)
    for _ in range(300):
        step, changes = 10 ** rng.uniform(-4, -1.5), {}
        for name in names:
            x = np.asarray(getattr(fit.params, name))
            E = step * rng.normal(size=x.shape) * (rng.random() < 0.5)
            if name in ("Q", "R", "V1"):  # symmetric, on the scale of the covariance
                F = np.linalg.cholesky(x)
                E = F @ (E + E.T) @ F.T
            changes[name] = jnp.asarray(x + E)
        assert density(fit.params._replace(**changes)) <= best + 1e-6


@both_routes
@every_case
def test_the_objective_never_falls_with_priors(priors, kept, gaps):
    for seed in range(2):
        start, cohort = random_problem(seed, SHAPE, gaps=gaps, ragged=True, radius=0.8)
        for accelerate in (False, True):
            fit = fitted(cohort, start, priors, kept, accelerate=accelerate, max_iter=40, tol=0.0)
            assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()
            assert fit.n_iter == 40


def test_the_objective_is_the_dense_likelihood_plus_priors():
    """By the dense oracle and the distributions, early on, where a normal form of the basis changes the priors."""
    start, cohort = random_problem(4, SHAPE, gaps=True, ragged=True, radius=0.8)
    priors = every_prior(4)
    fit = fit_map(cohort, 2, Laplace(1.5), init=start, priors=priors, accelerate=False, max_iter=1)
    wanted = log_likelihood(fit.params, cohort).sum() + float(fit.prior.log_prob(fit.params.A))
    wanted += sum(float(p.log_prob(getattr(fit.params, k))) for k, p in priors.items())
    np.testing.assert_allclose(fit.objective[-1], wanted, rtol=1e-9)


def test_a_file_keeps_the_priors_of_a_fit(tmp_path):
    start, cohort = random_problem(0, SHAPE, ragged=True, radius=0.7)
    for priors in (every_prior(), "weak", None):
        fit = fit_map(cohort, 2, Laplace(1.0), init=start, priors=priors, max_iter=5)
        again = load_fit(save_fit(tmp_path / "fit.json", fit))
        assert again.priors.keys() == fit.priors.keys()
        for name, prior in fit.priors.items():
            x = getattr(fit.params, name)
            assert float(again.priors[name].log_prob(x)) == float(prior.log_prob(x))
        options = {"init": fit.params, "max_iter": 1, "accelerate": False}
        one, other = (
            fit_map(cohort, 2, f.prior, priors=f.priors, **options).objective for f in (fit, again)
        )
        np.testing.assert_array_equal(one, other)


def test_weak_priors_keep_noise_from_singular():
    """A channel that a state can follow to the last digit: R runs to its floor, but not with priors."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=(12, 8, 2)) * [1.0, 10.0], axis=1)  # random walks, seen exactly
    cohort = Cohort.from_array(y)
    smallest = {}
    for priors in (None, "weak"):
        fit = fit_em(cohort, 2, constraints=Constraints.levels(), priors=priors, max_iter=400)
        smallest[priors] = np.diagonal(fit.params.R) / y.var((0, 1))
    assert smallest[None].min() < 1e-4
    assert smallest["weak"].min() > 1e-3


def test_bad_priors_are_named():
    start, cohort = random_problem(0, SHAPE, radius=0.7)
    wishart = dist.Wishart(4.0, scale_matrix=np.eye(2))
    wide = dist.InverseWishart(6.0, scale_matrix=np.eye(3))
    for priors, message in (
        ("strong", "priors is 'strong'; give 'weak'"),
        ({"R": wishart}, r"priors\['R'\] is a Wishart, which has no M-step in closed form"),
        ({"Q": wide}, r"priors\['Q'\] has shape \(3, 3\); it must be \(2, 2\)"),
        ({"B": wide}, "priors names 'B'; it may name C, Q, R, pi1 and V1"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_map(cohort, 2, Laplace(1.0), init=start, priors=priors)
    with pytest.raises(ValueError, match="Algorithm 1 knows neither .*variant='exact'"):
        fit_map(cohort, 2, Laplace(1.0), init=start, priors="weak", variant="paper")
    own = Constraints.levels(own=True)
    full = dist.InverseWishart(6.0, scale_matrix=np.eye(4))  # the static states have no noise
    with pytest.raises(ValueError, match=r"shape \(4, 4\); it must be \(2, 2\)"):
        fit_map(cohort, 2, Laplace(1.0), constraints=own, priors={"Q": full})


def test_priors_of_what_is_held_do_not_count():
    start, cohort = random_problem(0, SHAPE, radius=0.7)
    options = {"init": start, "hold": ("R", "V1"), "max_iter": 3}
    priors = every_prior()
    fit = fit_map(cohort, 2, Laplace(1.0), priors=priors, **options)
    few = {name: p for name, p in priors.items() if name not in ("R", "V1")}
    other = fit_map(cohort, 2, Laplace(1.0), priors=few, **options)
    assert fit.priors.keys() == few.keys()
    np.testing.assert_array_equal(fit.objective, other.objective)
