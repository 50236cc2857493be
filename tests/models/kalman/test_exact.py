"""Likelihood, filter, smoother and statistics are those of the dense Gaussian, by every route."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from oracles import Shape, random_problem

from sparse_lds.models import (
    Cohort,
    LDSParams,
    expected_statistics,
    fisher_score,
    kalman_filter,
    kalman_smoother,
    log_likelihood,
    prepare,
)
from sparse_lds.models.kalman.compression import compress

# Few shapes, as each is compiled, and many problems of each.
ONE_CELL = Shape(1, 1, 1, 1)
MORE_CHANNELS = Shape(2, 3, 3, 6)
MORE_STATES = Shape(4, 2, 3, 5)
ONE_STEP = Shape(2, 4, 5, 1)
ONE_SEQUENCE = Shape(5, 3, 1, 8)
MANY_CHANNELS = Shape(2, 9, 2, 3)  # LAPACK factors S
MANY_SEQUENCES = Shape(2, 1, 40, 3)  # statistics come from a few pseudo-sequences
FEW = [ONE_CELL, MORE_CHANNELS, MORE_STATES, ONE_STEP, ONE_SEQUENCE, MANY_CHANNELS]
ALL = [*FEW, MANY_SEQUENCES]
SEEDS = range(16)


def cases(complete, gappy):
    both = [(shape, False) for shape in complete] + [(shape, True) for shape in gappy]
    names = ["-".join(map(str, shape)) + "-gappy" * gaps for shape, gaps in both]
    return pytest.mark.parametrize(("shape", "gaps"), both, ids=names)


every_case = cases(complete=ALL, gappy=ALL)
# filter and smoother know one route only
one_route = cases(complete=[MORE_CHANNELS, MORE_STATES], gappy=FEW)
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problems(shape, gaps):
    return [random_problem(seed, shape, gaps=gaps, ragged=seed % 2 == 1) for seed in SEEDS]


def stack(all_params):
    return LDSParams(*(jnp.stack(x) for x in zip(*all_params, strict=True)))


def close_fields(close, group, result, wanted, rtol=1e-9):
    for name, a, b in zip(result._fields, result, wanted, strict=True):
        if name != "inputs":
            close(f"{group} {name}", a, b, rtol)


def test_problems_are_many_and_hold_every_kind_of_gap():
    assert len(ALL) * 2 * len(SEEDS) >= 200
    kinds = dict.fromkeys(["ragged", "cell", "step", "start", "end", "sequence"], 0)
    for shape in FEW:
        for _, cohort in problems(shape, gaps=True):
            assert not cohort.complete
            kinds["ragged"] += len(set(cohort.lengths.tolist())) > 1
            for y in cohort.sequences():
                missing = np.isnan(y)
                whole = missing.all(1)
                kinds["cell"] += (missing.any(1) & ~whole).any()
                kinds["sequence"] += whole.all()
                kinds["start"] += whole[0] and not whole.all()
                kinds["end"] += whole[-1] and not whole.all()
                kinds["step"] += whole[1:-1].any() and not (whole[0] or whole[-1])
    assert min(kinds.values()) >= 10, kinds


@every_case
def test_log_likelihood_is_that_of_the_dense_gaussian(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        wanted = oracles.log_likelihood(params, cohort)
        close("log_likelihood", log_likelihood(params, cohort), wanted)


@one_route
def test_filter_conditions_on_the_past_and_then_forecasts(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        wanted = *oracles.filtered(params, cohort), oracles.log_likelihood(params, cohort)
        close_fields(close, "filter", kalman_filter(params, cohort), wanted)


@one_route
def test_smoother_conditions_on_the_whole_sequence(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        wanted = *oracles.smoothed(params, cohort), oracles.log_likelihood(params, cohort)
        close_fields(close, "smoother", kalman_smoother(params, cohort), wanted)


@every_case
def test_statistics_are_sums_of_posterior_moments(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        result = expected_statistics(params, cohort)
        close_fields(close, "statistics", result, oracles.statistics(params, cohort))
        for x in (result.M1, result.S00, result.S11, result.Szz, result.Syy):
            assert_array_equal(x, x.T)


@both_routes
def test_weighted_statistics_are_weighted_sums(gaps, close):
    weights = [(1, 1, 1), (0, 2, 0), (-1, 0.5, 3), (0.1, 1e-3, 7), (0, 0, 0), (-2, -1, -0.25)]
    for (params, cohort), w in zip(problems(MORE_CHANNELS, gaps), weights, strict=False):
        result = expected_statistics(params, cohort, np.array(w, float))
        close_fields(close, "weighted", result, oracles.statistics(params, cohort, w))


@both_routes
def test_statistics_know_no_order_and_count_repeats(gaps, close):
    rng = np.random.default_rng(0)
    for params, cohort in problems(MORE_CHANNELS, gaps):
        twice = cohort.sequences() * 2
        wanted = expected_statistics(params, Cohort.from_sequences(twice))
        once = oracles.statistics(params, cohort)
        close_fields(close, "repeats", wanted, jax.tree.map(lambda x: 2 * x, once))
        shuffled = Cohort.from_sequences([twice[i] for i in rng.permutation(len(twice))])
        close_fields(close, "order", expected_statistics(params, shuffled), wanted, rtol=1e-12)


def test_complete_data_may_take_the_route_for_gaps(close):
    for params, cohort in problems(MORE_STATES, gaps=False):
        general = replace(cohort, complete=False)
        close("routes", log_likelihood(params, general), log_likelihood(params, cohort))
        wanted = expected_statistics(params, cohort)
        close_fields(close, "routes", expected_statistics(params, general), wanted)


def test_pseudo_sequences_are_few():
    """That they have the right sums is seen above."""
    for _, cohort in problems(MANY_SEQUENCES, gaps=False):
        rows = sum(t * MANY_SEQUENCES.d + 1 for t in set(cohort.lengths.tolist()))
        assert compress(cohort).unit.size == rows < len(cohort)


def test_pseudo_sequences_of_very_many_keep_their_sums(close):
    """9,000 sequences are compressed in three blocks."""
    y = np.random.default_rng(0).normal(5.0, 1.0, size=(9000, 3, 2))
    lengths = np.resize([3, 3, 3, 2], len(y))
    few = compress(Cohort.from_array(y, lengths=lengths))
    assert few.unit.size == 7 + 5
    for length, count in ((3, 6750), (2, 2250)):
        rows = np.c_[np.ones(count), y[lengths == length, :length].reshape(count, -1)]
        at = few.inside.sum(0) == length
        found = np.c_[few.unit[at], few.y[:length][..., at].reshape(-1, at.sum()).T]
        close(f"length {length}", found.T @ found, rows.T @ rows, rtol=1e-12)


def test_blocks_of_a_large_gappy_cohort_add_up(close):
    """300 sequences run in two blocks, of which the second is filled up."""
    params, cohort = random_problem(0, Shape(1, 1, 300, 2), gaps=True, ragged=True)
    wanted = oracles.log_likelihood(params, cohort)
    close("blocks log_likelihood", log_likelihood(params, cohort), wanted)
    w = np.random.default_rng(0).normal(size=300)
    result = expected_statistics(params, cohort, w)
    close_fields(close, "blocks", result, oracles.statistics(params, cohort, w))
    halves = [
        expected_statistics(params, cohort.take(part), w[part])
        for part in (slice(0, 150), slice(150, 300))
    ]
    close_fields(close, "blocks", result, jax.tree.map(jnp.add, *halves))


@both_routes
def test_statistics_compile_with_the_cohort_held_or_passed(gaps, close):
    params, cohort = random_problem(1, MORE_CHANNELS, gaps=gaps, ragged=True)
    wanted = oracles.statistics(params, cohort)
    held = jax.jit(lambda p: expected_statistics(p, cohort))(params)
    close_fields(close, "jit", held, wanted)
    close_fields(close, "jit", jax.jit(expected_statistics)(params, cohort), wanted)


@both_routes
def test_stack_of_parameters_is_a_loop(gaps, close):
    _, cohort = random_problem(1, MORE_CHANNELS, gaps=gaps, ragged=True)
    several = [random_problem(seed, MORE_CHANNELS)[0] for seed in range(3)]

    def all_of_them(params):
        smoothed = kalman_smoother(params, cohort)
        return log_likelihood(params, cohort), expected_statistics(params, cohort), smoothed[:3]

    together = jax.jit(jax.vmap(all_of_them))(stack(several))
    for i, params in enumerate(several):
        ll, stats, smoothed = jax.tree.map(lambda x, i=i: x[i], together)
        close("vmap log_likelihood", ll, oracles.log_likelihood(params, cohort))
        close_fields(close, "vmap", stats, oracles.statistics(params, cohort))
        for a, b in zip(smoothed, oracles.smoothed(params, cohort), strict=True):
            close("vmap smoother", a, b)


@both_routes
def test_statistics_keep_their_precision_under_a_diffuse_first_state(gaps, close):
    """V1 is a million times the noise, but with d > l the data tells all states: no digits are lost.

    S has a condition number of 1e7, so that 1e-9 is what any method can give; 2e-8 leaves room for
    cancellation in the sums.
    """
    for params, cohort in problems(MORE_CHANNELS, gaps=False):
        params = params._replace(V1=1e6 * params.V1)
        cohort = replace(cohort, complete=not gaps)
        result = expected_statistics(params, cohort)
        close_fields(close, "diffuse", result, oracles.statistics(params, cohort), rtol=2e-8)


@pytest.mark.parametrize("shape", [Shape(40, 6, 3, 12), Shape(48, 4, 2, 24)], ids=["40", "48"])
def test_large_models_are_exact(shape, close):
    """A compiler once made a wrong kernel of the sums over steps, from 40 states on."""
    params, cohort = random_problem(0, shape, radius=0.9)
    wanted = oracles.statistics(params, cohort)
    close_fields(close, "statistics of many states", expected_statistics(params, cohort), wanted)
    compiled = jax.jit(lambda params, data: data.score(params))
    score = compiled(LDSParams(*map(jnp.asarray, params)), prepare(cohort, jnp.float64))
    close_fields(close, "score of many states", score, fisher_score(params, wanted), rtol=1e-8)
