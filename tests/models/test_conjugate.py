"""Priors that keep the M-step in closed form: they are the NumPyro distributions that they were made of."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from oracles import Shape, covariance, random_params, random_problem

from sparse_lds.models import Cohort, weak_priors
from sparse_lds.models.conjugate import as_conjugate, from_dict, to_dict


def random_priors(seed, l=2, d=3):
    """A prior of every parameter but A, none of them a multiple of the identity."""
    rng = np.random.default_rng(seed)

    def near(k):
        return dist.InverseWishart(k + rng.uniform(0.5, 4), scale_matrix=covariance(rng, k))

    def normal(*shape):
        return dist.Normal(rng.normal(size=shape), rng.uniform(0.2, 3, shape)).to_event(len(shape))

    return {"C": normal(d, l), "Q": near(l), "R": near(d), "pi1": normal(l), "V1": near(l)}


@pytest.mark.interfaces
@pytest.mark.parametrize("seed", range(3))
def test_log_prob_is_the_sum_of_the_distributions(seed, close):
    priors = random_priors(seed)
    conjugate = as_conjugate(priors, 2, 3, np.float64)
    for other in range(3):
        params = random_params(np.random.default_rng([seed, other]), 2, 3)
        wanted = sum(float(p.log_prob(jnp.asarray(getattr(params, k)))) for k, p in priors.items())
        close("conjugate log_prob", conjugate.log_prob(params), wanted)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_that_of_finite_differences(seed, close):
    """Along random directions, symmetric ones for covariances."""
    priors = random_priors(seed)
    conjugate = as_conjugate(priors, 2, 3, np.float64)
    rng = np.random.default_rng(seed)
    params = random_params(rng, 2, 3)
    gradient = conjugate.gradient(params)
    assert gradient.keys() == priors.keys()
    for name, prior in priors.items():
        x = np.asarray(getattr(params, name))
        for _ in range(5):
            E = rng.normal(size=x.shape)
            E = E + E.T if name in ("Q", "R", "V1") else E
            up, down = (float(prior.log_prob(x + h * E)) for h in (1e-5, -1e-5))
            slope = (gradient[name] * E).sum()
            close("conjugate gradient", slope, (up - down) / 2e-5, rtol=1e-6)


def test_a_file_keeps_priors():
    cohort = random_problem(0, Shape(2, 3, 4, 5))[1]
    for priors in (random_priors(5), dict(weak_priors(cohort, 2)), {}):
        again = from_dict(json.loads(json.dumps(to_dict(priors))))
        assert again.keys() == priors.keys()
        params = random_params(np.random.default_rng(1), 2, 3)
        for name, prior in priors.items():
            x = jnp.asarray(getattr(params, name))
            assert type(again[name]) is type(prior)
            assert float(again[name].log_prob(x)) == float(prior.log_prob(x))


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"R": dist.Wishart(4.0, scale_matrix=np.eye(3))}, r"priors\['R'\] is a Wishart"),
        ({"C": dist.Laplace(np.zeros((3, 2))).to_event(2)}, r"priors\['C'\] is a Laplace"),
        ({"pi1": dist.MultivariateNormal(np.zeros(2), np.eye(2))}, "is a MultivariateNormal"),
        ({"pi1": dist.Normal(np.zeros(2), 1.0)}, r"priors\['pi1'\].*to_event\(1\)"),
        ({"C": dist.Normal(np.zeros((3, 2)), 1.0).to_event(1)}, r"priors\['C'\].*to_event\(2\)"),
        ({"R": dist.InverseWishart(4.0, scale_matrix=np.eye(2))}, r"shape \(2, 2\).*\(3, 3\)"),
        ({"V1": dist.InverseWishart(4.0, scale_matrix=np.eye(3))}, r"shape \(3, 3\).*\(2, 2\)"),
        ({"Q": dist.InverseWishart(3.0, scale_matrix=np.eye(1))}, r"shape \(1, 1\).*\(2, 2\)"),
        ({"pi1": dist.Normal(np.zeros(3), 1.0).to_event(1)}, r"priors\['pi1'\] has shape \(3,\)"),
        ({"S": dist.InverseWishart(4.0, scale_matrix=np.eye(2))}, "priors names 'S'"),
        ({"A": dist.Normal(np.zeros((2, 2)), 1.0).to_event(2)}, "priors names 'A'.*`prior`"),
    ],
)
def test_priors_without_a_closed_form_or_of_another_shape_are_named(priors, message):
    with pytest.raises(ValueError, match=message):
        as_conjugate(priors, 2, 3, np.float64)


def test_weak_priors_have_their_mode_at_guesses_from_moments():
    """As if by 2k + 1 observations: levels that persist, that move, and white noise are told apart."""
    rng = np.random.default_rng(0)
    N, T = 400, 30
    own = 2.0 * rng.normal(size=(N, 1)) + 0 * rng.normal(size=(N, T))
    walk = np.zeros((N, T))
    walk[:, 0] = rng.normal(size=N) / np.sqrt(1 - 0.8**2)
    for t in range(1, T):
        walk[:, t] = 0.8 * walk[:, t - 1] + rng.normal(size=N)
    noise = rng.normal(size=(N, T, 3))
    y = np.stack([own + noise[..., 0], walk + noise[..., 1], 3 * noise[..., 2]], axis=2)
    cohort = Cohort.from_array(y)
    priors = weak_priors(cohort, 3, levels=True, own_levels=True)
    found = {}
    for name, k in (("Q", 3), ("R", 3), ("V1", 6)):
        prior = priors[name]
        assert float(prior.concentration) == k  # so that ν + k + 1 is 2k + 1
        found[name] = np.diagonal(prior.scale_matrix) / (2 * k + 1)
        at, S = float(prior.log_prob(jnp.diag(found[name]))), np.diag(found[name])
        for _ in range(10):  # the mode
            E = 0.02 * found[name].min() * rng.normal(size=(k, k))
            assert float(prior.log_prob(S + E + E.T)) < at
    variance = y.reshape(-1, 3).var(0)
    np.testing.assert_allclose(found["R"], 0.1 * variance, rtol=1e-6)
    np.testing.assert_allclose(found["Q"], 0.1 * found["V1"][:3], rtol=1e-6)
    moving, between = found["V1"][:3] / variance, found["V1"][3:] / variance
    assert between[0] > 0.7 and moving[0] < 0.05  # 4 of 5 between the sequences
    assert 0.2 < moving[1] < 0.8 and between[1] < 0.3
    np.testing.assert_allclose([moving[2], between[2]], 0.02)  # the least, in white noise
    bare = weak_priors(cohort, 3, levels=True)
    np.testing.assert_allclose(
        np.diagonal(bare["V1"].scale_matrix) / 7, found["V1"][:3] + found["V1"][3:], rtol=1e-6
    )
    hidden = weak_priors(cohort, 2)
    np.testing.assert_allclose(np.diagonal(hidden["V1"].scale_matrix) / 5, 10.0)
