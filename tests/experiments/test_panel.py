"""The synthetic panel, and what the demo says of it at its end."""

import numpy as np
import pandas as pd
import pytest
from made_posteriors import fit_of, posterior_of

from sparse_lds.experiments.app.demo import ending
from sparse_lds.experiments.labs import bin_labs, labs_from_frame
from sparse_lds.experiments.panel import (
    LINKS,
    LOGGED,
    TESTS,
    synthetic_panel,
    transition,
    truth_for,
)
from sparse_lds.inference import compare_map_posterior
from sparse_lds.models import Laplace


def test_it_is_the_same_each_time_complete_and_in_units():
    panel = synthetic_panel(5)
    pd.testing.assert_frame_equal(panel.frame, synthetic_panel(5).frame)
    assert not panel.frame.equals(synthetic_panel(5, seed=1).frame)
    binned = bin_labs(labs_from_frame(panel.frame), step="1d", gaps="missing")
    assert (
        binned.measured.sum() == len(panel.frame) and tuple(binned.cohort.channels) == panel.tests
    )
    for name, (middle, _, decimals) in TESTS.items():
        values = panel.frame.loc[panel.frame["test"] == name, "value"]
        assert (values > 0).all() and 0.5 < values.median() / middle < 2
        np.testing.assert_array_equal(values, values.round(decimals))


def test_the_truth_in_the_units_of_a_cohort_is_the_same_model():
    """Scales change entries, not eigenvalues, zeros and signs; all links are those that are named."""
    frame = synthetic_panel(8).frame
    cohort = bin_labs(labs_from_frame(frame), step="1d", gaps="missing").cohort.log(list(LOGGED))
    A = truth_for(cohort.standardize())
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvals(A)), np.sort(np.linalg.eigvals(transition()))
    )
    np.testing.assert_array_equal(np.sign(A), np.sign(transition()))
    assert (A != 0).sum() == 6 + len(LINKS) and abs(np.linalg.eigvals(A)).max() < 1
    scale = cohort.standardize().labels.scale
    spread = [TESTS[name][1] for name in cohort.channels]
    D = np.diag(np.array(scale) / spread)
    np.testing.assert_allclose(D @ A, transition() @ D)


@pytest.mark.parametrize("right", [True, False])
def test_the_ending_counts_what_is_right_by_the_truth(right):
    """A link that the MAP has, b → a, and one that it leaves out against the data, a → b."""
    fit = fit_of(np.array([[0.5, 0.4], [0.0, 0.5]]))
    means = np.array([[0.5, 0.4], [-0.3, 0.5]])
    draws = means + 0.02 * np.random.default_rng(0).normal(size=(4, 300, 2, 2))
    posterior = posterior_of(draws, fit, prior=Laplace(2.0))
    comparison = compare_map_posterior(fit, posterior, names=["a", "b"])
    truth = np.array([[0.5, 0.4], [-0.3 if right else 0.0, 0.5]])
    first, second, third, *wrong = ending(comparison, truth)
    assert "leaves 1 of 2 links out" in first and "contradict 1 (a → b -0.30" in first
    assert "Of its 1 links they support 1 (b → a +0.40, in truth +0.40)" in second
    assert f"{1 + right} of the 2 that the data decide" in third
    assert wrong == ([] if right else ["Not so (a → b -0.30, in truth +0.00)."])
