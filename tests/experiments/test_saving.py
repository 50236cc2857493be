"""Fits are saved to files and loaded again, whole."""

import copy
import json

import jax
import numpy as np
import pytest

from sparse_lds.experiments.saving import load_fit, load_posterior, save_fit, save_posterior
from sparse_lds.inference import fit_map
from sparse_lds.inference.posterior.arviz_compat import assemble, dataset, group
from sparse_lds.models import Cohort, GroupLaplace, Laplace


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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What the file of a fit holds."""
    rng = np.random.default_rng(0)
    cohort = Cohort.from_array(rng.normal(size=(8, 6, 2)))
    fit = fit_map(cohort, 2, Laplace(2.0), accelerate=False, max_iter=2)
    return json.loads(save_fit(tmp_path_factory.mktemp("fit") / "fit.json", fit).read_text())


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f["params"]["A"][0].__setitem__(0, float("nan")),
        lambda f: f["params"].update(Q=[[1.0, 2.0], [2.0, 1.0]]),
        lambda f: f["params"].update(R=[[1.0, 0.0], [0.5, 1.0]]),
        lambda f: f["params"].update(A=[[1.0, 2.0]]),
        lambda f: f["params"].update(A=[["a", "b"], ["c", "d"]]),
        lambda f: f["params"].update(B=[[1.0]]),
        lambda f: f["params"].pop("V1"),
        lambda f: f["prior"].update(kind="Laplacian"),
        lambda f: f["prior"].update(beta=-1.0),
        lambda f: f["prior"].update(beta=[[1.0] * 3] * 3),
        lambda f: f["prior"].update(gamma=1.0),
        lambda f: f["constraints"].update(hold=["B"]),
        lambda f: f["constraints"].update(Q="identitty"),
        lambda f: f["constraints"].update(colour="red"),
        lambda f: f["constraints"].update(own_levels=True),
        lambda f: f.update(colour="red"),
        lambda f: f.update(stop="TIRED"),
        lambda f: f.update(log_likelihood=float("nan")),
        lambda f: f.update(log_likelihood="-3"),
        lambda f: f.update(objective=[]),
        lambda f: f.update(objective=3.0),
        lambda f: f.update(restarts=0.0),
        lambda f: f.update(objective=[1.0, None]),
        lambda f: f.update(steps=3),
        lambda f: f.update(warnings=3),
        lambda f: f.update(priors={"Q": {"kind": "Beta"}}),
    ],
)
def test_a_file_that_no_fit_could_have_written_is_refused(saved, tmp_path, change):
    found, file = copy.deepcopy(saved), tmp_path / "fit.json"
    file.write_text(json.dumps(found))
    load_fit(file)
    change(found)
    file.write_text(json.dumps(found))
    with pytest.raises(ValueError, match="fit.json' is not a fit that"):
        load_fit(file)


def test_posteriors_are_whole_or_damaged_in_words(tmp_path):
    """Through memory and back; cut short or overwritten, the file is named."""
    posterior = assemble(
        {
            name: dataset({"A": np.arange(24.0).reshape(2, 3, 2, 2)}, {}, attrs={"n": 1})
            for name in ("posterior", "constant_data")
        }
    )
    file = save_posterior(posterior, tmp_path / "posterior.nc")
    again = group(load_posterior(file), "posterior")
    np.testing.assert_array_equal(again["A"], np.arange(24.0).reshape(2, 3, 2, 2))
    assert again.attrs["n"] == 1 and [f.name for f in tmp_path.iterdir()] == ["posterior.nc"]
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * 5000, whole[:600] + b"x" * 2000):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="posterior.nc' is damaged, .*posterior --force"):
            load_posterior(file)
