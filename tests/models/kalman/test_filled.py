"""Sequences with gaps that are filled in: the dense Gaussian's results, and the filter where filling loses digits."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import covariance, random_params

from sparse_lds.models import (
    Cohort,
    LDSParams,
    expected_statistics,
    log_likelihood,
    plain_log_likelihood,
    prepare,
    total_log_likelihood,
    with_own_levels,
)
from sparse_lds.models.kalman import routes
from sparse_lds.models.kalman.parts import Guarded, Parts, safe_stiffness, stiffness
from sparse_lds.models.kalman.prepare import guarded
from sparse_lds.models.kalman.packing import sizes_of
from sparse_lds.models.kalman.routes import Route, choose_routes


def sequences(rng, lengths, share, d=3):
    """Sequences of these lengths with a share of their cells missing, one of them in any case."""
    y = [2 * rng.normal(size=(t, d)) + 1 for t in lengths]
    for x in y:
        x[rng.random(x.shape) < share] = np.nan
    y[0][0, 0] = np.nan
    return y


def cells(rng):
    return sequences(rng, [6] * 5, 0.3)


def ragged(rng):
    return sequences(rng, [6, 2, 6, 1, 4, 2, 6], 0.4)


def whole_steps(rng):
    y = sequences(rng, [6, 6, 5, 5], 0.1)
    y[0][2:4], y[1][0], y[2][-2:], y[3][:] = np.nan, np.nan, np.nan, np.nan
    return y


def whole_channels(rng):
    y = sequences(rng, [6] * 4, 0.0)
    y[1][:, 1], y[2][:, 1:] = np.nan, np.nan
    return y


def one_observed_cell(rng):
    y = sequences(rng, [5] * 3, 0.2)
    y[1][:] = np.nan
    y[1][3, 2] = 1.5
    return y


def one_in_a_thousand(rng):
    return sequences(rng, [6] * 55, 0.0)


def nine_in_ten(rng):
    return sequences(rng, [6] * 6, 0.9)


KINDS = [
    cells,
    ragged,
    whole_steps,
    whole_channels,
    one_observed_cell,
    one_in_a_thousand,
    nine_in_ten,
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda f: f.__name__)


def problem(kind, seed=0):
    """Parameters, a cohort, and weights of any sign for its sequences."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    params = LDSParams(*map(jnp.asarray, random_params(rng, 2, 3, 0.9)))
    cohort = Cohort.from_sequences(kind(rng))
    return params, cohort, rng.normal(size=len(cohort))


def close_fields(close, group, result, wanted, rtol=1e-9):
    for name, a, b in zip(wanted._fields, result, wanted, strict=True):
        close(f"{group} {name}", a, b, rtol)


def symmetrized(grads):
    return grads._replace(
        **{k: (getattr(grads, k) + getattr(grads, k).T) / 2 for k in ("Q", "R", "V1")}
    )


@jax.jit
def everything(params, data):
    """The statistics, the value and its gradient, and each sequence with the gradient of their weighted sum."""
    w = data.spare.weights.reshape(-1)[: data.place.size]
    value = jax.value_and_grad(lambda p: data.log_likelihood(p))(params)
    by_each = jax.grad(lambda p: data.sequences(p) @ w)(params)
    return data.expected_statistics(params), value, data.sequences(params), by_each


@every_kind
def test_filled_sequences_are_those_of_the_dense_gaussian(kind, close):
    """Statistics and values by the oracle, gradients by autodiff of the plain filter; weights of any sign."""
    params, cohort, w = problem(kind)
    data = guarded(cohort, np.float64, w)
    assert stiffness(params, cohort.n_steps) < safe_stiffness(np.float64)  # the filter is not run
    stats, (value, grads), each, by_each = everything(params, data)
    close_fields(close, "filled", stats, oracles.statistics(params, cohort, w))
    alone = oracles.log_likelihood(params, cohort)
    close("filled each", each, alone)
    close("filled total", value, alone @ w)
    wanted = symmetrized(jax.grad(lambda p: plain_log_likelihood(p, cohort) @ w)(params))
    close_fields(close, "filled gradient", grads, wanted)
    close_fields(close, "filled gradient", by_each, wanted)


