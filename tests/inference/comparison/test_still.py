"""What never moves, short runs, and what is said of sound draws: the verdicts of `diagnose`."""

import numpy as np
import pytest
from made_posteriors import fit_of, posterior_of

from sparse_lds.inference import diagnose
from sparse_lds.inference.posterior.diagnostics import limits
from sparse_lds.models import GammaLaplace, Laplace, SpikeSlab

FIT = fit_of(np.diag([0.8, 0.6]))


def draws(n=300, l=2, seed=0):
    return np.random.default_rng(seed).normal(0.5, 0.1, size=(4, n, l, l))


def test_an_entry_that_never_moves_is_a_problem_unless_it_is_forced():
    A = draws()
    A[..., 0, 1] = 0.0
    forced = GammaLaplace(1.0, 0.1, Laplace(np.array([[1.0, np.inf], [1.0, 1.0]])))
    assert diagnose(posterior_of(A, FIT, prior=forced)).ok
    stuck = diagnose(posterior_of(A, FIT, prior=GammaLaplace()))
    assert not stuck.ok and "A[0, 1]" in str(stuck) and "more draws" not in str(stuck)
    spikes = {"included": A != 0}
    assert diagnose(posterior_of(A, FIT, prior=SpikeSlab(), also=spikes)).ok
    A[..., 1, 0] = 0.3  # included, and yet never moved
    found = diagnose(posterior_of(A, FIT, prior=SpikeSlab(), also=spikes))
    assert not found.ok and "A[1, 0]" in str(found) and "A[0, 1]" not in str(found)


def test_zeros_of_shapes_and_static_states_may_stand_still():
    A = np.broadcast_to(np.eye(4), (4, 300, 4, 4)).copy()
    A[..., :2, :2] = draws()
    rng = np.random.default_rng(1)
    Q = np.zeros_like(A)
    Q[..., [0, 1], [0, 1]] = rng.gamma(5.0, size=(4, 300, 2))
    fit = fit_of(np.eye(4))

    def verdict(A, **also):
        found = posterior_of(A, fit, prior=GammaLaplace(), also=also, free="A Q", n_states=4)
        groups = {k: found[k] for k in ("posterior", "sample_stats", "observed_data")}
        groups["observed_data"] = groups["observed_data"].isel(channel=[0, 1])
        return diagnose(groups)

    assert "never moved" not in str(verdict(A, Q=Q))
    A[..., 0, 0] = 0.5
    Q[..., 1, 1] = 0.7
    text = str(verdict(A, Q=Q))
    assert "never moved" in text and "2 (A[0, 0], Q[1, 1])" in text


def test_frozen_chains_are_told_and_more_of_them_not_advised():
    A = draws(50)
    A[1], A[3] = A[1, 0], A[3, 0]
    found = diagnose(posterior_of(A, FIT))
    assert not found.ok and "2 of 4 chains never moved (number 1, 3)" in str(found)
    A[:] = A[:, :1]
    every = diagnose(posterior_of(A, FIT))
    assert not every.ok and "4 of 4 chains never moved" in str(every)
    for text in (str(found), str(every)):
        assert "more draws" not in text and "modes" not in text


@pytest.mark.parametrize("n", [50, 100, 250])
def test_short_runs_of_independent_draws_are_sound(n):
    """Few false alarms among 20 runs of 49 entries; but a chain apart is seen."""
    fit = fit_of(np.diag(np.full(7, 0.9)))
    found = [diagnose(posterior_of(draws(n, 7, seed), fit)) for seed in range(20)]
    mixed = ["have not mixed" not in str(v) for v in found]
    assert sum(mixed) >= 18
    few = [v for v in found if v.ok]
    assert all("few draws" in str(v) for v in few) or n == 250
    apart = draws(n, 7)
    apart[0] += 0.1  # by a standard deviation
    assert "have not mixed" in str(diagnose(posterior_of(apart, fit)))


def test_limits_are_the_usual_ones_for_long_runs():
    assert limits(100_000) == (pytest.approx(1.01, abs=2e-4), 400)
    assert limits(1100)[1] == 400 and limits(200)[1] == pytest.approx(40)


def test_the_prior_and_what_was_held_are_said_without_blame():
    found = diagnose(posterior_of(draws(), FIT, prior=GammaLaplace(), conditional=1))
    assert found.ok and "conditional on the fit" in str(found) and "β unknown" in str(found)
    assert "conditional" not in str(diagnose(posterior_of(draws(), FIT, prior=GammaLaplace())))


def test_spikes_that_are_nearly_always_zero_are_no_problem():
    A, rng = draws(1000), np.random.default_rng(3)
    A[..., 0, 1] = np.where(rng.random((4, 1000)) < 0.5, 0.0, A[..., 0, 1])
    A[..., 1, 0] = 0.0
    A[2, 500, 1, 0] = 0.1
    also = {"included": A != 0, "omega": rng.beta(3, 2, size=(4, 1000)), "beta": np.ones((4, 1000))}
    found = diagnose(posterior_of(A, FIT, prior=SpikeSlab(), also=also))
    assert found.ok
    assert not found.table.index.str.startswith(("included", "beta")).any()
    assert found.table.index.str.startswith("omega").any()
