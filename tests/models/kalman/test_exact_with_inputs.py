"""Inputs: likelihood, filter, smoother, statistics, gradients and forecasts are those of the dense Gaussian."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import Shape, random_problem

from sparse_lds.models import (
    Cohort,
    LDSParams,
    change_basis,
    expected_statistics,
    fisher_score,
    forecast,
    kalman_filter,
    kalman_smoother,
    log_likelihood,
    plain_log_likelihood,
    prepare,
    total_log_likelihood,
)
from sparse_lds.models.kalman.compression import compress
from sparse_lds.models.kalman.prepare import arrange, guarded, shifted, skipped
from sparse_lds.models.kalman.routes import Route

MORE_CHANNELS = Shape(2, 3, 4, 6)
MORE_STATES = Shape(4, 2, 3, 5)
MANY_SEQUENCES = Shape(2, 1, 30, 3)  # complete ones are compressed
ONE_STEP = Shape(2, 2, 3, 1)
CASES = [(MORE_CHANNELS, True)] + [
    (shape, False) for shape in (MORE_CHANNELS, MORE_STATES, MANY_SEQUENCES, ONE_STEP)
]
SEEDS = range(2)

of_data = jax.jit(lambda params, data: (data.expected_statistics(params), data.score(params)))
sequences_of_data = jax.jit(lambda params, data: data.sequences(params))

every_case = pytest.mark.parametrize(("shape", "gaps"), CASES)
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problems(shape, gaps, ahead=0):
    for seed in SEEDS:
        ragged = seed % 2 == 1
        params, cohort = random_problem(seed, shape, gaps=gaps, ragged=ragged, p=2, ahead=ahead)
        yield jax.tree.map(jnp.asarray, params), cohort


def close_leaves(close, group, found, wanted, rtol=1e-9):
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True)
    for (path, a), b in pairs:
        close(f"{group} {jax.tree_util.keystr(path)}", a, b, rtol)


@every_case
def test_likelihood_and_statistics_are_those_of_the_dense_gaussian(shape, gaps, close):
    """And so are the gradients of all eight parameters."""
    for params, cohort in problems(shape, gaps):
        wanted = oracles.statistics(params, cohort)
        both = wanted, fisher_score(params, wanted)
        close_leaves(close, "exact", of_data(params, prepare(cohort, jnp.float64)), both)
        each = oracles.log_likelihood(params, cohort)
        close("likelihood", log_likelihood(params, cohort), each)


@both_routes
def test_the_functions_that_users_call_agree(gaps, close):
    for params, cohort in problems(MORE_CHANNELS, gaps):
        wanted = oracles.statistics(params, cohort)
        close_leaves(close, "statistics", expected_statistics(params, cohort), wanted)
        close("plain", plain_log_likelihood(params, cohort), oracles.log_likelihood(params, cohort))
        close("total", total_log_likelihood(params, cohort), wanted.log_likelihood)
        by_sequence = jax.jit(jax.grad(lambda p, c=cohort: log_likelihood(p, c).sum()))(params)
        close_leaves(close, "each", by_sequence, fisher_score(params, wanted))


@both_routes
def test_score_is_the_derivative_of_the_dense_likelihood(gaps, close):
    """Central differences of the oracle's likelihood, so that Fisher's identity itself is tested."""
    rng = np.random.default_rng(0)
    for params, cohort in problems(MORE_CHANNELS, gaps):
        _, grads = of_data(params, prepare(cohort, jnp.float64))
        for name in ("A", "B", "C", "D", "pi1"):
            x = rng.normal(size=np.shape(getattr(params, name)))

            def along(step, name=name, x=x, params=params, cohort=cohort):
                moved = params._replace(**{name: getattr(params, name) + step * x})
                return oracles.log_likelihood(moved, cohort).sum()

            slope = (along(1e-5) - along(-1e-5)) / 2e-5
            close(f"differences {name}", np.vdot(getattr(grads, name), x), slope, rtol=1e-6)


def by_route(cohort, weights):
    """The same sequences by each route for gaps."""
    yield "filtered", shifted(partial(arrange, multiple=8), cohort, jnp.float64, weights)
    yield "skipped", shifted(skipped, cohort, jnp.float64, weights)
    for route in (Route.FILLED, Route.OBSERVED):
        yield route.name, guarded(cohort, jnp.float64, weights, route).dense


def test_every_route_for_gaps_is_exact(close):
    for params, cohort in list(problems(MORE_CHANNELS, gaps=True))[1:]:  # ragged
        weights = np.random.default_rng(1).uniform(0, 2, len(cohort))
        wanted = oracles.statistics(params, cohort, weights)
        score = fisher_score(params, wanted)
        for name, data in by_route(cohort, weights):
            close_leaves(close, f"route {name}", of_data(params, data), (wanted, score))
            each = oracles.log_likelihood(params, cohort)
            close(f"route {name} each", sequences_of_data(params, data), each)


@both_routes
def test_weights_count_sequences(gaps, close):
    for params, cohort in problems(MANY_SEQUENCES, gaps):
        for weights in (np.arange(30) % 2, np.linspace(0.1, 2, 30)):
            found = expected_statistics(params, cohort, weights)
            close_leaves(close, "weighted", found, oracles.statistics(params, cohort, weights))


def test_pseudo_sequences_are_as_few_as_inputs_are_independent():
    """A constant input and one that does not change with time add one column each, not one for each step."""
    rng = np.random.default_rng(0)
    y, age = rng.normal(size=(60, 4, 2)), rng.normal(size=(60, 1, 1))
    cohort = Cohort.from_array(y, inputs=np.broadcast_to(age, (60, 4, 1))).with_intercept()
    assert len(compress(cohort).unit) == 4 * 2 + 1 + 1
    assert len(compress(Cohort.from_array(y, inputs=rng.normal(size=(60, 4, 2)))).unit) == 17


@both_routes
def test_filter_smoother_and_forecasts(gaps, close):
    for params, cohort in problems(MORE_CHANNELS, gaps, ahead=9):
        filtered, smoothed = kalman_filter(params, cohort), kalman_smoother(params, cohort)
        close_leaves(close, "filter", filtered[:4], oracles.filtered(params, cohort))
        close_leaves(close, "smoother", smoothed[:3], oracles.smoothed(params, cohort))
        given = np.random.default_rng(0).integers(0, cohort.lengths + 1)
        ahead = forecast(params, cohort, 3, given)
        close_leaves(close, "forecast", tuple(ahead), oracles.forecast(params, cohort, 3, given))


def test_means_past_the_end_are_unknown_where_inputs_are():
    params, cohort = random_problem(1, MORE_CHANNELS, ragged=True, p=2)
    after = np.arange(cohort.n_steps)[None] >= cohort.lengths[:, None]
    assert after.any()
    for mean in (kalman_filter(params, cohort).mean, kalman_smoother(params, cohort).mean):
        np.testing.assert_array_equal(np.isnan(mean).all(2), after)


def test_forecasts_under_other_inputs(close):
    """Inputs given to a forecast are as if the cohort had them, and replace those that it has."""
    params, cohort = random_problem(0, MORE_CHANNELS, p=2, ahead=4)
    wanted = forecast(params, cohort, 4)
    bare = replace(cohort, ahead=None)
    close_leaves(close, "given", forecast(params, bare, 4, inputs=cohort.ahead), wanted)
    other = forecast(params, cohort, 4, inputs=np.zeros((4, 2)))
    zeros = replace(cohort, ahead=np.zeros_like(cohort.ahead))
    close_leaves(close, "other", other, forecast(params, zeros, 4))
    with pytest.raises(ValueError, match="step 6 of sequence 0 needs its input 'u0'"):
        forecast(params, bare, 1)
    with pytest.raises(ValueError, match="step 10 of sequence 0"):
        forecast(params, cohort, 5)
    with pytest.raises(ValueError, match=r"give \(4, 4, 2\)"):
        forecast(params, cohort, 4, inputs=np.zeros((4, 3)))
    forecast(params, cohort, 4, given=2)  # known, from within the sequence


def test_an_intercept_needs_no_future(close):
    params, cohort = random_problem(0, MORE_CHANNELS)
    D = np.array([[1.0], [2.0], [3.0]])
    shifted_params = params._replace(B=np.zeros((2, 1)), D=D)
    moved = Cohort.from_sequences([y + D[:, 0] for y in cohort.sequences()]).with_intercept()
    a, b = forecast(params, cohort, 3), forecast(shifted_params, moved, 3)
    close("intercept mean", b.mean, a.mean + D[:, 0])
    close("intercept cov", b.cov, a.cov)
    assert np.isfinite(kalman_filter(shifted_params, moved).predicted_mean).all()


def test_a_change_of_basis_keeps_the_likelihood(close):
    params, cohort = random_problem(0, MORE_STATES, gaps=True, p=2)
    W = np.random.default_rng(0).normal(size=(4, 4))
    moved = change_basis(params, W)
    close("basis", log_likelihood(moved, cohort), oracles.log_likelihood(params, cohort))


def test_hessians_and_vmap(close):
    params, cohort = random_problem(0, MORE_CHANNELS, gaps=True, p=2)
    params = jax.tree.map(jnp.asarray, params)

    def f(x, like):
        return like(params._replace(B=x[:4].reshape(2, 2), D=x[4:].reshape(3, 2)), cohort).sum()

    x = jnp.concatenate([params.B.ravel(), params.D.ravel()])
    by_rule, by_scan = (
        jax.jit(jax.hessian(partial(f, like=g)))(x) for g in (log_likelihood, plain_log_likelihood)
    )
    close("hessian", by_rule, by_scan, rtol=1e-8)
    two = jax.tree.map(lambda x: jnp.stack([x, 0.9 * x]), params)
    values = jax.jit(jax.vmap(lambda p: log_likelihood(p, cohort)))(two)
    close(
        "vmap", values[1], oracles.log_likelihood(jax.tree.map(lambda x: 0.9 * x, params), cohort)
    )


@both_routes
def test_gradients_in_data_and_inputs(gaps, close):
    for params, cohort in problems(MORE_CHANNELS, gaps):

        def f(data, like, params=params, cohort=cohort):
            return like(params, replace(cohort, y=data[0], u=data[1])).sum()

        data = jnp.asarray(cohort.y), jnp.asarray(cohort.u)
        likes = log_likelihood, plain_log_likelihood
        by_rule, by_scan = (jax.jit(jax.grad(partial(f, like=g)))(data) for g in likes)
        close_leaves(close, "data", by_rule, by_scan)


@pytest.mark.parametrize("shape", [Shape(44, 4, 3, 12)], ids=["44"])
def test_large_models_are_exact(shape, close):
    """A compiler once made a wrong kernel of products and their sum over steps, from 40 states on."""
    params, cohort = random_problem(0, shape, radius=0.9, p=2)
    wanted = oracles.statistics(params, cohort)
    both = wanted, fisher_score(params, wanted)
    params = jax.tree.map(jnp.asarray, params)
    found = of_data(params, prepare(cohort, jnp.float64))
    close_leaves(close, "many states", found, both, rtol=1e-8)


def test_few_pseudo_sequences_have_inputs():
    """As many as the inputs have independent columns; the sums are those of all rows (1, y, u)."""
    rng = np.random.default_rng(0)
    y, u, age = (
        rng.normal(size=(60, 4, 2)),
        rng.normal(size=(60, 4, 1)),
        rng.normal(size=(60, 1, 1)),
    )
    inputs = np.concatenate([u, np.broadcast_to(age, u.shape)], axis=2)
    cohort = Cohort.from_array(y, inputs=inputs)
    found = compress(cohort)
    assert found.u.shape == (4, 2, 5)
    assert len(found.unit) == 4 * 2 + 1 + 5
    more = [(0, 0), (0, 0), (0, len(found.unit) - 5)]
    rows = np.vstack(
        [found.unit, found.y.reshape(8, -1), np.pad(found.u, more).reshape(8, -1)]
    )  # (columns, pseudo-sequences)
    wanted = np.hstack([np.ones((60, 1)), y.reshape(60, -1), inputs.reshape(60, -1)])
    np.testing.assert_allclose(rows @ rows.T, wanted.T @ wanted, atol=1e-12)


def test_models_and_cohorts_must_agree_on_inputs():
    params, cohort = random_problem(0, MORE_CHANNELS, p=2)
    plain = LDSParams(*params[:6])
    bare = replace(cohort, u=None, labels=replace(cohort.labels, inputs=()))
    for f in (log_likelihood, total_log_likelihood, expected_statistics, kalman_filter):
        with pytest.raises(ValueError, match="the cohort has inputs"):
            f(plain, cohort)
        with pytest.raises(ValueError, match="the cohort has no inputs"):
            f(params, bare)
        with pytest.raises(ValueError, match="params.D is None"):
            f(params._replace(D=None), cohort)
        with pytest.raises(ValueError, match="2 inputs"):
            f(params._replace(B=np.zeros((2, 3))), cohort)