def test_filling_takes_states_without_noise(close):
    """Levels of the sequences' own: Q is singular, and the cells of a channel stay correlated for ever."""
    rng = np.random.default_rng(0)
    core = random_params(rng, 2, 3, 0.8)
    params = with_own_levels(core, rng.normal(size=3), covariance(rng, 3))
    params = LDSParams(*map(jnp.asarray, params))
    cohort = Cohort.from_sequences(whole_steps(rng))
    stats = everything(params, guarded(cohort, np.float64))[0]
    close_fields(close, "filled own_levels", stats, oracles.statistics(params, cohort))


def test_hessian_of_filled_data_is_that_of_the_plain_function(close):
    params, cohort, w = problem(cells)
    data = guarded(cohort, np.float64, w)

    def hessian(f):
        return jax.jit(jax.hessian(lambda A: f(params._replace(A=A))))(params.A)

    wanted = hessian(lambda p: plain_log_likelihood(p, cohort) @ w)
    close("filled hessian", hessian(data.log_likelihood), wanted)


def stiff(params, factor):
    """The parameters with the noise of one direction of R made smaller."""
    values, U = np.linalg.eigh(params.R)
    return params._replace(R=jnp.asarray(U * np.append(factor * values[0], values[1:]) @ U.T))


def test_near_singular_noise_goes_by_the_filter_and_the_border_is_exact(close):
    """Up to the stiffness at which cells are filled in 1e-9 holds; far beyond it the result is the filter's own."""
    params, cohort, _ = problem(whole_steps)
    data = guarded(cohort, np.float64)
    factors = 10.0 ** np.arange(-12.0, 1.0, 0.25)
    safe = [stiffness(stiff(params, f), 6) < safe_stiffness(np.float64) for f in factors]
    border = stiff(params, factors[np.argmax(safe)])
    assert not safe[0] and stiffness(border, 6) > 0.3 * safe_stiffness(np.float64)
    close_fields(close, "border", everything(border, data)[0], oracles.statistics(border, cohort))
    singular = stiff(params, 1e-10)
    by_filter = jax.jit(lambda p, x: x.expected_statistics(p))(singular, data.spare)
    close_fields(close, "singular", everything(singular, data)[0], by_filter, rtol=1e-13)


def test_single_precision_is_usable(close):
    for kind in (cells, whole_steps):
        params, cohort, _ = problem(kind)
        low = LDSParams(*(jnp.asarray(x, jnp.float32) for x in params))
        assert stiffness(low, cohort.n_steps) < safe_stiffness(np.float32)
        stats, (value, _), *_ = everything(low, guarded(cohort, np.float32))
        assert value.dtype == np.float32
        close_fields(close, "float32", stats, oracles.statistics(params, cohort), rtol=1e-3)


def mixed(rng, n_complete, n_gappy, T=5):
    y = sequences(rng, [T] * (n_complete + n_gappy), 0.0)
    for x in y[:n_gappy]:
        x[rng.random(x.shape) < 0.2] = np.nan
    return Cohort.from_sequences([y[i] for i in rng.permutation(len(y))])


def test_cohort_in_three_parts_has_the_sums_and_the_order_of_one(close, monkeypatch):
    """Complete sequences, some to be filled in, and one that is filtered, by the functions that users call."""
    rng = np.random.default_rng(0)
    params = LDSParams(*map(jnp.asarray, random_params(rng, 2, 3, 0.9)))
    cohort = mixed(rng, 12, 8)
    alone = int(np.argmax(~np.asarray(cohort.mask).all((1, 2))))

    def by_hand(gaps, l, d):
        route = np.where(gaps.k == 0, Route.COMPLETE, Route.FILLED)
        route[alone] = Route.FILTERED
        return route

    monkeypatch.setattr("sparse_lds.models.kalman.prepare.choose_routes", by_hand)
    data = prepare(cohort, np.float64)
    assert isinstance(data, Parts) and len(data.parts) == 3
    wanted = oracles.log_likelihood(params, cohort)
    close("routes each", log_likelihood(params, cohort), wanted)
    close("routes total", total_log_likelihood(params, cohort), wanted.sum())
    for w in (None, rng.integers(0, 2, 20).astype(float), rng.normal(size=20)):
        stats = expected_statistics(params, cohort, w)
        close_fields(close, "routes", stats, oracles.statistics(params, cohort, w))


