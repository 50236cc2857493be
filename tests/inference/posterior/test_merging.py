"""Posteriors of several processes, merged, are what one process with all chains would judge."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import diagnose, fit_map, merge_posteriors, sample_posterior
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.models import Cohort, Laplace


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(0)
    cohort = Cohort.from_array(rng.normal(size=(12, 5, 2)).cumsum(1)).standardize()
    fit = fit_map(cohort, 2, Laplace(3.0), Q="identity")
    key = jax.random.key(0)
    options = {"free": ("A",), "num_warmup": 20, "num_chains": 1, "num_predictive": 2}
    found = [
        sample_posterior(jax.random.fold_in(key, i), cohort, fit, num_samples=n, **options)
        for i, n in enumerate((8, 10))
    ]
    other = fit_map(cohort, 2, Laplace(9.0), Q="identity")
    return *found, sample_posterior(key, cohort, other, num_samples=8, **options)


@pytest.mark.interfaces
def test_chains_stand_side_by_side(runs):
    one, two, _ = runs
    merged = merge_posteriors([one, two])
    assert set(az.group_names(merged)) == set(az.group_names(one))
    for name in ("posterior", "sample_stats", "log_likelihood"):
        found = az.group(merged, name)
        assert found.sizes["chain"] == 2 and found.sizes["draw"] == 8
        for chain, run in enumerate((one, two)):
            part = az.group(run, name)
            for variable in part:
                np.testing.assert_array_equal(
                    found[variable].values[chain], part[variable].values[0, :8]
                )
    assert az.group(merged, "observed_data").equals(az.group(one, "observed_data"))
    assert az.group(merged, "posterior").attrs == az.group(one, "posterior").attrs
    diagnose(merged)  # as any other


def test_runs_that_do_not_belong_together_are_refused(runs):
    one, _, other = runs
    with pytest.raises(ValueError, match="posterior 1 has another"):
        merge_posteriors([one, other])
    with pytest.raises(ValueError, match="0 and 1 have the same draws"):
        merge_posteriors([one, one])
    with pytest.raises(ValueError, match="posteriors is empty"):
        merge_posteriors([])
