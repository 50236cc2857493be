"""Sequences with gaps in two parts, the short and the long: the same sums as in one."""

import jax
import numpy as np
import oracles
import pytest
from oracles import random_params

from sparse_lds.models import Cohort, prepare
from sparse_lds.models.kalman import prepare as module
from sparse_lds.models.kalman.prepare import Parts, best_cut
from sparse_lds.models.kalman.routes import Route


def short_and_long(seed):
    """Twelve short sequences and three long ones, with gaps."""
    rng = np.random.default_rng(seed)
    lengths = [*rng.integers(1, 4, 12), *rng.integers(13, 16, 3)]
    rng.shuffle(lengths)
    sequences = [rng.normal(size=(n, 2)) for n in lengths]
    oracles.punch(rng, sequences)
    sequences[0][0, 0] = np.nan
    return random_params(rng, 2, 2, 0.8), Cohort.from_sequences(sequences)


@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_two_parts_have_the_sums_of_one(weighted, close, monkeypatch):
    for seed in range(2):
        params, cohort = short_and_long(seed)
        weights = np.random.default_rng(seed).uniform(0, 2, 15) if weighted else None
        monkeypatch.setattr(module, "choose_routes", lambda *_: np.full(15, Route.FILTERED))
        one = prepare(cohort, np.float64, weights)
        monkeypatch.setattr(module, "_WORTH", 1)
        two = prepare(cohort, np.float64, weights)
        monkeypatch.undo()
        assert isinstance(two, Parts) and len(two.parts) == 2 and not isinstance(one, Parts)
        steps = [part.y.shape[-3] for part in two.parts]
        assert steps[0] < 4 and steps[1] == np.asarray(cohort.lengths).max()
        wanted = oracles.statistics(params, cohort, weights)
        for data in (one, two):
            found = data.expected_statistics(params)
            for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                close("parts statistics", x, y)
            close("parts log_likelihood", data.log_likelihood(params), wanted.log_likelihood)
        for x, y in zip(two.score(params), one.score(params), strict=True):
            close("parts score", x, y)
        through = jax.grad(lambda p, data: data.log_likelihood(p))(params, two)
        for x, y in zip(through, one.score(params), strict=True):
            close("parts gradient", x, y)


def test_the_best_cut_is_the_cheapest_of_all(monkeypatch):
    """By trying every split of a sorted list; none where little is saved."""
    monkeypatch.setattr(module, "_WORTH", 50)

    def cost(x):
        return 8 * int(np.ceil(len(x) / 8)) * max(x, default=0)

    rng, cuts = np.random.default_rng(0), 0
    for _ in range(60):
        lengths = rng.integers(1, rng.integers(3, 60), rng.integers(2, 60))
        if rng.random() < 0.5:
            lengths[0] = 200
        ordered = sorted(lengths.tolist())
        splits = [ordered[:i] for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1]]
        found, least = best_cut(lengths), cost(ordered)
        by_split = [cost(s) + cost(ordered[len(s) :]) for s in splits]
        if by_split and min(by_split) < min(2 / 3 * least, least - 50):
            cuts += 1
            short = [n for n in ordered if n <= found]
            assert cost(short) + cost(ordered[len(short) :]) == min(by_split)
        else:
            assert found is None
    assert 10 < cuts < 55
    assert best_cut(np.full(100, 7)) is None


def test_small_cohorts_are_not_cut():
    params, cohort = short_and_long(0)
    assert not isinstance(prepare(cohort, np.float64), Parts)
    assert best_cut(np.array([10] * 900 + [400] * 8)) == 10