def spread(n, T, d, share, seed=0):
    """The gaps of n sequences of T steps with a share of their cells missing."""
    missing = np.random.default_rng(seed).random((n, T, d)) < share
    return routes.count_gaps(~missing, np.full(n, T))


def test_the_route_follows_from_the_data():
    def kinds(gaps, l, d=3):
        return set(choose_routes(gaps, l, d))

    assert kinds(spread(1000, 50, 3, 0.05), 10) == {Route.FILLED}
    assert kinds(spread(1000, 50, 3, 0.9), 3) == {Route.FILTERED}
    assert kinds(spread(5, 5, 3, 0.1), 2) == {Route.FILTERED}  # not worth a second program
    assert kinds(spread(2, 5000, 3, 0.001), 5) == {Route.FILTERED}  # K would fill the memory
    few = spread(1000, 50, 3, 0.0)
    few.k[:10], few.empty[:10] = 4, 0
    route = choose_routes(few, 10, 3)
    assert (route[10:] == Route.COMPLETE).all() and (route[:10] != Route.COMPLETE).all()


def test_no_single_route_is_cheaper_than_the_one_chosen():
    """Against each route for all sequences that can take it; every route is taken by some of 100 cohorts."""
    rng = np.random.default_rng(0)
    taken = set()
    for seed in range(100):
        n, T, l = (int(x) for x in rng.integers((1, 1, 1), (600, 80, 16)))
        gaps = spread(n, T, 3, rng.uniform(0, 0.7) ** 2, seed)
        gaps.length[:] = np.maximum(1, gaps.length - rng.integers(0, 3, n))
        route = choose_routes(gaps, l, 3)
        assert (gaps.k[route == Route.COMPLETE] == 0).all()
        taken |= set(route)
        found = routes.total_cost(route, gaps, l, 3)
        for other in (Route.FILTERED, Route.FILLED):
            assert found <= routes.total_cost(np.full(n, other), gaps, l, 3)
    assert taken == set(Route)


def test_costs_rise_with_gaps_steps_and_states():
    """More missing cells make filling dearer, more states the filter; so the filter takes over at some share."""
    shares = (0.01, 0.1, 0.3, 0.6, 0.9)
    cost = [routes.filled_cost(spread(50, 50, 3, x), 5, 3).sum() for x in shares]
    assert (np.diff(cost) > 0).all()
    assert routes.filter_cost(50, 10) > routes.filter_cost(50, 5) > routes.filter_cost(25, 5)
    filled = [Route.FILLED in choose_routes(spread(500, 50, 3, x), 5, 3) for x in shares]
    assert filled[0] and not filled[-1] and sorted(filled, reverse=True) == filled


def test_sizes_are_the_cheapest_pair():
    """Against all pairs; one size where a second does not save a tenth."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        k = rng.poisson(rng.uniform(1, 60), 50)
        rounded = np.maximum(8, -(-k // 8) * 8)
        found = sizes_of(k)
        assert (found >= rounded).all() and len(set(found)) <= 2
        largest = rounded.max()
        pairs = [np.where(rounded <= a, a, largest) for a, _ in combinations(np.unique(rounded), 2)]
        least = min([float((x.astype(float) ** 3).sum()) for x in pairs] + [np.inf])
        one = len(k) * float(largest) ** 3
        wanted = least if least < 0.9 * one else one
        np.testing.assert_allclose((found.astype(float) ** 3).sum(), wanted)


def test_guarded_data_are_what_large_cohorts_get():
    rng = np.random.default_rng(0)
    cohort = Cohort.from_sequences(sequences(rng, [20] * 300, 0.05))
    data = prepare(cohort, np.float64, n_states=10)
    parts = data.parts if isinstance(data, Parts) else (data,)
    assert any(isinstance(part, Guarded) for part in parts)
