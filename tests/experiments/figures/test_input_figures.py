"""Figures of inputs draw what the fit says: entries of B as numbers, scenarios as they are forecast."""

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from oracles import random_problem

from sparse_lds.experiments.app.report.input_section import _JUDGED, input_section
from sparse_lds.experiments.figures import plot_inputs, plot_what_if
from sparse_lds.experiments.labs import Binned
from sparse_lds.inference import fit_map, posterior_forecast, sample_posterior
from sparse_lds.models import Laplace, forecast


@pytest.fixture(scope="module")
def fitted():
    params, cohort = random_problem(0, (2, 2, 5, 8), p=2, radius=0.8)
    fit = fit_map(cohort, 2, Laplace(1.0, beta_B=3.0), init=params, hold=("C",), max_iter=5)
    return cohort, fit


def test_B_is_written_out(fitted):
    cohort, fit = fitted
    B = np.array(fit.params.B)
    B[1, 0] = 0.0
    figure = plot_inputs(fit._replace(params=fit.params._replace(B=B)), cohort.inputs, ["a", "b"])
    axis = figure.axes[0]
    written = [text.get_text() for text in axis.texts]
    assert written == ["0" if x == 0 else f"{x:.2f}" for x in B.ravel()]
    assert [x.get_text() for x in axis.get_xticklabels()] == ["u0", "u1"]
    plt.close(figure)
    with pytest.raises(ValueError, match="no inputs"):
        plot_inputs(fit._replace(params=fit.params._replace(B=None, D=None)), [])


def test_scenarios_are_side_by_side(fitted):
    cohort, fit = fitted
    scenarios = {"none": np.zeros((3, 2)), "both": np.ones((3, 2))}
    figure = plot_what_if(fit, cohort, 1, scenarios, 3)
    axes = np.array(figure.axes).reshape(2, 2)
    for k, u in enumerate(scenarios.values()):
        wanted = np.asarray(forecast(fit.params, cohort, 3, inputs=u).mean)[1]
        for j in range(2):
            np.testing.assert_allclose(axes[j, k].lines[1].get_ydata(), wanted[:, j])
    plt.close(figure)


@pytest.mark.interfaces
def test_scenarios_have_the_uncertainty_of_the_posterior(fitted):
    cohort, fit = fitted
    fit = fit_map(cohort, 2, Laplace(1.0), init=fit.params, hold=("C",), priors="weak")
    few = {"num_warmup": 60, "num_samples": 60, "num_chains": 1, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, **few)
    scenarios = {"none": np.zeros((3, 2)), "both": np.ones((3, 2))}
    figure = plot_what_if(fit, cohort, 1, scenarios, 3, posterior, seed=2)
    axes = np.array(figure.axes).reshape(2, 2)
    for k, u in enumerate(scenarios.values()):
        every = posterior_forecast(
            jax.random.key(7), posterior, cohort, 3, inputs=u, num_draws=400
        ).draws[:, 1]
        alone = forecast(fit.params, cohort, 3, inputs=u).cov[1]
        for j in range(2):
            middle = axes[j, k].lines[1].get_ydata()
            sd = every[..., j].std(0)
            assert (np.abs(middle - np.median(every[..., j], axis=0)) < 0.8 * sd).all()
            band = axes[j, k].collections[0].get_paths()[0].vertices[:, 1]
            of_fit = 2 * 1.645 * np.sqrt(float(alone[-1, j, j]))
            assert np.ptp(band) > of_fit  # the fit's is the narrower one
    plt.close(figure)


def test_a_report_has_a_section_of_inputs(fitted, tmp_path):
    cohort, fit = fitted
    binned = Binned(cohort, np.asarray(cohort.mask), 1.0, (), "")
    section = input_section(fit, binned, ["a", "b"], tmp_path)
    assert section is not None and "of 4 effects of u0, u1 on states" in section.summary
    assert (tmp_path / "inputs.png").exists() and (tmp_path / "what_if.png").exists()
    at = pd.MultiIndex.from_product([["a", "b"], cohort.inputs], names=["state", "input"])
    words = ["supported", "undecided", "undecided", "contradicted"]
    judged = pd.DataFrame(dict.fromkeys(_JUDGED, 0.5), index=at).assign(verdict=words)
    section = input_section(fit, binned, ["a", "b"], tmp_path, judged)
    assert section is not None and section.summary.endswith(
        "2 undecided, 1 supported, 1 contradicted."
    )
    tables = [part.head for part in section.parts if part.kind == "table"]
    assert [head[:3] for head in tables] == [["state", "input", "map"]]  # B stands there once
    plain = binned._replace(cohort=cohort.without_inputs())
    assert input_section(fit, plain, ["a", "b"], tmp_path) is None
    plt.close("all")
