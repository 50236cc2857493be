"""The choice of β and the number of states by cross-validation over sequences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...models import Cohort, LDSParams, Penalty, forecast, log_likelihood
from ...models.arguments import whole
from ..result import FitResult
from .path import Path, effective_states, regularization_path, scaled_beta


class Choice(NamedTuple):
    """A number of states and a β."""

    n_states: int
    beta: float


class Selection(NamedTuple):
    """The result of cross-validation, with the chosen model fitted to the whole cohort."""

    table: pd.DataFrame  # one row for each (n_states, beta)
    one_se: Choice  # sparsest within one standard error of the best density: the default
    best_density: Choice  # largest held-out log predictive density
    best_error: Choice  # least held-out forecast error
    best_bic: Choice  # least BIC on the support
    fit: FitResult  # at `one_se`


def select(
    cohort: Cohort,
    n_states: int | Sequence[int],
    prior: Penalty | None = None,
    *,
    betas: Sequence[float] | np.ndarray | None = None,
    n_betas: int = 10,
    n_folds: int = 5,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Selection:
    """Cross-validate over sequences, for every number of states and every β of a path.

    Density is the log predictive density of a held-out sequence, for each observed cell; error the mean absolute error
    of forecasts of its second half, given its first, in the cohort's units. Both are means over folds, with standard
    errors. A β of the table is one for the whole cohort: fits to parts of the cohort take theirs from `scaled_beta`.
    The one-standard-error rule takes the fewest nonzero entries of A whose density is within one standard
    error of the best; among equals the fewest states, then the largest density. Takes the options of
    `regularization_path`. Ctrl-C returns the result over the numbers of states that are done.
    """
    sizes = [n_states] if isinstance(n_states, int | np.integer) else list(n_states)
    n_folds = whole("n_folds", n_folds, 2, len(cohort))
    fold = np.random.default_rng(seed).permutation(len(cohort)) % n_folds
    n_values = n_betas if betas is None else len(betas)
    rows, fits = [], {}
    with tqdm(
        total=len(sizes) * (n_folds + 1), disable=not progress, desc="select", unit="path"
    ) as bar:
        for l in sizes:
            path = regularization_path(cohort, l, prior, betas=betas, n_betas=n_betas, **options)
            if len(path.betas) < n_values:  # Ctrl-C
                break
            bar.update()
            scores = _scores(cohort, l, prior, path.betas, fold, options, bar)
            if scores is None:
                break
            rows += _rows(path, *scores, cohort)
            fits |= {(l, beta): fit for beta, fit in zip(path.betas, path.fits, strict=True)}
    if not rows:
        raise KeyboardInterrupt("interrupted before the first number of states was done")
    return _choose(pd.DataFrame(rows), fits)


def _scores(
    cohort: Cohort,
    l: int,
    prior: Penalty | None,
    betas: np.ndarray,
    fold: np.ndarray,
    options: Any,
    bar: Any,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return density and error of every fold and β, (folds, betas); None after Ctrl-C."""
    density, error = np.full((2, fold.max() + 1, len(betas)), np.nan)
    for k in range(fold.max() + 1):
        part = cohort.take(fold != k)
        there = scaled_beta(betas, cohort, part)
        path = regularization_path(part, l, prior, betas=there, **options)
        if len(path.fits) < len(betas):
            return None
        for i, fit in enumerate(path.fits):
            density[k, i], error[k, i] = _held_out(fit.params, cohort, fold == k)
        bar.update()
    return density, error


def _rows(
    path: Path, density: np.ndarray, error: np.ndarray, cohort: Cohort
) -> list[dict[str, Any]]:
    """Return a row of the table for each β of a path."""
    root = np.sqrt(len(density))
    return [
        {
            "n_states": fit.n_states,
            "beta": beta,
            "density": density[:, i].mean(),
            "density_se": density[:, i].std(ddof=1) / root,
            "error": error[:, i].mean(),
            "error_se": error[:, i].std(ddof=1) / root,
            "bic": bic(fit, len(cohort)),
            "nonzero": int((~fit.zeros).sum()),
            "effective_states": len(effective_states(fit.moving)),
        }
        for i, (beta, fit) in enumerate(zip(path.betas, path.fits, strict=True))
    ]


def _choose(table: pd.DataFrame, fits: dict[tuple[int, float], FitResult]) -> Selection:
    """Return the choice by each criterion, and the fit at the default one."""
    best = table.loc[table["density"].idxmax()]
    near = table[table["density"] >= best["density"] - best["density_se"]]
    near = near.iloc[np.lexsort((-near["density"], near["n_states"], near["nonzero"]))]

    def choice(row) -> Choice:
        return Choice(int(row["n_states"]), float(row["beta"]))

    one_se = choice(near.iloc[0])
    return Selection(
        table,
        one_se,
        choice(best),
        choice(table.loc[table["error"].idxmin()]),
        choice(table.loc[table["bic"].idxmin()]),
        fits[one_se],
    )


def _held_out(params: LDSParams, cohort: Cohort, held: np.ndarray) -> tuple[float, float]:
    """Return the log predictive density for each cell, and the forecast error, of the sequences held out.

    The whole cohort is evaluated, since its shape is the same for every fold and nothing is compiled anew.
    """
    cells = np.asarray(cohort.mask)[held].sum()
    density = float(np.asarray(log_likelihood(params, cohort))[held].sum()) / cells
    half = np.asarray(cohort.lengths) // 2
    horizon = int((np.asarray(cohort.lengths) - half).max())
    mean = np.asarray(forecast(params, cohort, horizon, given=half).mean)
    n = np.arange(len(cohort))[:, None]
    wanted = cohort.values_at(n, half[:, None] + np.arange(horizon))  # (N, horizon, d)
    gap = np.abs(cohort.to_units(mean) - cohort.to_units(wanted))[held]
    return density, float(np.nanmean(gap)) if np.isfinite(gap).any() else float("nan")


def bic(fit: FitResult, N: int) -> float:
    """Return -2 log-likelihood + log N for each entry of A that is not zero and each other free parameter."""
    free = fit.constraints.n_parameters(fit.params)
    if fit.constraints.free("A"):
        free += int((~fit.zeros).sum())
    return -2 * fit.log_likelihood + np.log(N) * free
