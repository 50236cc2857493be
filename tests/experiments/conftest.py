"""For the tests of experiments: a table of lab results, and a small cohort."""

import numpy as np
import pytest

from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.models import Cohort


@pytest.fixture(scope="module")
def frame():
    """Lab results of a few patients of the synthetic cohort, one row a value."""
    return synthetic_labs(6).frame


@pytest.fixture
def small_cohort():
    """small_cohort(N, T, gaps, seed): a standardised cohort of random walks, of different lengths."""

    def make(N=12, T=12, gaps=0.0, seed=0):
        rng = np.random.default_rng(seed)
        y = np.cumsum(rng.normal(size=(N, T, 2)), axis=1)
        y[rng.random(y.shape) < gaps] = np.nan
        y[:, 0] = rng.normal(size=(N, 2))
        return Cohort.from_sequences([x[: rng.integers(4, T + 1)] for x in y]).standardize()

    return make
