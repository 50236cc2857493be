"""The choice of β, and of the structure of a model, by cross-validation over sequences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...models import Cohort, DiskCohort, Penalty
from ..result import FitResult
from .candidates import Candidate, given_candidates
from .cross_validation import Part, Work, check_folds, cross_validated, folds_of, grid_of, joined
from .held_out import HeldOut, choose, rule_named

_EXTENSIONS = 2  # times that a grid is continued to smaller β, where the best is its smallest


class Choice(NamedTuple):
    """A number of states, a β, and the name of the structure."""

    n_states: int
    beta: float
    candidate: str = ""


class Selection(NamedTuple):
    """The result of cross-validation, with the chosen model fitted to the whole cohort."""

    table: pd.DataFrame  # one row for each structure and β
    held_out: HeldOut  # the scores behind it, a row for each of the table's, a column a sequence
    fits: tuple[FitResult, ...]  # to the whole cohort, one a row
    rule: str  # by which `fit` is chosen
    interrupted: bool = False  # by Ctrl-C: structures, or values of β, are not there

    @property
    def fit(self) -> FitResult:
        """The chosen model, fitted to the whole cohort."""
        return self.fits[choose(self.rule, self.table, self.held_out)]

    def choice(self, rule: str) -> Choice:
        """Return the choice by a rule: best_density, best_error, one_se or best_bic."""
        row = self.table.iloc[choose(rule, self.table, self.held_out)]
        return Choice(int(row["n_states"]), float(row["beta"]), str(row["candidate"]))

    @property
    def best_density(self) -> Choice:
        """The choice with the largest held-out log predictive density."""
        return self.choice("best_density")

    @property
    def best_error(self) -> Choice:
        """The choice with the least held-out forecast error."""
        return self.choice("best_error")

    @property
    def one_se(self) -> Choice:
        """The sparsest choice within one standard error of the best density."""
        return self.choice("one_se")

    @property
    def best_bic(self) -> Choice:
        """The choice with the least BIC."""
        return self.choice("best_bic")

    def honest_rows(self, rule: str | None = None) -> np.ndarray:
        """Return the row of the table that the rule would choose without the fold of each sequence, (N,).

        Held-out scores at these rows do not profit from the choice: `held_out.error[rows, range(N)]` is what forecasts
        of new sequences are to be expected to have. (What a rule takes from the fits to all sequences, as BIC and the
        number of nonzero entries, is not left out.)
        """
        rows = np.zeros(len(self.held_out.fold), int)
        for k in np.unique(self.held_out.fold):
            others = self.held_out.fold != k
            rows[~others] = choose(rule or self.rule, self.table, self.held_out, others)
        return rows


def select(
    cohort: Cohort | DiskCohort,
    n_states: int | Sequence[int] | None = None,
    prior: Penalty | None = None,
    *,
    candidates: Sequence[Candidate] | None = None,
    rule: str = "best_density",
    betas: Sequence[float] | np.ndarray | None = None,
    n_betas: int = 10,
    n_folds: int | None = None,
    seed: int = 0,
    progress: bool = False,
    executor: Any = None,
    **options: Any,
) -> Selection:
    """Cross-validate over sequences, for every structure and every β of a path.

    Structures are given by `n_states` (one number or several), `prior` and the constraints among the options, or as
    `candidates` (see `level_candidates` and `hidden_candidates`).

    - Density is the log predictive density of held-out sequences, for one value; error the mean absolute error of all
      their forecasts (see forecast_error.py), in units of the channels' standard deviations.
    - `rule` says which model `fit` is: "best_density", for prediction, the default; "best_error", for point forecasts,
      of the first structure within a quarter of a standard error of the best; "one_se", the fewest nonzero entries of
      A (of [A B] with inputs) whose density is within one standard error of the best (all of these of paired
      differences); "best_bic". The result has the choice of each.
    - `n_folds` is by default the number of sequences up to 10 (leave-one-out), then 5.
    - A β of the table is one for the whole cohort: fits to parts of it take theirs from `scaled_beta`.
    - Several structures are first compared at every third β; the best of them then has all. Where the rule chooses the
      smallest β of a grid, the grid is continued.

    - `executor` runs the paths of a structure, on the whole cohort and without each fold, in workers: one of
      `concurrent.futures`, or Dask's `client.get_executor()`. The result is the same.
    - Of a cohort on disk the fold is told by a hash of the id (`seed` has no effect, and there are up to 10 folds);
      fits are to all sequences but those of the fold, and scores are those of its sample.

    Takes the options of `regularization_path`. Ctrl-C returns the result over the structures that are done.
    """
    rule_named(rule)
    if candidates is None:
        if n_states is None:
            raise ValueError("n_states is None; give it, or candidates")
        candidates = given_candidates(n_states, prior, options)
    elif n_states is not None or prior is not None:
        raise ValueError(
            "candidates is given, and n_states or prior besides; give one or the other"
        )
    mesh = options.get("mesh")
    if executor is not None and mesh is not None:
        raise ValueError("executor and mesh are given: workers have devices of their own; give one")
    if isinstance(cohort, DiskCohort):
        cohort = cohort.shared(mesh)
    fold = folds_of(cohort, n_folds, seed)
    check_folds(cohort if isinstance(cohort, Cohort) else cohort.sample, fold)
    parts: list[Part] = []
    interrupted = False
    with tqdm(disable=not progress, desc="select", unit="path") as bar:
        work = Work(cohort, fold, options, bar, executor)
        bar.reset(len(candidates) * (fold.max() + 2))
        for candidate in candidates:
            grid = grid_of(work, candidate, n_betas) if betas is None else betas
            several = len(candidates) > 1 and betas is None
            part = cross_validated(work, candidate, grid[1::3] if several else grid)
            if part is None:  # Ctrl-C
                break
            parts.append(part._replace(left=np.delete(grid, np.s_[1::3]) if several else grid[:0]))
        if len(parts) == len(candidates) and betas is None:
            parts, interrupted = _refined(parts, work, rule)
    if not parts:
        raise KeyboardInterrupt("interrupted before the first structure was done")
    table, found = joined(parts, work)
    fits = tuple(f for part in parts for f in part.path.fits)
    return Selection(table, found, fits, rule, interrupted or len(parts) < len(candidates))


def _refined(parts: list[Part], work: Work, rule: str) -> tuple[list[Part], bool]:
    """Return the parts, the best with the rest of its grid, continued while its smallest β is the choice.

    And whether Ctrl-C ended it.
    """

    def best() -> int:
        table, found = joined(parts, work)
        row = choose(rule, table, found)
        return int(np.searchsorted(np.cumsum([len(p.path.betas) for p in parts]), row, "right"))

    i, parts = best(), list(parts)
    more = parts[i].left
    for _ in range(1 + _EXTENSIONS):
        if len(more):
            work.bar.total += work.fold.max() + 2
            part = cross_validated(work, parts[i].candidate, more)
            if part is None:
                return parts, True
            parts[i] = parts[i].joined(part)
        if best() != i or not _at_the_edge(rule, parts[i], work):
            break
        more = _continued(parts[i].path.betas)
    return parts, False


def _at_the_edge(rule: str, part: Part, work: Work) -> bool:
    """Tell whether the smallest β of a structure is the rule's choice, and not only by a trifle.

    A trifle is less than a nat of density, and less than a thousandth of the error, more than the next β has.
    """
    table, found = joined([part], work)
    last = len(table) - 1
    if last == 0 or choose(rule, table, found) != last:
        return False
    nats = found.density[last].sum() - found.density[last - 1].sum()
    error = found.errors()
    return bool(nats > 1.0 or error[last] < 0.999 * error[last - 1])


def _continued(betas: np.ndarray) -> np.ndarray:
    """Return three smaller β, at the distance of the grid's last two."""
    ratio = betas[-1] / betas[-2]
    return betas[-1] * ratio ** np.arange(1, 4)
