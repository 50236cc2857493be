"""The choice of β, and of the structure of a model, by cross-validation over sequences."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...models import Cohort, Penalty, spectral_radius
from ...models.arguments import whole
from ..result import FitResult
from .candidates import Candidate, given_candidates
from .held_out import RULES, HeldOut, choose, rule_named, scores
from .path import Path, beta_grid, effective_states, regularization_path, scaled_beta

_GROWTH = 2.0  # a model that grows more than this within the longest sequence is taken to explode
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

        Scores at these rows do not profit from the choice: `held_out.error[rows, range(N)]` is what forecasts of new
        sequences are to be expected to have.
        """
        rows = np.zeros(len(self.held_out.fold), int)
        for k in np.unique(self.held_out.fold):
            others = self.held_out.fold != k
            rows[~others] = choose(rule or self.rule, self.table, self.held_out, others)
        return rows


def select(
    cohort: Cohort,
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
    **options: Any,
) -> Selection:
    """Cross-validate over sequences, for every structure and every β of a path.

    Structures are given by `n_states` (one number or several), `prior` and the constraints among the options, or as
    `candidates` (see `level_candidates` and `hidden_candidates`).

    - Density is the log predictive density of held-out sequences, for one value; error the mean absolute error of all
      their forecasts (see forecast_error.py), in units of the channels' standard deviations.
    - `rule` says which model `fit` is: "best_density", for prediction, the default; "best_error", for point forecasts;
      "one_se", the fewest nonzero entries of A whose density is within one standard error of the best, that of the
      paired difference; "best_bic". The result has the choice of each.
    - `n_folds` is by default the number of sequences up to 10 (leave-one-out), then 5.
    - A β of the table is one for the whole cohort: fits to parts of it take theirs from `scaled_beta`.
    - Several structures are first compared at every third β; the best of them then has all. Where the rule chooses the
      smallest β of a grid, the grid is continued.

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
    fold = _folds(cohort, n_folds, seed)
    parts: list[_Part] = []
    with tqdm(disable=not progress, desc="select", unit="path") as bar:
        work = _Work(cohort, fold, options, bar)
        bar.reset(len(candidates) * (fold.max() + 2))
        for candidate in candidates:
            grid = _grid(work, candidate, n_betas) if betas is None else betas
            several = len(candidates) > 1 and betas is None
            part = _cross_validated(work, candidate, grid[1::3] if several else grid)
            if part is None:  # Ctrl-C
                break
            parts.append(part._replace(left=np.delete(grid, np.s_[1::3]) if several else grid[:0]))
        if len(parts) == len(candidates) and betas is None:
            parts = _refined(parts, work, rule)
    if not parts:
        raise KeyboardInterrupt("interrupted before the first structure was done")
    table, found = _joined(parts, work)
    return Selection(table, found, tuple(f for part in parts for f in part.path.fits), rule)


def _refined(parts: list["_Part"], work: "_Work", rule: str) -> list["_Part"]:
    """Return the parts, the best with the rest of its grid, continued while its smallest β is the choice."""

    def best() -> int:
        table, found = _joined(parts, work)
        row = choose(rule, table, found)
        return int(np.searchsorted(np.cumsum([len(p.path.betas) for p in parts]), row, "right"))

    i, parts = best(), list(parts)
    more = parts[i].left
    for _ in range(1 + _EXTENSIONS):
        if len(more):
            work.bar.total += work.fold.max() + 2
            part = _cross_validated(work, parts[i].candidate, more)
            if part is None:
                break
            parts[i] = parts[i].joined(part)
        if best() != i or not _at_the_edge(rule, parts[i], work):
            break
        more = _continued(parts[i].path.betas)
    return parts


class _Work(NamedTuple):
    """What all structures are judged on, and how."""

    cohort: Cohort
    fold: np.ndarray
    options: dict[str, Any]
    bar: Any


class _Part(NamedTuple):
    """The path of one structure, and the scores of its models, (betas, N)."""

    candidate: Candidate
    path: Path
    density: np.ndarray
    error: np.ndarray
    left: Any = ()  # values of β that were left out at first

    def joined(self, more: "_Part") -> "_Part":
        """Return the part with other values of β added."""
        betas = np.append(self.path.betas, more.path.betas)
        order = np.argsort(-betas)
        fits = self.path.fits + more.path.fits
        path = Path(betas[order], tuple(fits[i] for i in order))
        density, error = (
            np.concatenate(x)[order]
            for x in ((self.density, more.density), (self.error, more.error))
        )
        return _Part(self.candidate, path, density, error)


def _folds(cohort: Cohort, n_folds: int | None, seed: int) -> np.ndarray:
    """Return the fold of each sequence, (N,)."""
    N = len(cohort)
    if N < 2:
        raise ValueError(
            "the cohort has one sequence, and none to hold out: give beta, or cut the sequence into several"
        )
    if n_folds is None:
        n_folds = N if N <= 10 else 5
    n_folds = whole("n_folds", n_folds, 2, N)
    return np.random.default_rng(seed).permutation(N) % n_folds


def _at_the_edge(rule: str, part: _Part, work: _Work) -> bool:
    """Tell whether the smallest β of a structure is the rule's choice, and gains more than a nat on the next."""
    table, found = _joined([part], work)
    last = len(table) - 1
    gain = found.density[last].sum() - found.density[last - 1].sum()
    return last > 0 and choose(rule, table, found) == last and bool(gain > 1.0)


