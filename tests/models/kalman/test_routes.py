"""Routes of sequences with gaps: the dense Gaussian's results on each, and the filter where a route loses digits."""

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
from sparse_lds.models.kalman import packing, routes
from sparse_lds.models.kalman.packing import kept_steps, sizes_of
from sparse_lds.models.kalman.parts import Guarded, Parts, safe_stiffness, stiffness
from sparse_lds.models.kalman.prepare import guarded, skipped
from sparse_lds.models.kalman.routes import Route, choose_routes
from sparse_lds.models.kalman.skipping import MOST


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


def long_gaps(rng):
    """Gaps longer than the most that is skipped at once; at the start and at the end too."""
    y = sequences(rng, [30, 24, 12, 1, 2], 0.2)
    y[0][1:29], y[1][:20], y[2][1:] = np.nan, np.nan, np.nan
    y[0][12, 1] = 0.3
    return y


KINDS = [
    cells,
    ragged,
    whole_steps,
    whole_channels,
    one_observed_cell,
    one_in_a_thousand,
    nine_in_ten,
    long_gaps,
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
        if name != "inputs":
            close(f"{group} {name}", a, b, rtol)


def symmetrized(grads):
    return grads._replace(
        **{k: (getattr(grads, k) + getattr(grads, k).T) / 2 for k in ("Q", "R", "V1")}
    )


@jax.jit
def everything(params, data):
    """The statistics, the value and its gradient, and each sequence."""
    value = jax.value_and_grad(lambda p: data.log_likelihood(p))(params)
    return data.expected_statistics(params), value, data.sequences(params)


gradient_by_each = jax.jit(jax.grad(lambda params, data, w: data.sequences(params) @ w))


def by_route(cohort, w, route):
    """Data of a route, and where each sequence is in its `sequences`."""
    if route is Route.SKIPPED:
        return skipped(cohort, np.float64, w), np.arange(len(cohort))
    found = guarded(cohort, np.float64, w, route)
    return found.dense, np.asarray(found.place)


CASES = [(Route.FILLED, kind) for kind in KINDS[:-1]]
CASES += [
    (route, kind)
    for route in (Route.OBSERVED, Route.SKIPPED)
    for kind in (ragged, whole_steps, one_observed_cell, long_gaps)
]


@pytest.mark.parametrize("route, kind", CASES, ids=lambda x: getattr(x, "name", None) or x.__name__)
def test_every_route_has_the_results_of_the_dense_gaussian(route, kind, close):
    """Statistics and values by the oracle, gradients by autodiff of the plain filter; weights of any sign."""
    params, cohort, w = problem(kind)
    data, place = by_route(cohort, w, route)
    stats, (value, grads), each = everything(params, data)
    name = route.name.lower()
    close_fields(close, name, stats, oracles.statistics(params, cohort, w))
    alone = oracles.log_likelihood(params, cohort)
    close(f"{name} each", each[place], alone)
    close(f"{name} total", value, alone @ w)
    wanted = symmetrized(jax.grad(lambda p: plain_log_likelihood(p, cohort) @ w)(params))
    close_fields(close, f"{name} gradient", grads, wanted)
    if kind is ragged:
        by_each = gradient_by_each(params, data, jnp.zeros(each.size).at[place].set(w))
        close_fields(close, f"{name} gradient", by_each, wanted)


def test_skipped_steps_are_those_without_a_cell():
    """Kept are the ends, every step with a cell, and no hop is longer than the table."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        N, T = rng.integers(1, 6), rng.integers(1, 40)
        lengths = rng.integers(1, T + 1, N)
        mask = rng.random((N, T, 2)) < rng.uniform(0, 0.3)
        kept = kept_steps(mask, lengths)
        for n in range(N):
            steps = np.flatnonzero(kept[n])
            assert steps[0] == 0 and steps[-1] == lengths[n] - 1
            assert np.diff(steps).max(initial=0) <= MOST
            seen = np.flatnonzero(mask[n, : lengths[n]].any(1))
            assert set(seen) <= set(steps)
            extra = sorted(set(steps) - set(seen) - {0, lengths[n] - 1})
            # any other is at the end of a longest hop
            assert all(steps[np.searchsorted(steps, t) - 1] == t - MOST for t in extra)


statistics = jax.jit(lambda params, data: data.expected_statistics(params))


@pytest.mark.parametrize(
    "route", [Route.FILLED, Route.OBSERVED, Route.SKIPPED], ids=lambda x: x.name
)
def test_every_route_takes_states_without_noise(route, close):
    """Levels of the sequences' own: Q is singular, and the cells of a channel stay correlated for ever."""
    rng = np.random.default_rng(0)
    core = random_params(rng, 2, 3, 0.8)
    params = with_own_levels(core, rng.normal(size=3), covariance(rng, 3))
    params = LDSParams(*map(jnp.asarray, params))
    cohort = Cohort.from_sequences(whole_steps(rng))
    data, _ = by_route(cohort, np.ones(len(cohort)), route)
    wanted = oracles.statistics(params, cohort)
    close_fields(close, "own_levels", statistics(params, data), wanted)


@pytest.mark.parametrize(
    "route", [Route.FILLED, Route.OBSERVED, Route.SKIPPED], ids=lambda x: x.name
)
def test_hessian_of_every_route_is_that_of_the_plain_function(route, close):
    params, cohort, w = problem(whole_steps)
    data, _ = by_route(cohort, w, route)

    def hessian(f):
        return jax.jit(jax.hessian(lambda A: f(params._replace(A=A))))(params.A)

    wanted = hessian(lambda p: plain_log_likelihood(p, cohort) @ w)
    close("hessian", hessian(data.log_likelihood), wanted)


def stiff(params, factor):
    """The parameters with the noise of one direction of R made smaller."""
    values, U = np.linalg.eigh(params.R)
    return params._replace(R=jnp.asarray(U * np.append(factor * values[0], values[1:]) @ U.T))


@pytest.mark.parametrize("route", [Route.FILLED, Route.OBSERVED], ids=lambda x: x.name)
def test_near_singular_noise_goes_by_the_filter_and_the_border_is_exact(route, close):
    """Up to the stiffness at which the law of all cells is used 1e-9 holds; far beyond it the filter's own result."""
    params, cohort, _ = problem(whole_steps)
    data = guarded(cohort, np.float64, route=route)
    factors = 10.0 ** np.arange(-12.0, 1.0, 0.25)
    safe = [stiffness(stiff(params, f), 6) < safe_stiffness(np.float64) for f in factors]
    border = stiff(params, factors[np.argmax(safe)])
    assert not safe[0] and stiffness(border, 6) > 0.3 * safe_stiffness(np.float64)
    close_fields(close, "border", statistics(border, data), oracles.statistics(border, cohort))
    singular = stiff(params, 1e-10)
    by_filter = statistics(singular, data.spare)
    close_fields(close, "singular", statistics(singular, data), by_filter, rtol=1e-13)


def test_single_precision_is_usable(close):
    for kind in (cells, whole_steps):
        params, cohort, _ = problem(kind)
        low = LDSParams(*(jnp.asarray(x, jnp.float32) for x in params))
        assert stiffness(low, cohort.n_steps) < safe_stiffness(np.float32)
        stats = statistics(low, guarded(cohort, np.float32).dense)
        assert stats.Szz.dtype == np.float32
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


def spread(n, T, d, share, seed=0, steps=False):
    """The gaps of n sequences of T steps with a share of their cells, or of whole steps, missing."""
    missing = np.random.default_rng(seed).random((n, T, 1 if steps else d)) < share
    return routes.count_gaps(~np.broadcast_to(missing, (n, T, d)), np.full(n, T))


def test_the_route_follows_from_the_data():
    def kinds(gaps, l, d=3):
        return set(choose_routes(gaps, l, d))

    assert kinds(spread(1000, 50, 3, 0.05), 10) == {Route.FILLED}
    assert kinds(spread(1000, 100, 3, 0.85), 15) == {Route.OBSERVED}
    assert kinds(spread(1000, 50, 3, 0.5), 3) == {Route.FILTERED}
    assert kinds(spread(5, 5, 3, 0.1), 2) == {Route.FILTERED}  # not worth a second program
    assert kinds(spread(2, 5000, 3, 0.001), 5) == {Route.FILTERED}  # K would fill the memory
    assert kinds(spread(1000, 50, 3, 0.6, steps=True), 3) == {Route.SKIPPED}
    few = spread(1000, 50, 3, 0.0)
    few.k[:10] = 4
    route = choose_routes(few, 10, 3)
    assert (route[10:] == Route.COMPLETE).all() and (route[:10] != Route.COMPLETE).all()


def test_no_single_route_is_cheaper_than_the_one_chosen():
    """Against each route for all sequences that can take it; every route is taken by some of 100 cohorts."""
    rng = np.random.default_rng(0)
    taken = set()
    for seed in range(100):
        n, T, l = (int(x) for x in rng.integers((1, 1, 1), (600, 80, 16)))
        gaps = spread(n, T, 3, rng.uniform(0, 0.9), seed, steps=seed % 2 == 0)
        gaps.length[:] = np.maximum(1, gaps.length - rng.integers(0, 3, n))
        route = choose_routes(gaps, l, 3)
        assert (gaps.k[route == Route.COMPLETE] == 0).all()
        taken |= set(route)
        found = routes.total_cost(route, gaps, l, 3)
        for other in set(Route) - {Route.COMPLETE}:
            assert found <= routes.total_cost(np.full(n, other), gaps, l, 3)
    assert taken >= set(Route) - {Route.COMPLETE}


def test_costs_rise_with_gaps_steps_and_states():
    """More missing cells make filling dearer, more observed ones their law, more states the filter."""

    def cost(route, share=0.3, T=50, l=5):
        return routes.route_cost(route, spread(50, T, 3, share, steps=True), l, 3)

    shares = (0.01, 0.1, 0.3, 0.6, 0.9)
    assert (np.diff([cost(Route.FILLED, x) for x in shares]) > 0).all()
    for route in (Route.OBSERVED, Route.SKIPPED):
        assert (np.diff([cost(route, x) for x in shares]) < 0).all()
    for route in (Route.FILTERED, Route.SKIPPED):
        assert cost(route, l=10) > cost(route) > cost(route, T=25)
    filled = [Route.FILLED in choose_routes(spread(500, 50, 3, x), 5, 3) for x in shares]
    assert filled[0] and not filled[-1] and sorted(filled, reverse=True) == filled


def test_sizes_are_the_cheapest():
    """Against all sets of up to four sizes; each after the first must save what a program is worth."""
    rng = np.random.default_rng(0)
    numbers = set()
    for _ in range(20):
        k = rng.poisson(rng.uniform(1, 60), rng.choice([50, 500, 5000]))
        rounded = np.maximum(8, -(-k // 8) * 8)
        found = sizes_of(k)
        assert (found >= rounded).all()

        def cost(chosen, rounded=rounded):
            size = chosen[np.searchsorted(chosen, rounded)].astype(float)
            return packing._OF_ENTRY * (size**2).sum() + packing._WORTH * (len(chosen) - 1)

        *smaller, largest = np.unique(rounded)
        sets = [np.array([*few, largest]) for n in range(4) for few in combinations(smaller, n)]
        np.testing.assert_allclose(cost(np.unique(found)), min(cost(x) for x in sets))
        numbers.add(len(np.unique(found)))
    assert numbers == {1, 2, 3, 4}


def test_guarded_data_are_what_large_cohorts_get():
    rng = np.random.default_rng(0)
    cohort = Cohort.from_sequences(sequences(rng, [20] * 300, 0.05))
    data = prepare(cohort, np.float64, n_states=10)
    parts = data.parts if isinstance(data, Parts) else (data,)
    assert any(isinstance(part, Guarded) for part in parts)
