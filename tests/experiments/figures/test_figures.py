"""Figures draw what the tables say, whatever the names are."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from made_posteriors import fit_of, posterior_of

from sparse_lds.experiments import figures
from sparse_lds.experiments.coverage import Coverage
from sparse_lds.inference import compare_map_posterior
from sparse_lds.models import Cohort, Laplace, SpikeSlab

NAMES = ("$x_{", "b & <c>", "Hämo")  # no mathematics, no markup


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def judged(prior, spikes=False):
    A = np.array([[0.5, 0.4, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    means = A + [[0, 0, 0], [0, 0, -0.3], [0, 0, 0]]
    draws = means + 0.02 * np.random.default_rng(0).normal(size=(4, 300, 3, 3))
    if spikes:
        draws[:, ::4, 2, 0] = draws[..., 0, 2] = 0.0
    fit = fit_of(A)
    posterior = posterior_of(draws, fit, prior=prior)
    return compare_map_posterior(fit, posterior, names=NAMES), posterior


def texts(figure):
    figure.canvas.draw()
    return [t.get_text() for axis in figure.axes for t in axis.texts]


def test_the_network_has_an_arrow_for_each_link_and_says_its_verdict():
    comparison, _ = judged(Laplace(2.0))
    truth = np.array([[0.5, 0.4, 0], [0, 0.5, 0], [0, 0, 0.5]])
    figure = figures.plot_network(comparison, truth=truth)
    said = texts(figure)
    assert len(figure.axes[0].patches) == 2
    assert "+0.40 ✓" in said and "-0.30 ✕ (not true)" in said
    assert all(name[:8] in said for name in NAMES)


@pytest.mark.parametrize("prior", [Laplace(2.0), SpikeSlab(0.5)], ids=str)
def test_every_cell_has_its_verdict_and_bayes_factor(prior):
    comparison, posterior = judged(prior, isinstance(prior, SpikeSlab))
    figure = figures.plot_prior_posterior(comparison, posterior, truth=np.eye(3))
    said = texts(figure)
    counts = comparison.table["verdict"].value_counts()
    marks = {"supported": "✓", "contradicted": "✕", "undecided": "?", "prior only": "○"}
    for word, mark in marks.items():
        assert said.count(mark) == counts.get(word, 0), word
    least = comparison.table["bayes_factor_zero"].min()
    assert ("<0.001" if least < 0.001 else f"{least:.2g}") in said  # the data are sure of a link


def test_the_density_at_zero_falls_where_the_data_are_against_zero():
    """The two dots of a cell: prior and posterior; their ratio has the side of the Bayes factor."""
    comparison, posterior = judged(Laplace(2.0))
    figure = figures.plot_prior_posterior(comparison, posterior)
    joined = [x for x in figure.axes[0].lines if x.get_color() == "0.35"]
    factor = comparison.table["bayes_factor_zero"].to_numpy()
    assert len(joined) >= 6
    for line in joined:
        (j, _), (before, after) = np.round(line.get_xdata()).astype(int), line.get_ydata()
        i = int(np.floor(before + 0.5 - 0.36 + 1e-9)) if before < 0 else round(float(before - 0.2))
        rises = after < before  # upwards is to smaller y: a row of a matrix
        assert rises == (factor[3 * i + j] > 1)


def test_inclusion_counts_the_disagreements():
    comparison, _ = judged(SpikeSlab(0.5), True)
    figure = figures.plot_inclusion(comparison)
    t = comparison.table
    apart = int((t["map_zero"] == (t["p_zero"] < 0.5)).sum())
    assert apart == len([x for x in figure.axes[0].lines if x.get_marker() == "x"]) > 0
    assert f"otherwise ({apart})" in figure.axes[0].get_title()


def test_the_choice_of_beta_is_where_it_was_made():
    table = pd.DataFrame(
        {"candidate": ["a"] * 3 + ["b"] * 3, "beta": [1.0, 10.0, 100.0] * 2}
        | {"error": [3, 2, 4, 3, 1, 4], "density": [-3, -2, -4, -3, -1, -4]}
        | {"error_gap_se": 0.1, "density_gap_se": 0.1}
    )
    figure = figures.plot_beta(table, beta=10.0, candidate="b", rule="one_se")
    figure.canvas.draw()
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels(which="both")]
    assert any(labels) and not any("$" in label for label in labels)
    for axis, value in zip(figure.axes, (1, -1), strict=True):
        ring = next(x for x in axis.lines if x.get_markersize() == 12)
        assert (ring.get_xdata(), ring.get_ydata()) == ([10.0], [value])
    assert "chosen by one_se: β = 10" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_states_have_a_line_a_method_and_far_baselines_are_named_only():
    part = pd.DataFrame({"error": [0.5, 0.4, 0.6], "spread": 0.01}, index=[2, 5, 9])
    figure = figures.plot_states(
        {"OLDS": part, "SLDS": part - [0.1, 0.0]}, {"near": 0.55, "far": 5.0}
    )
    words = [t.get_text() for t in figure.legends[0].get_texts()]
    assert {"OLDS", "SLDS", "near: 0.550", "far: 5.000, off the scale"} == set(words)
    assert figure.axes[0].get_ylim()[1] < 1


def test_coverage_of_uniform_ranks_is_on_the_line():
    ranks = np.random.default_rng(0).uniform(size=(200, 5, 2))
    ranks[0] = np.nan
    probs = np.array([0.5, 0.9])
    share, se = Coverage(ranks).within(probs)
    assert (np.abs(share - probs) < 4 * se).all() and (se > 0).all()
    narrow, _ = Coverage(np.where(ranks < 0.5, ranks**3, 1 - (1 - ranks) ** 3)).within(probs)
    assert (narrow < share - 0.1).all()
    np.testing.assert_allclose(Coverage(ranks).by_channel().mean(), share[1], atol=0.01)
    assert "90% intervals: 9" in " ".join(texts(figures.plot_coverage(Coverage(ranks))))


def test_series_and_forecasts_have_a_column_a_patient(monkeypatch):
    from sparse_lds.experiments.figures import forecasts
    from sparse_lds.inference.posterior.forecast import PosteriorForecast

    y = np.random.default_rng(0).normal(size=(3, 8, 2))
    y[1, 3] = np.nan
    cohort = Cohort.from_sequences(list(y), ids=["$p", "<q>", "r"], channels=["$a$ {", "b"])

    def made(key, posterior, one, horizon, given):
        draws = np.zeros((50, 1, horizon, 2))
        return PosteriorForecast(draws, np.array([given]), draws[0])

    monkeypatch.setattr(forecasts, "posterior_forecast", made)
    for figure in (
        figures.plot_series(cohort, [0, 1]),
        figures.plot_forecasts(None, None, cohort, [0, 1], horizon=6),
    ):
        figure.canvas.draw()
        axes = np.array(figure.axes).reshape(2, 2)
        assert [axis.get_title() for axis in axes[0]] == ["$p", "<q>"]
        assert axes[0, 0].get_ylabel() == "$a$ {"
    bands = axes[0, 0].collections[0].get_paths()[0].vertices
    assert bands[:, 0].max() == 10  # four steps seen, six ahead, two of them past the end
