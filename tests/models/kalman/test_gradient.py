"""The derivative rule of the likelihood, against autodiff of the scan and the dense Gaussian."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from oracles import Shape, random_problem

from sparse_lds.models import (
    LDSParams,
    expected_statistics,
    fisher_score,
    log_likelihood,
    plain_log_likelihood,
    total_log_likelihood,
)
from sparse_lds.models.kalman.prepare import arrange, prepare

MORE_CHANNELS = Shape(2, 3, 3, 6)
MORE_STATES = Shape(4, 2, 3, 5)
MANY_CHANNELS = Shape(2, 9, 2, 3)  # LAPACK factors S
SHAPES = [MORE_CHANNELS, MORE_STATES, MANY_CHANNELS]
SEEDS = range(8)

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problems(shape, gaps):
    """Parameters, a cohort and weights of any sign for its sequences."""
    for seed in SEEDS:
        params, cohort = random_problem(seed, shape, gaps=gaps, ragged=seed % 2 == 1)
        yield params, cohort, np.random.default_rng(seed).normal(size=shape.N)


def symmetrized(grads):
    """The gradient as a function of symmetric covariances."""

    def sym(x):
        return (np.asarray(x) + np.asarray(x).T) / 2

    return grads._replace(Q=sym(grads.Q), R=sym(grads.R), V1=sym(grads.V1))


@jax.jit
def rule(params, cohort, weights):
    return jax.vjp(lambda p: log_likelihood(p, cohort), params)[1](weights)[0]


@jax.jit
def by_autodiff(params, cohort, weights):
    return jax.vjp(lambda p: plain_log_likelihood(p, cohort), params)[1](weights)[0]


@jax.jit
def in_arranged_data(params, data, weights):
    return jax.vjp(lambda x: x.sequences(params), data)[1](weights)[0]


def close_params(close, group, grads, wanted, rtol=1e-9):
    for name, a, b in zip(LDSParams._fields, grads, wanted, strict=True):
        close(f"{group} {name}", a, b, rtol)


def random_direction(rng, params):
    """A direction of unit length for every parameter, symmetric for covariances."""
    direction = LDSParams(*(rng.normal(size=np.shape(x)) for x in params))
    return LDSParams(*(x / np.linalg.norm(x) for x in symmetrized(direction)))


@both_routes
@every_shape
def test_rule_is_the_derivative_of_the_scan(shape, gaps, close):
    for params, cohort, weights in problems(shape, gaps):
        grads = rule(params, cohort, weights)
        close_params(close, "autodiff", grads, symmetrized(by_autodiff(params, cohort, weights)))
        for x in (grads.Q, grads.R, grads.V1):
            close("symmetry", x, x.T, rtol=1e-12)


@both_routes
def test_sums_of_the_e_step_hold_the_gradient(gaps, close):
    """Fisher's identity, as quasi-Newton steps use it, against autodiff of the scan."""
    for params, cohort, weights in problems(MORE_STATES, gaps):
        stats = expected_statistics(params, cohort, weights)
        wanted = symmetrized(by_autodiff(params, cohort, weights))
        close_params(close, "fisher", fisher_score(params, stats), wanted)


@both_routes
def test_rule_is_the_slope_of_the_dense_likelihood(gaps, close):
    """Central differences with a step of 1e-5 are good to about 1e-10 of the likelihood's size."""
    step = 1e-5
    for params, cohort, weights in problems(MORE_STATES, gaps):
        grads = rule(params, cohort, weights)
        direction = random_direction(np.random.default_rng(0), params)

        def along(name, s, params=params, cohort=cohort, weights=weights, direction=direction):
            x = getattr(params, name) + s * getattr(direction, name)
            return weights @ oracles.log_likelihood(params._replace(**{name: x}), cohort)

        slopes = {n: (along(n, step) - along(n, -step)) / (2 * step) for n in LDSParams._fields}
        ours = {n: np.vdot(getattr(grads, n), getattr(direction, n)) for n in LDSParams._fields}
        # one array, as a single slope may be 0 by chance
        close("differences", list(ours.values()), list(slopes.values()), rtol=1e-7)


