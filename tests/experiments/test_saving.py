"""Fits are saved to files and loaded again, whole."""

import jax
import numpy as np
import pytest

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import fit_map
from sparse_lds.models import GroupLaplace, Laplace


def test_a_fit_is_saved_whole(small_cohort, tmp_path):
    cohort = small_cohort()
    for prior in (
        Laplace(2.0),
        Laplace(np.array([[1.0, np.inf], [0.0, 2.0]])),
        GroupLaplace(1.0, by="rows"),
    ):
        fit = fit_map(cohort, 2, prior, max_iter=3)
        again = load_fit(save_fit(tmp_path / "fit.json", fit))
        for a, b in zip(
            jax.tree.leaves(tuple(fit)[:-2]), jax.tree.leaves(tuple(again)[:-2]), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        assert type(again.prior) is type(prior) and again.constraints == fit.constraints
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="not a fit"):
        load_fit(tmp_path / "bad.json")
