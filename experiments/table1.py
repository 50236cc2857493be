"""The paper's Table 1 and Figures 1 and 2 on any cohort: the table beside the paper's, and a verdict on its claims."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..models import Cohort
from ..models.files import write_whole
from .figures import plot_states
from .grid import BASELINES, STATES, Cell, Plan, run_cells
from .outputs import write_csv, write_figure
from .protocol import Errors, paired_p

PAPER = {  # Table 1 of Liu and Hauskrecht (2013)
    ("OLDS", 50): (1.1653, 1.0553, 1.0561, 0.6667, 0.7268, 0.9209, 0.9502, 0.9402, 1.2291, 1.2993),
    ("SLDS", 50): (0.6256, 0.5858, 0.5821, 0.5684, 0.6506, 0.6200, 0.8854, 0.9236, 1.0134, 1.0430),
    ("OLDS", 100): (1.1527, 1.0427, 1.0039, 0.6406, 0.7153, 0.8364, 0.9210, 0.9327, 1.1427, 1.2427),
    ("SLDS", 100): (0.5709, 0.5429, 0.5889, 0.6379, 0.6897, 0.6949, 0.7643, 0.7811, 0.7874, 0.8309),
}


class Table1(NamedTuple):
    """The results of all cells of a plan, as tables, text and figures."""

    cells: dict[Cell, dict[str, Any]]
    plan: Plan

    def errors(self, cell: Cell) -> Errors:
        """Return the errors of a cell."""
        found = self.cells[cell]
        return Errors(*(np.array(found[k]) for k in Errors._fields))

    def amae(self) -> pd.DataFrame:
        """Return the AMAE in standardised units: a row for each method and size, a column for each number of states."""
        rows = {}
        for size in self.plan.sizes:
            for method in ("OLDS", "SLDS"):
                means = {l: self.errors(Cell(size, method, l)).mean for l in self.plan.states}
                rows[f"{method}({size})"] = means
        return pd.DataFrame(rows).T

    def long(self) -> pd.DataFrame:
        """Return a table with a row for each cell: its errors and the properties of its fit."""
        rows = []
        for cell, found in self.cells.items():
            errors = self.errors(cell)
            units = errors.amae_units.mean(0)
            rows.append(
                {
                    **cell._asdict(),
                    "amae": errors.mean,
                    "sd": errors.spread,
                    **{f"amae {c}": u for c, u in zip(found["channels"], units, strict=True)},
                    **{
                        k: found.get(k)
                        for k in (
                            "beta",
                            "nonzero",
                            "effective_states",
                            "bic",
                            "converged",
                            "seconds",
                        )
                    },
                }
            )
        return pd.DataFrame(rows)

    def text(self) -> str:
        """Return the table beside the paper's, baselines, and a verdict on each claim, as text."""
        number = lambda x: "" if np.isnan(x) else f"{x:.4f}"  # noqa: E731
        blocks = ["AMAE, this run (standardised units)", self.amae().to_string(float_format=number)]
        blocks += [
            "",
            "AMAE, the paper's Table 1 (other patients)",
            paper_table().to_string(float_format=number),
        ]
        rows = {}
        for size in self.plan.sizes:
            row: dict[str, Any] = {name: self.errors(Cell(size, name)).mean for name in BASELINES}
            l = min(self.plan.states, key=lambda l, s=size: self.cells[Cell(s, "OLDS", l)]["bic"])
            row["OLDS by BIC"] = self.errors(Cell(size, "OLDS", l)).mean
            row["its states"] = str(l)
            rows[f"trained on {size}"] = row
        blocks += ["", "Baselines", pd.DataFrame(rows).T.to_string(float_format=number)]
        blocks += ["", "The paper's claims, in this run", *(f"  {line}" for line in self.claims())]
        return "\n".join(blocks)

    def claims(self) -> list[str]:
        """Return a line for each of the paper's claims, which says whether the claim holds in this run."""
        lines, states = [], np.array(self.plan.states)
        for size in self.plan.sizes:
            olds, slds = (
                np.array([self.errors(Cell(size, m, l)).mean for l in states])
                for m in ("OLDS", "SLDS")
            )
            best = int(olds.argmin())
            rise, slow = olds[-1] - olds[best], slds[-1] - slds[best]
            inner = 0 < best < len(states) - 1
            lines.append(
                f"[{_yes(inner and rise > 0)}] {size}: OLDS has its least error, {olds[best]:.4f}, at l = "
                f"{states[best]} and is {rise:+.4f} from there at l = {states[-1]}"
            )
            lines.append(
                f"[{_yes(slow < rise)}] {size}: SLDS rises more slowly: {slow:+.4f} over the same states"
            )
            below = slds < olds
            p = [
                paired_p(self.errors(Cell(size, "OLDS", l)), self.errors(Cell(size, "SLDS", l)))
                for l in states
            ]
            sure = int((below & (np.array(p) < 0.05)).sum())
            worse = int((~below & (np.array(p) < 0.05)).sum())
            lines.append(
                f"[{_yes(below.all())}] {size}: SLDS is below OLDS at {below.sum()} of {len(states)} numbers of states "
                f"(p < 0.05 over patients: below at {sure}, above at {worse})"
            )
        return lines

    def figure(self, size: int) -> Figure:
        """Draw Figure 1 (size 50) or 2 (size 100) of the paper."""
        states = pd.Index(self.plan.states, name="states")
        errors = {}
        for method in ("OLDS", "SLDS"):
            found = [self.errors(Cell(size, method, l)) for l in self.plan.states]
            columns = {"error": [e.mean for e in found], "spread": [e.spread for e in found]}
            errors[method] = pd.DataFrame(columns, index=states)
        baselines = {name: self.errors(Cell(size, name)).mean for name in BASELINES}
        repetitions = self.plan.repetitions
        title = f"{size} training patients, mean ± sd over {repetitions} repetitions"
        return plot_states(errors, baselines, title=title)


def _yes(holds: Any) -> str:
    """Return the verdict in words."""
    return "holds" if holds else "does not hold"


def run_table1(
    cohort: Cohort, folder: str | Path, plan: Plan | None = None, **options: Any
) -> Table1:
    """Run the cells of a plan, by default the paper's. Takes options of `run_cells`: workers, executor, progress."""
    return Table1(*run_cells(cohort, folder, Plan() if plan is None else plan, **options))


def write_table1(table: Table1, folder: str | Path) -> list[Path]:
    """Write table1.csv, cells.csv, table1.txt, and a figure for each training size; return the files."""
    folder = Path(folder)
    files = [folder / name for name in ("table1.csv", "cells.csv", "table1.txt")]
    write_csv(files[0], table.amae(), index_label="method")
    write_csv(files[1], table.long().drop(columns="seconds"), index=False)
    write_whole(files[2], table.text() + "\n")
    for k, size in enumerate(table.plan.sizes, 1):
        figure = table.figure(size)
        files.append(folder / f"figure{k}.png")
        write_figure(files[-1], figure, dpi=150)
        plt.close(figure)
    return files


def paper_table() -> pd.DataFrame:
    """Return the paper's Table 1."""
    rows: dict[str, Sequence[float]] = {f"{m}({n})": v for (m, n), v in PAPER.items()}
    return pd.DataFrame(rows, index=list(STATES)).T