def _continued(betas: np.ndarray) -> np.ndarray:
    """Return three smaller β, at the distance of the grid's last two."""
    ratio = betas[-1] / betas[-2]
    return betas[-1] * ratio ** np.arange(1, 4)


def _grid(work: _Work, candidate: Candidate, n_betas: int) -> np.ndarray:
    """Return the grid of β of a structure."""
    options = {k: v for k, v in work.options.items() if k != "warm"}
    return beta_grid(
        work.cohort,
        candidate.n_states,
        candidate.prior,
        n_betas,
        constraints=candidate.constraints,
        **options,
    )


def _cross_validated(work: _Work, candidate: Candidate, betas: Any) -> _Part | None:
    """Return the path of a structure and the scores of held-out sequences; None after Ctrl-C."""
    cohort, fold = work.cohort, work.fold
    options = {**work.options, "constraints": candidate.constraints}
    options.pop("smallest", None)
    if not len(betas):
        return None
    path = regularization_path(cohort, candidate.n_states, candidate.prior, betas=betas, **options)
    if len(path.fits) < len(np.unique(betas)):
        return None
    work.bar.update()
    density, error = np.full((2, len(path.betas), len(cohort)), np.nan)
    scale = _scale(cohort)
    for k in range(fold.max() + 1):
        held = fold == k
        part = regularization_path(
            cohort,
            candidate.n_states,
            candidate.prior,
            betas=scaled_beta(path.betas, cohort, cohort.take(~held)),
            weights=~held,
            **options,
        )
        if len(part.fits) < len(path.fits):
            return None
        for i, fit in enumerate(part.fits):
            density[i, held], error[i, held] = scores(fit.params, cohort, held, scale)
        work.bar.update()
    return _Part(candidate, path, density, error)


def _scale(cohort: Cohort) -> np.ndarray:
    """Return the standard deviation of each channel's observed values, (d,); 1 for a constant one."""
    y, mask = np.asarray(cohort.y), np.asarray(cohort.mask)
    sd = np.array([y[..., j][mask[..., j]].std() for j in range(y.shape[-1])])
    return np.where(sd > 0, sd, 1.0)


def _joined(parts: list[_Part], work: _Work) -> tuple[pd.DataFrame, HeldOut]:
    """Return the table and the scores of all structures so far."""
    cells = np.asarray(work.cohort.mask).sum((1, 2)).astype(float)
    found = HeldOut(
        np.concatenate([part.density for part in parts]),
        np.concatenate([part.error for part in parts]),
        cells,
        work.fold,
    )
    table = pd.DataFrame([row for part in parts for row in _rows(part, work.cohort)])
    density_gap = found.density_gaps(RULES["best_density"](table, found))
    error_gap = found.error_gaps(RULES["best_error"](table, found))
    root = np.sqrt(np.isfinite(found.error).sum(1))
    columns = {
        "density": found.densities(),
        "density_gap": density_gap[0],  # below the best of all rows
        "density_gap_se": density_gap[1],
        "error": found.errors(),
        "error_se": np.nanstd(found.error, axis=1, ddof=1) / root,
        "error_gap": error_gap[0],  # above the best of all rows
        "error_gap_se": error_gap[1],
    }
    return table.assign(**columns), found


def _rows(part: _Part, cohort: Cohort) -> Iterator[dict[str, Any]]:
    """Yield what is known of each fit of a path."""
    for beta, fit in zip(part.path.betas, part.path.fits, strict=True):
        yield {
            "candidate": part.candidate.name,
            "n_states": part.candidate.n_states,
            "beta": beta,
            "bic": bic(fit, cohort),
            "nonzero": int((~fit.zeros).sum()),
            "effective_states": len(effective_states(fit.moving)),
            "radius": float(spectral_radius(fit.params.A)),
            "explodes": bool(spectral_radius(fit.params.A) ** cohort.n_steps > _GROWTH),
        }


def bic(fit: FitResult, cohort: Cohort) -> float:
    """Return -2 log-likelihood + log n for each entry of A that is not zero and each other free parameter.

    n is the number of steps with an observation: a sequence adds to what is known of A with every step.
    """
    n = int(np.asarray(cohort.mask).any(2).sum())
    free = fit.constraints.n_parameters(fit.params)
    if fit.constraints.free("A"):
        free += int((~fit.zeros).sum())
    return -2 * fit.log_likelihood + np.log(n) * free
