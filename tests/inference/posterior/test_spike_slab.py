"""Spike and slab against an enumeration of all supports, with quadrature over the entries that are included."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln

from sparse_lds.inference import diagnose, fit_map, sample_posterior
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.models import Laplace, LDSParams, SpikeSlab, log_likelihood, simulate

REST = ("C", "Q", "R", "pi1", "V1")


def case(l, center=0.0, N=10, T=8):
    A = np.array([[0.7, 0.0], [0.3, 0.5]])[:l, :l] + np.eye(l) * center
    I = np.eye(l)
    truth = LDSParams(A, I, 0.3 * I, 0.3 * I, np.zeros(l), I)
    truth = LDSParams(*(jnp.asarray(x) for x in truth))
    cohort = simulate(jax.random.key(3), truth, [T] * N).cohort
    return cohort, fit_map(cohort, l, Laplace(3.0), init=truth, hold=REST)


def enumerated(cohort, fit, prior, n_grid=17):
    """Return P(γ_ij = 1 | y) and E[A | y], (l, l), by sums over supports and grids."""
    l = fit.params.n_states
    n, M = l * l, np.asarray(prior.center_of(l)).ravel()

    @jax.jit
    def total(A):
        return jax.lax.map(
            lambda a: log_likelihood(fit.params._replace(A=a.reshape(l, l)), cohort).sum(),
            A,
            batch_size=500,
        )

    axis = np.linspace(-1.6, 1.6, n_grid * 3)
    logs, means, supports = [], [], list(product([0, 1], repeat=n))
    for support in supports:
        k = sum(support)
        near = axis if k < 2 else np.linspace(-1.2, 1.4, n_grid)
        grid = np.array(list(product(near, repeat=k))).reshape(len(near) ** k, k)
        u = np.zeros((len(grid), n))
        u[:, np.flatnonzero(support)] = grid
        log_p = np.asarray(total(jnp.asarray(M + u)))
        slab = -0.5 * (grid**2).sum(1) / prior.slab**2 - k * np.log(prior.slab * np.sqrt(2 * np.pi))
        weights = log_p + slab + k * np.log(near[1] - near[0])
        top = weights.max()
        mass = np.exp(weights - top)
        prior_odds = betaln(prior.a + k, prior.b + n - k) - betaln(prior.a, prior.b)
        logs.append(top + np.log(mass.sum()) + prior_odds)
        means.append(M + mass @ u / mass.sum())
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    return (p @ np.array(supports)).reshape(l, l), (p @ np.array(means)).reshape(l, l)


@pytest.mark.parametrize(
    "l, prior",
    [
        (1, SpikeSlab(0.5)),
        (2, SpikeSlab(0.5)),
        (2, SpikeSlab(0.7, a=1.0, b=3.0, center="identity")),
    ],
    ids=["one state", "two states", "around I"],
)
def test_inclusion_probabilities_are_those_of_an_enumeration(l, prior):
    cohort, fit = case(l)
    posterior = sample_posterior(
        jax.random.key(0), cohort, fit, free=("A",), prior=prior, num_warmup=100, num_samples=2000,
        num_chains=2, num_predictive=0,
    )  # fmt: skip
    data = az.group(posterior, "posterior")
    included, mean = enumerated(cohort, fit, prior)
    numbers = data[["included"]].astype(float)
    ess = np.maximum(az.ess(numbers, "bulk")["included"].values, 1)
    ess = np.where(np.isfinite(ess), ess, 4000.0)
    found = numbers["included"].values.mean((0, 1))
    error = np.sqrt(np.maximum(included * (1 - included), 1e-3) / ess)
    print(f"largest difference {(np.abs(found - included) / error).max():.1f} Monte Carlo errors")
    assert (np.abs(found - included) < 4 * error).all()
    draws = data["A"].values
    spread = draws.std((0, 1)) / np.sqrt(np.maximum(az.ess(data[["A"]], "bulk")["A"].values, 1))
    assert (np.abs(draws.mean((0, 1)) - mean) < 4 * spread + 2e-3).all()
    # zeros are exact, and are what `included` says
    np.testing.assert_array_equal(draws != prior.center_of(l), data["included"].values)


@pytest.mark.interfaces
def test_all_is_sampled_with_it_and_a_diagonal_may_be_free():
    cohort, fit = case(2)
    fit = fit_map(cohort, 2, Laplace(3.0), init=fit.params, hold=("C",), priors="weak")
    prior = SpikeSlab(0.5, diagonal="free")
    options = {"num_warmup": 60, "num_samples": 60, "num_chains": 2}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, prior=prior, **options)
    data = az.group(posterior, "posterior")
    assert set(data.attrs["free"].split()) == {"A", "Q", "R", "pi1", "V1"}
    A = data["A"].values
    assert (A[..., [0, 1], [0, 1]] != 0).all() and (A[..., 0, 1] == 0).any()
    assert {"included", "omega"} <= set(data.data_vars) and "A_slab" not in data
    assert ((data["omega"].values > 0) & (data["omega"].values < 1)).all()
    assert "SpikeSlab" in str(diagnose(posterior))
    again = sample_posterior(jax.random.key(0), cohort, fit, prior=prior, **options)
    np.testing.assert_array_equal(az.group(again, "posterior")["A"].values, A)
