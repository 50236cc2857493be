"""Priors on A: penalty, prox, density and draws are those of one distribution; NumPyro takes it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpyro import infer
from numpyro.distributions import biject_to, constraints
from scipy import integrate, optimize, stats

from sparse_lds.models.priors import Flat, GroupLaplace, Laplace

inf = np.inf
by_property = settings(derandomize=True, deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)

PATTERN = np.array([[2.0, inf, 0.7], [0.0, 1.0, 3.0], [inf, 0.5, 0.0]])
PROPER = {
    "laplace": Laplace(1.3),
    "laplace-matrix": Laplace(PATTERN + 0.2),
    "rows": GroupLaplace(0.8, by="rows"),
    "columns": GroupLaplace([0.5, inf, 2.0], by="columns"),
}
PRIORS = PROPER | {
    "flat": Flat(),
    "laplace-free": Laplace(PATTERN),
    "rows-free": GroupLaplace([inf, 0.0, 1.1], by="rows"),
}
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
proper_prior = pytest.mark.parametrize("prior", PROPER.values(), ids=PROPER.keys())


def blocks(prior, A):
    """[(beta_g, A_g)] in plain numpy, from the words of the definition."""
    l = len(A)
    beta = np.asarray(prior.beta)
    if isinstance(prior, GroupLaplace):
        beta = np.broadcast_to(beta, (l,))
        return [(beta[i], A[i] if prior.by == "rows" else A[:, i]) for i in range(l)]
    beta = np.broadcast_to(beta, (l, l))
    return [(beta[i, j], A[i : i + 1, j]) for i in range(l) for j in range(l)]


def block_penalty(beta, a):
    norm = np.sqrt(np.sum(a**2))
    return 0.0 if norm == 0 else beta * norm


def penalty(prior, A):
    return sum(block_penalty(beta, a) for beta, a in blocks(prior, np.asarray(A)))


def forced(prior, l=3):
    """Where A must be zero."""
    A = np.arange(1.0, l * l + 1).reshape(l, l)
    hidden = [a for beta, a in blocks(prior, A) if beta == inf]
    return np.isin(A, np.concatenate(hidden)) if hidden else np.zeros((l, l), bool)


def feasible(prior, rng):
    return np.where(forced(prior), 0.0, rng.normal(size=(3, 3)))


# ---- penalty


@every_prior
def test_penalty_is_that_of_the_definition(prior):
    rng = np.random.default_rng(0)
    A = np.stack([feasible(prior, rng) for _ in range(4)])
    assert_allclose(prior.value(A), [penalty(prior, a) for a in A], rtol=1e-14)
    assert_array_equal(prior.value(np.zeros((2, 5, 3, 3))), np.zeros((2, 5)))


@every_prior
def test_penalty_is_infinite_off_the_forced_zeros_only(prior):
    for i, j in np.ndindex(3, 3):
        A = np.zeros((3, 3))
        A[i, j] = 1e-200  # its square is 0 in floating point
        assert np.isinf(prior.value(A)) == forced(prior)[i, j]


@every_prior
def test_gradients_are_finite_and_those_of_the_definition(prior):
    A = feasible(prior, np.random.default_rng(1))
    h, numeric = 1e-6, np.zeros((3, 3))
    for at in np.argwhere(~forced(prior)):
        step = np.zeros((3, 3))
        step[tuple(at)] = h
        numeric[tuple(at)] = (penalty(prior, A + step) - penalty(prior, A - step)) / (2 * h)
    assert_allclose(jax.grad(prior.value)(A), numeric, atol=1e-8)
    assert_allclose(jax.grad(prior.log_prob)(A), -numeric, atol=1e-8)
    assert_array_equal(jax.grad(prior.value)(np.zeros((3, 3))), 0)  # a subgradient, never NaN
    wrt_prior = jax.grad(lambda p: p.log_prob(A))(prior)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(wrt_prior))


# ---- prox


@every_prior
@by_property
@given(seed=seeds, step=st.floats(0.0, 3.0))
def test_prox_minimises_its_objective(prior, seed, step):
    """A point X is the minimiser iff f(X + D) ≥ f(X) + ½‖D‖² for all D (f is 1-strongly convex)."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3)) * 2
    X = np.asarray(prior.prox(A, step))

    def f(X):
        return 0.5 * np.sum((X - A) ** 2) + (step * penalty(prior, X) if step else 0.0)

    assert_array_equal(X[forced(prior)], 0)
    for size in (1e-3, 1e-1, 1.0):
        D = np.where(forced(prior), 0.0, rng.normal(size=(3, 3))) * size
        for direction in (D, -D, -X * size, X * size):
            gain = f(X + direction) - f(X) - 0.5 * np.sum(direction**2)
            assert gain >= -1e-12


@every_prior
def test_prox_agrees_with_a_numerical_minimiser(prior):
    A = np.random.default_rng(5).normal(size=(3, 3)) * 2
    step = 0.6
    X = np.asarray(prior.prox(A, step))
    for (beta, a), (_, x) in zip(blocks(prior, A), blocks(prior, X), strict=True):
        if beta == inf:
            assert_array_equal(x, 0)
            continue
        found = optimize.minimize(
            lambda x, a=a, beta=beta: 0.5 * np.sum((x - a) ** 2) + step * block_penalty(beta, x),
            a,
            method="Nelder-Mead",
            options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000},
        )
        assert_allclose(x, found.x, atol=1e-6)


@every_prior
def test_prox_satisfies_the_subgradient_conditions(prior):
    """(A − X) / step lies in beta ∂‖·‖: beta x/‖x‖ at x ≠ 0, the ball of radius beta at 0."""
    rng, step = np.random.default_rng(2), 0.7
    for _ in range(20):
        A = rng.normal(size=(3, 3)) * 2
        X = np.asarray(prior.prox(A, step))
        for (beta, a), (_, x) in zip(blocks(prior, A), blocks(prior, X), strict=True):
            residual = (a - x) / step
            norm = np.linalg.norm(x)
            if norm == 0:
                assert np.linalg.norm(residual) <= beta * (1 + 1e-12)
            else:
                assert_allclose(residual, beta * x / norm, atol=1e-13)


@every_prior
@by_property
@given(seed=seeds, step=st.floats(0.0, 3.0))
def test_prox_is_firmly_nonexpansive(prior, seed, step):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 3, 3))
    P = np.asarray(prior.prox(A, step)) - np.asarray(prior.prox(B, step))
    assert np.sum(P**2) <= np.sum(P * (A - B)) + 1e-14


@every_prior
def test_prox_zeros_are_plain_and_what_it_keeps_free_is_untouched(prior):
    A = np.random.default_rng(3).normal(size=(40, 3, 3))
    A[:, 0, 0] = -0.0
    X = np.asarray(prior.prox(A, 0.5))
    assert not np.signbit(X[X == 0]).any()
    still = np.asarray(prior.prox(A, 0.0))
    assert_array_equal(still, np.where(forced(prior), 0.0, A))
    free = np.stack([np.asarray(a == 0) for a, _ in zip(A, X, strict=True)])
    del free
    unpenalised = replace(prior, beta=np.zeros_like(prior.beta)) if prior.beta is not Flat.beta else prior
    assert_array_equal(unpenalised.prox(A, 0.5), A)
