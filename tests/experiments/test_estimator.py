"""The estimator says what the functions below it say, for every layout of a panel."""

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.estimator import SparseLDS, as_cohort
from sparse_lds.inference import fit_map, level_candidates
from sparse_lds.models import Cohort, forecast


@pytest.fixture(scope="module")
def y():
    """A panel (N, d, T) far from standardised, with gaps."""
    rng = np.random.default_rng(0)
    found = 50 + 10 * np.cumsum(rng.normal(size=(8, 2, 9)), axis=-1)
    found[rng.random(found.shape) < 0.1] = np.nan
    return found


@pytest.fixture(scope="module")
def fitted(y):
    return SparseLDS(beta=3.0, max_iter=30).fit(y)


def as_table(y, names=("a", "b")):
    index = pd.MultiIndex.from_product([range(len(y)), range(y.shape[2])])
    return pd.DataFrame(np.swapaxes(y, 1, 2).reshape(-1, y.shape[1]), index, list(names))


def test_layouts_are_the_same_panel(y):
    wanted = Cohort.from_sequences(list(np.swapaxes(y, 1, 2)))
    for X in (y, as_table(y), list(np.swapaxes(y, 1, 2)), wanted):
        found = as_cohort(X)
        np.testing.assert_array_equal(found.mask, wanted.mask)
        np.testing.assert_array_equal(found.y, wanted.y)
    assert as_cohort(as_table(y)).channels == ("a", "b")
    with pytest.raises(ValueError, match="must be two, instance and time"):
        as_cohort(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(ValueError, match=r"must be \(instances, channels, times\)"):
        as_cohort(np.zeros((3, 4)))


def test_it_is_the_fit_and_the_forecast_of_the_functions(y, fitted):
    cohort = as_cohort(y).standardize()
    first = level_candidates(cohort, None, (False,), (True,))[0]
    options = {"constraints": first.constraints, "priors": "weak", "max_iter": 30}
    fit = fit_map(cohort, 2, first.prior.scaled(3.0), **options)
    np.testing.assert_allclose(fitted.A_, fit.params.A, atol=1e-12)
    ahead = np.asarray(cohort.to_units(forecast(fit.params, cohort, 3).mean))
    np.testing.assert_allclose(fitted.predict(3), ahead)
    np.testing.assert_allclose(fitted.predict(3, as_table(y, ("y0", "y1"))), ahead)
    np.testing.assert_allclose(fitted.score(), fit.log_likelihood / np.isfinite(y).sum())
    np.testing.assert_allclose(fitted.score(y), fitted.score())
    rng = np.random.default_rng(1)
    assert fitted.score(50 + 100 * rng.normal(size=y.shape)) < fitted.score()


def test_it_is_made_again_from_its_parameters(fitted):
    again = type(fitted)(**fitted.get_params())
    assert again.get_params() == fitted.get_params() and not hasattr(again, "fit_")
    assert repr(again) == repr(fitted) and "beta=3.0" in repr(again)
    assert again.set_params(n_states=3).n_states == 3
    with pytest.raises(ValueError, match="'alpha' is no argument"):
        again.set_params(alpha=1)
    with pytest.raises(AttributeError, match="not fitted yet"):
        again.predict(1)
    with pytest.raises(ValueError, match="X has 3 channels; the fit has 2"):
        fitted.predict(1, np.zeros((2, 3, 5)))


def test_scikit_learn_clones_it(fitted):
    sklearn = pytest.importorskip("sklearn.base")
    assert sklearn.clone(fitted).get_params() == fitted.get_params()
