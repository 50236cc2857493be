"""Links are compared across structures: what only one of them sees is said not to stand."""

import jax
import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.app.structures import Links, links_of, read_links, write_links
from sparse_lds.inference import hidden_candidates, level_candidates, select
from sparse_lds.models import Cohort, LDSParams, simulate


def table(chosen, **others) -> Links:
    names = {"to": [f"t{i}" for i in range(len(chosen))], "from": ["x"] * len(chosen)}
    return Links(pd.DataFrame({**names, "chosen": chosen, **others}))


def test_a_link_stands_with_its_sign_and_half_of_its_size():
    links = table([0.4, 0.4, 0.4, -0.4, -0.4], a=[0.2, 0.19, -0.9, -0.5, 0.5], b=[9, 9, 9, -9, -9])
    np.testing.assert_array_equal(links.stand, [True, False, False, True, False])
    assert "2 of 5 links stand" in str(
        links
    ) and "an effect of +0.4 sd here and of +0.19 in a" in str(links)


def test_without_links_or_other_structures_nothing_is_claimed():
    assert str(table([])) == "No link between tests is kept."
    assert "not compared" in str(table([0.3]))
    assert str(table([0.3], a=[0.3])).startswith("1 of 1 links stand")


def correlated_levels() -> Cohort:
    """White noise around levels of the patients that go together: no test speaks to any."""
    rng = np.random.default_rng(0)
    levels = rng.normal(size=(150, 1, 1)) * [1.0, 1.0] + 0.1 * rng.normal(size=(150, 1, 2))
    return Cohort.from_array(levels + rng.normal(size=(150, 8, 2))).standardize()


def true_link() -> Cohort:
    A, I = np.array([[0.8, 0.0], [0.5, 0.3]]), np.eye(2)
    params = LDSParams(A, C=I, Q=0.3 * I, R=0.05 * I, pi1=np.zeros(2), V1=I)
    return simulate(jax.random.key(0), params, [20] * 100).cohort.standardize()


@pytest.mark.parametrize(("make", "real"), [(correlated_levels, False), (true_link, True)])
def test_levels_that_go_together_are_told_from_a_link(make, real, tmp_path):
    cohort = make()
    found = select(
        cohort,
        candidates=level_candidates(cohort, independent=(True,)),
        betas=[1.0],
        n_folds=2,
        rule="best_error",
        priors="weak",
        max_iter=60,
    )
    without = next(x for x in found.fits if not x.constraints.own_levels)
    A = np.asarray(without.moving.A)
    assert abs(A[1, 0]) > 0.1  # the simple structure sees a link in both
    forced = found._replace(
        table=found.table.assign(explodes=[x is not without for x in found.fits])
    )
    links = links_of(forced, without, cohort, ["x", "y"])
    assert links is not None and links.others == ["levels, own levels, Q diagonal"]
    stands = dict(zip(links.table["from"], links.stand, strict=True))
    assert stands["x"] == real
    write_links(links, tmp_path)
    pd.testing.assert_frame_equal(read_links(tmp_path).table, links.table)
    write_links(None, tmp_path)
    assert read_links(tmp_path) is None


def test_entries_of_hidden_states_are_not_compared():
    cohort = true_link()
    options = {"betas": [5.0], "n_folds": 2, "max_iter": 3}
    found = select(cohort, candidates=hidden_candidates(2), **options)
    assert links_of(found, found.fit, cohort, ["z0", "z1"]) is None
