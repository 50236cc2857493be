"""Inverses and whiteners of many small matrices, and that no program hands a batch of them to LAPACK."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import random_params

from sparse_lds.models import Cohort, Gaussian, kalman_filter, kalman_smoother, update
from sparse_lds.models.kalman.prepare import guarded, skipped
from sparse_lds.models.kalman.routes import Route
from sparse_lds.models.linalg import spd_inverse, whitener


def definite_matrices(n, k, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, k, 2 * k))
    return X @ X.swapaxes(1, 2)


@pytest.mark.parametrize("k", [1, 3, 8, 9, 16, 17, 24, 32, 45])
def test_inverse_of_many(k, close):
    S = definite_matrices(7, k)
    inverse, logdet = jax.jit(spd_inverse)(jnp.asarray(S))
    close("inverse of many", inverse, np.linalg.inv(S), 1e-12)
    close("inverse logdet", logdet, np.linalg.slogdet(S)[1], 1e-13)


@pytest.mark.parametrize("k", [1, 3, 8, 9, 16, 20])
def test_whitener_of_many(k, close):
    S = definite_matrices(7, k, seed=1)
    W, logdet = jax.jit(whitener)(jnp.moveaxis(jnp.asarray(S), 0, -1))
    W = np.moveaxis(np.asarray(W), -1, 0)
    close("whitener of many", W, np.linalg.inv(np.linalg.cholesky(S)), 1e-12)
    close("whitener logdet", logdet, np.linalg.slogdet(S)[1], 1e-13)


@pytest.mark.parametrize("k", [3, 12, 30])
def test_only_the_indefinite_are_nan(k):
    S = definite_matrices(4, k)
    S[2] -= 100 * k * np.eye(k)
    _, logdet = spd_inverse(jnp.asarray(S))
    assert np.isnan(logdet).tolist() == [False, False, True, False]


def batched_calls(f, *args) -> list[str]:
    """The types of operands of LAPACK's calls, in the program of f, that have more than two axes."""
    program = jax.jit(f).lower(*args).as_text()
    types = re.findall(r"@lapack_\w+\(.*?\).*?: \((.*?)\)", program)
    return [t for t in types if re.search(r"<(\d+x){3}", t)]


def cohort_with_gaps(d):
    y = np.random.default_rng(0).normal(size=(20, 9, d))
    y[np.random.default_rng(1).random(y.shape) < 0.3] = np.nan
    return Cohort.from_array(y)


ROUTES = [
    partial(guarded, route=Route.FILLED),
    partial(guarded, route=Route.OBSERVED),
    skipped,
]


@pytest.mark.parametrize("d", [3, 10])
@pytest.mark.parametrize("make", ROUTES)
def test_no_batch_goes_to_lapack(make, d):
    """Two such calls at once wait for each other for ever in jaxlib 0.10, on a machine with two cores."""
    params = random_params(np.random.default_rng(0), 4, d)
    data = make(cohort_with_gaps(d), params.A.dtype)
    assert not batched_calls(lambda p: data.expected_statistics(p), params)
    assert not batched_calls(jax.grad(lambda p: data.log_likelihood(p)), params)


@pytest.mark.parametrize("d", [3, 10])
def test_no_two_batches_at_once(d):
    """In the filter, the smoother and a step under vmap, calls with a batch are a chain at most."""
    params, cohort = random_params(np.random.default_rng(0), 4, d), cohort_with_gaps(d)
    for f in (kalman_filter, kalman_smoother):
        assert len(batched_calls(f, params, cohort)) <= 3
    states = Gaussian(jnp.zeros((5, 4)), jnp.broadcast_to(jnp.eye(4), (5, 4, 4)))
    step = jax.vmap(lambda m, P, y: update(Gaussian(m, P), y, params.C, params.R))
    assert len(batched_calls(step, *states, jnp.zeros((5, d)))) <= 3


def test_the_search_finds_a_batch():
    assert batched_calls(jnp.linalg.cholesky, jnp.eye(3)[None] * jnp.ones((2, 1, 1)))
    assert not batched_calls(jnp.linalg.cholesky, jnp.eye(3))
