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
    ExpectedStatistics,
    LDSParams,
    expected_statistics,
    kalman_filter,
    kalman_smoother,
    log_likelihood,
    plain_log_likelihood,
)
from sparse_lds.models.statistics import compress

# Few shapes, as each is compiled, and many problems of each.
SHAPES = [
    Shape(1, 1, 1, 1),
    Shape(2, 3, 3, 6),
    Shape(4, 2, 3, 5),
    Shape(3, 3, 1, 7),
    Shape(2, 4, 5, 1),
    Shape(5, 3, 4, 8),
    Shape(2, 9, 2, 3),  # so many channels that LAPACK factors them
    Shape(2, 1, 40, 3),  # so many sequences that statistics are taken from a few pseudo-sequences
]
SEEDS = range(14)

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
both_routes = pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gappy"])


def problems(shape, gaps):
    return [random_problem(seed, shape, gaps=gaps, ragged=seed % 2 == 1) for seed in SEEDS]


def stack(all_params):
    return LDSParams(*(jnp.stack(x) for x in zip(*all_params, strict=True)))


def unstack(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


@both_routes
@every_shape
def test_log_likelihood_is_that_of_the_dense_gaussian(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        assert cohort.complete is not gaps
        close(
            "log_likelihood", log_likelihood(params, cohort), oracles.log_likelihood(params, cohort)
        )


@both_routes
@every_shape
def test_filter_conditions_on_the_past_and_then_forecasts(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        result, wanted = kalman_filter(params, cohort), oracles.filtered(params, cohort)
        for name, a, b in zip(result._fields, result[:4], wanted, strict=False):
            close(f"filter {name}", a, b)
        close("filter log_likelihood", result[4], oracles.log_likelihood(params, cohort))


@both_routes
@every_shape
def test_smoother_conditions_on_the_whole_sequence(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        result, wanted = kalman_smoother(params, cohort), oracles.smoothed(params, cohort)
        for name, a, b in zip(result._fields, result[:3], wanted, strict=False):
            close(f"smoother {name}", a, b)
        close("smoother log_likelihood", result[3], oracles.log_likelihood(params, cohort))


@both_routes
@every_shape
def test_statistics_are_the_sums_of_the_posterior_moments(shape, gaps, close):
    for params, cohort in problems(shape, gaps):
        result, wanted = expected_statistics(params, cohort), oracles.statistics(params, cohort)
        for name, a, b in zip(result._fields, result, wanted, strict=True):
            close(f"statistics {name}", a, b)
        for x in (result.M1, result.S00, result.S11, result.Szz, result.Syy):
            assert_array_equal(x, x.T)


def test_problems_hold_every_kind_of_gap():
    """The generator does what the tests above rely on."""
    kinds = dict.fromkeys(["cell", "step", "start", "end", "sequence", "ragged"], 0)
    for shape in SHAPES:
        for _, cohort in problems(shape, gaps=True):
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
    assert len(SHAPES) * 2 * len(SEEDS) >= 200


@both_routes
def test_weighted_statistics_are_weighted_sums(gaps, close):
    shape = Shape(2, 3, 3, 6)
    for (params, cohort), weights in zip(
        problems(shape, gaps),
        [(1, 1, 1), (0, 2, 0), (-1, 0.5, 3), (0.1, 1e-3, 7), (0, 0, 0), (-2, -1, -0.25)],
        strict=False,
    ):
        result = expected_statistics(params, cohort, np.array(weights, float))
        wanted = oracles.statistics(params, cohort, weights)
        for name, a, b in zip(result._fields, result, wanted, strict=True):
            close(f"weighted {name}", a, b)


@both_routes
def test_order_of_sequences_is_of_no_matter(gaps, close):
    for params, cohort in problems(Shape(2, 3, 3, 6), gaps):
        turned = Cohort.from_sequences(cohort.sequences()[::-1])
        for a, b in zip(
            expected_statistics(params, turned), expected_statistics(params, cohort), strict=True
        ):
            close("permutation statistics", a, b, rtol=1e-12)
        forward, backward = log_likelihood(params, cohort), log_likelihood(params, turned)
        close("permutation log_likelihood", backward, forward[::-1], rtol=1e-12)


@both_routes
def test_duplicates_double_every_sum(gaps, close):
    for params, cohort in problems(Shape(2, 3, 3, 6), gaps):
        double = Cohort.from_sequences(cohort.sequences() * 2)
        once, twice = expected_statistics(params, cohort), expected_statistics(params, double)
        for a, b in zip(twice, once, strict=True):
            close("duplicates", a, 2 * b, rtol=1e-12)


def test_complete_and_gappy_routes_agree(close):
    for shape in (Shape(4, 2, 3, 5), Shape(2, 9, 2, 3)):
        for params, cohort in problems(shape, gaps=False):
            general = replace(cohort, complete=False)
            for f in (log_likelihood, plain_log_likelihood, expected_statistics):
                a, b = f(params, general), f(params, cohort)
                for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
                    close(f"routes {f.__name__}", x, y)


def test_pseudo_sequences_are_few_and_have_the_same_sums(close):
    shape = Shape(2, 1, 40, 3)
    for params, cohort in problems(shape, gaps=False):
        rows = sum(t * shape.d + 1 for t in set(cohort.lengths.tolist()))
        assert compress(cohort)[0].unit.size == rows < shape.N
        few = expected_statistics(params, cohort)
        all_of_them = expected_statistics(params, cohort, np.ones(shape.N))
        for a, b in zip(few, all_of_them, strict=True):
            close("pseudo-sequences", a, b, rtol=1e-11)


def test_blocks_of_a_large_gappy_cohort_add_up(close):
    """300 sequences run in two blocks, of which the second is filled up."""
    params, cohort = random_problem(0, Shape(1, 1, 300, 2), gaps=True, ragged=True)
    close(
        "blocks log_likelihood",
        log_likelihood(params, cohort),
        oracles.log_likelihood(params, cohort),
    )
    weights = np.random.default_rng(0).normal(size=300)
    halves = [cohort.take(slice(0, 150)), cohort.take(slice(150, 300))]
    for w, parts in ((None, (None, None)), (weights, (weights[:150], weights[150:]))):
        result, wanted = (
            expected_statistics(params, cohort, w),
            oracles.statistics(params, cohort, w),
        )
        each = [expected_statistics(params, half, v) for half, v in zip(halves, parts, strict=True)]
        for name, a, b, c in zip(
            result._fields, result, wanted, zip(*each, strict=True), strict=True
        ):
            close(f"blocks {name}", a, b)
            close(f"blocks {name}", a, c[0] + c[1])


@both_routes
def test_compiled_statistics_are_those_of_the_plain_call(gaps, close):
    shape = Shape(2, 3, 3, 6)
    params, cohort = random_problem(1, shape, gaps=gaps, ragged=True)
    wanted = expected_statistics(params, cohort)
    held = jax.jit(lambda p: expected_statistics(p, cohort))(params)
    passed = jax.jit(expected_statistics)(params, cohort)  # the cohort is an argument, too
    for a, b, c in zip(held, passed, wanted, strict=True):
        close("jit", a, c, rtol=1e-12)
        close("jit", b, c, rtol=1e-12)


@both_routes
@pytest.mark.parametrize(
    "f", [log_likelihood, expected_statistics, kalman_smoother], ids=lambda f: f.__name__
)
def test_vmap_over_parameters_is_a_loop(f, gaps, close):
    shape = Shape(2, 3, 3, 6)
    _, cohort = random_problem(1, shape, gaps=gaps, ragged=True)
    several = [random_problem(seed, shape)[0] for seed in range(3)]
    together = jax.jit(jax.vmap(lambda p: f(p, cohort)))(stack(several))
    for i, params in enumerate(several):
        one, wanted = unstack(together, i), f(params, cohort)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(wanted), strict=True):
            close(f"vmap {f.__name__}", a, b, rtol=1e-12)


@both_routes
def test_statistics_hold_their_precision_under_a_diffuse_first_state(gaps, close):
    """V1 a million times larger than the noise, and more channels than states: all is known from y."""
    shape = Shape(2, 3, 3, 6)
    for params, cohort in problems(shape, gaps=False):
        params = params._replace(V1=1e6 * params.V1)
        cohort = replace(cohort, complete=not gaps)
        result, wanted = expected_statistics(params, cohort), oracles.statistics(params, cohort)
        for name, a, b in zip(ExpectedStatistics._fields, result, wanted, strict=True):
            close(f"diffuse {name}", a, b, rtol=1e-8)
