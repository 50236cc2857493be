"""Whether the links of a fit stand in the other structures that were compared with it.

Levels of patients that go together, and noise that tests have in common, look like links to a model that has no place
for them. A link that another structure, which forecasts as well, does not have is a finding of the structure.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...inference import FitResult, Selection
from ...inference.selection.held_out import choose
from ...models import Cohort, variance_parts
from ..outputs import write_csv

_AS_WELL = 1.05  # times the error of the chosen structure up to which another one forecasts as well
_SHARE = 0.5  # of a link's size that it has to have, with the same sign, to stand
FILE = "structures.csv"
MEANING = (
    "The effect of a link is A_ij times the sd of what moves in test j: how far a usual movement of j moves i a step "
    f"later, in sd of test i. It stands in another structure with the same sign and at least {_SHARE:.0%} of the size; "
    f"structures count whose held-out error is at most {_AS_WELL - 1:.0%} above that of the chosen one."
)


class Links(NamedTuple):
    """The links of the chosen fit, a row each, with their effects in each structure that forecasts as well."""

    table: pd.DataFrame  # to, from, chosen, then a column for each other structure

    @property
    def others(self) -> list[str]:
        """The names of the other structures."""
        return list(self.table.columns[3:])

    @property
    def stand(self) -> Any:
        """Whether each link stands in all of the other structures."""
        chosen = self.table["chosen"].to_numpy(float)[:, None]
        values = self.table[self.others].to_numpy(float)
        return (values * np.sign(chosen) >= _SHARE * np.abs(chosen)).all(1)

    def __str__(self) -> str:
        n, stand = len(self.table), self.stand
        if not n:
            return "No link between tests is kept."
        if not self.others:
            return "No other structure forecasts as well: links were not compared with those of another."
        text = f"{stand.sum()} of {n} links stand in every structure that forecasts as well ({'; '.join(self.others)})"
        lost: Any = self.table[~stand]
        if lost.empty:
            return f"{text}."
        gap = np.abs(lost["chosen"].to_numpy(float))
        row = lost.iloc[int(gap.argmax())]
        least = min(self.others, key=lambda name: row[name] * np.sign(row["chosen"]))
        return (
            f"{text}. The largest that does not, {row['from']} → {row['to']}, has an effect of "
            f"{row['chosen']:+.2g} sd here and of {row[least]:+.2g} in {least}: such "
            "a link may be the structure's and not the data's."
        )


def effects(fit: FitResult, cohort: Cohort) -> np.ndarray:
    """Return A_ij times the sd of what moves in test j, (l, l): a link between states that hardly move is small."""
    within = variance_parts(fit.params, fit.n_states, cohort).within
    return np.asarray(fit.moving.A) * np.sqrt(within)


def links_of(found: Selection, fit: FitResult, cohort: Cohort, names: list[str]) -> Links | None:
    """Return the links in all structures; None where states are hidden, or where one structure was fitted alone."""
    structure = found.table["candidate"].to_numpy()
    several = len(set(structure)) > 1
    if not several or any(x.constraints.free("C") for x in found.fits):
        return None
    errors = found.held_out.errors()
    here = choose(found.rule, found.table, found.held_out)
    to, source = np.nonzero(~fit.zeros & ~np.eye(fit.n_states, dtype=bool))
    columns: dict[str, Any] = {
        "to": [names[i] for i in to],
        "from": [names[j] for j in source],
        "chosen": effects(fit, cohort)[to, source],
    }
    for name in dict.fromkeys(structure):
        rows = np.flatnonzero(structure == name)
        few = found.held_out._replace(
            density=found.held_out.density[rows], error=found.held_out.error[rows]
        )
        row = rows[choose(found.rule, found.table.iloc[rows].reset_index(drop=True), few)]
        if name != structure[here] and errors[row] <= _AS_WELL * errors[here]:
            columns[name] = effects(found.fits[row], cohort)[to, source]
    return Links(pd.DataFrame(columns))


def write_links(links: Links | None, folder: Path) -> None:
    """Write structures.csv, or remove that of an earlier fit."""
    if links is None:
        (folder / FILE).unlink(missing_ok=True)
    else:
        write_csv(folder / FILE, links.table, index=False)


def read_links(folder: Path) -> Links | None:
    """Return what `write_links` wrote; None if nothing."""
    file = folder / FILE
    return Links(pd.read_csv(file)) if file.exists() else None