@both_routes
def test_gradient_in_the_data_is_that_of_the_dense_gaussian(gaps, close):
    """-S^-1 (y - mean) where a cell was seen; 0 where it is missing, and past the end."""
    for params, cohort, weights in problems(MORE_CHANNELS, gaps):
        wanted = np.zeros(cohort.y.shape)
        for n, y in enumerate(cohort.sequences()):
            mean, cov = oracles.joint(params, len(y))
            mean, cov = mean[-y.size :], cov[-y.size :, -y.size :]
            o = np.flatnonzero(~np.isnan(y))
            slope = np.zeros(y.size)
            slope[o] = -np.linalg.solve(cov[np.ix_(o, o)], y.reshape(-1)[o] - mean[o])
            wanted[n, : len(y)] = weights[n] * slope.reshape(y.shape)

        inner = in_arranged_data(params, arrange(cohort, jnp.float64), weights)
        T, d, N = cohort.n_steps, cohort.n_channels, len(cohort)
        dy = np.moveaxis(np.reshape(inner.y, (T, d, N)), -1, 0)  # with gaps: one block
        close("data arranged", dy, wanted)
        assert_array_equal(dy[~cohort.mask], 0)

    through = jax.grad(lambda y: log_likelihood(params, replace(cohort, y=y)) @ weights)(cohort.y)
    close("data cohort", through, wanted)


def test_gradient_of_a_large_gappy_cohort_is_that_of_its_blocks(close):
    params, cohort = random_problem(0, Shape(1, 1, 300, 2), gaps=True, ragged=True)
    weights = np.random.default_rng(0).normal(size=300)
    parts = [slice(0, 150), slice(150, 300)]
    halves = [rule(params, cohort.take(part), weights[part]) for part in parts]
    wanted = [a + b for a, b in zip(*halves, strict=True)]
    close_params(close, "blocks", rule(params, cohort, weights), wanted)


@both_routes
def test_gradient_of_a_stack_of_parameters_is_a_loop(gaps, close):
    _, cohort, weights = next(problems(MORE_CHANNELS, gaps))
    several = [params for params, _, _ in problems(MORE_CHANNELS, gaps)][:3]
    stacked = LDSParams(*(jnp.stack(x) for x in zip(*several, strict=True)))
    together = jax.vmap(rule, in_axes=(0, None, None))(stacked, cohort, weights)
    for i, params in enumerate(several):
        wanted = rule(params, cohort, weights)
        close_params(close, "vmap", [x[i] for x in together], wanted, rtol=1e-11)


@both_routes
def test_hessian_is_that_of_the_plain_function(gaps, close):
    params, cohort, weights = list(problems(Shape(2, 2, 2, 4), gaps))[1]

    def hessian(f):
        return jax.jit(jax.hessian(lambda A: f(params._replace(A=A), cohort) @ weights))(params.A)

    H = hessian(log_likelihood)
    close("hessian", H, hessian(plain_log_likelihood))
    close("hessian", H, np.transpose(H, (2, 3, 0, 1)))


@both_routes
def test_forward_mode_works_on_the_plain_function_alone(gaps, close):
    params, cohort, _ = next(problems(MORE_CHANNELS, gaps))
    params = LDSParams(*map(jnp.asarray, params))
    direction = LDSParams(*map(jnp.asarray, random_direction(np.random.default_rng(0), params)))
    value, slope = jax.jvp(lambda p: plain_log_likelihood(p, cohort), (params,), (direction,))
    close("jvp", value, log_likelihood(params, cohort))
    for n in range(len(cohort)):
        grads = rule(params, cohort, np.eye(len(cohort))[n])
        wanted = sum(np.vdot(g, x) for g, x in zip(grads, direction, strict=True))
        close("jvp", slope[n], wanted)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda p: log_likelihood(p, cohort), (params,), (direction,))


@pytest.mark.parametrize("ragged", [False, True], ids=["equal", "ragged"])
@both_routes
def test_total_and_its_gradient_are_sums_over_the_sequences(gaps, ragged, close):
    """With 40 sequences of 4 steps the data of a length is compressed."""
    params, cohort = random_problem(0, Shape(3, 2, 40, 4), gaps=gaps, ragged=ragged)
    value, grads = jax.value_and_grad(total_log_likelihood)(params, cohort)
    close("total", value, oracles.log_likelihood(params, cohort).sum())
    close_params(close, "total", grads, rule(params, cohort, np.ones(40)))
    twice = jax.grad(lambda p: 2.0 * total_log_likelihood(p, cohort))(params)
    close_params(close, "total", twice, [2 * g for g in grads])


@both_routes
def test_score_of_prepared_data_is_the_gradient_through_the_scan(gaps, close):
    """Of either kind of data, with and without weights."""
    for params, cohort, weights in problems(MORE_CHANNELS, gaps):
        for w in (None, weights):
            found = prepare(cohort, jnp.float64, w).score(params)
            wanted = by_autodiff(params, cohort, np.ones(len(cohort)) if w is None else w)
            close_params(close, "score", found, symmetrized(wanted))
