"""Table 1 is resumed after a kill, and its claims are read off its cells."""

import json

import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments import grid as table_cells
from sparse_lds.experiments import table1
from sparse_lds.experiments.labs import bin_labs, labs_from_frame
from sparse_lds.experiments.synthetic import synthetic_labs


def test_table1_goes_on_where_it_stopped(tmp_path):
    cohort = bin_labs(labs_from_frame(synthetic_labs(24).frame)).cohort
    plan = table1.Plan(
        states=(1, 2), sizes=(8,), repetitions=2, n_starts=1, n_betas=3, max_iter=15, tol=1e-2
    )
    table = table1.run_table1(cohort, tmp_path / "a", plan, workers=1)
    files = table1.write_table1(table, tmp_path / "a")
    text = (tmp_path / "a" / "table1.txt").read_text()
    assert "OLDS(8)" in text and "1.1653" in text and text.count("hold") == 3
    assert all(f.stat().st_size > 0 for f in files)
    # what a kill leaves behind: some cells, and a part of one
    cells = sorted((tmp_path / "a" / "cells").glob("*.json"))
    assert len(cells) == 3 + 2 * 2
    before = {f.name: json.loads(f.read_text()) for f in cells}
    for f in cells[::2]:
        f.unlink()
    (tmp_path / "a" / "cells" / "8_SLDS_02.json.1.part").write_text('{"amae": [')
    again = table1.run_table1(cohort, tmp_path / "a", plan, workers=2)
    for f in cells:
        now = json.loads(f.read_text())
        now.pop("seconds"), before[f.name].pop("seconds")
        assert now == before[f.name]
    pd.testing.assert_frame_equal(again.amae(), table.amae())
    with pytest.raises(ValueError, match="another seed"):
        table1.run_table1(cohort, tmp_path / "a", plan._replace(seed=1), workers=1)
    with pytest.raises(ValueError, match="leave none to test"):
        table1.run_table1(cohort, tmp_path / "b", plan._replace(sizes=(100,)))
    for size in plan.sizes:
        train, test = table_cells.split(
            cohort, table._replace(plan=plan._replace(n_test=12)).plan, size
        )
        assert not set(train.ids) & set(test.ids)


def test_claims_by_hand():
    """Cells with errors that are known: each claim is read off them."""
    states = (2, 3, 4)
    amae = {"OLDS": (1.0, 0.6, 0.9), "SLDS": (0.8, 0.5, 0.6)}
    cells = {}
    rng = np.random.default_rng(0)
    for method, values in amae.items():
        for l, x in zip(states, values, strict=True):
            cells[table1.Cell(50, method, l)] = {
                "amae": [x, x], "amae_units": [[x], [x]], "by_patient": list(x + 0.01 * rng.normal(size=30)),
                "bic": l, "channels": ["a"],
            }  # fmt: skip
    table = table1.Table1(cells, table1.Plan(states=states, sizes=(50,)))
    assert [line.startswith("[holds]") for line in table.claims()] == [True, True, True]
    worse = dict(cells)
    worse[table1.Cell(50, "SLDS", 3)] = cells[table1.Cell(50, "OLDS", 2)]
    flipped = table1.Table1(worse, table.plan).claims()
    assert [line.startswith("[holds]") for line in flipped] == [True, True, False]
    paper = table1.paper_table()
    assert paper.loc["SLDS(100)", 15] == 0.8309 and paper.shape == (4, 10)
