"""Choosing β and the number of states by held-out sequences, and how stable the zeros of A are."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...models import Cohort, LDSParams, Prior, forecast, log_likelihood
from ..map.em import fit_map
from ..result import FitResult
from .path import effective_states, regularization_path


class Choice(NamedTuple):
    n_states: int
    beta: float


class Selection(NamedTuple):
    """What cross-validation found, with the chosen model fitted to the whole cohort."""

    table: pd.DataFrame  # one row for each (n_states, beta)
    one_se: Choice  # sparsest within one standard error of the best density: the default
    best_density: Choice  # largest held-out log predictive density
    best_error: Choice  # least held-out forecast error
    best_bic: Choice  # least BIC on the support
    fit: FitResult  # at `one_se`


def select(
    cohort: Cohort,
    n_states: int | Sequence[int],
    prior: Prior | None = None,
    *,
    betas: Sequence[float] | np.ndarray | None = None,
    n_betas: int = 10,
    n_folds: int = 5,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Selection:
    """K-fold cross-validation over sequences, for every number of states and every β of a path.

    Density is the log predictive density of a held-out sequence, for each observed cell; error the mean absolute error
    of forecasts of its second half, given its first, in the cohort's units. Both are means over folds, with standard
    errors. The one-standard-error rule takes the fewest nonzero entries of A whose density is within one standard
    error of the best; among equals the fewest states, then the largest density. Takes the options of
    `regularization_path`. Ctrl-C returns what is known of the numbers of states that are done.
    """
    sizes = [n_states] if isinstance(n_states, int | np.integer) else list(n_states)
    N = len(cohort)
    if int(n_folds) != n_folds or not 2 <= n_folds <= N:
        raise ValueError(
            f"n_folds is {n_folds}; it must be from 2 to the {N} sequences of the cohort"
        )
    fold = np.random.default_rng(seed).permutation(N) % n_folds
    rows, fits = [], {}
    bar = tqdm(total=len(sizes) * (n_folds + 1), disable=not progress, desc="select", unit="path")
    for l in sizes:
        whole = regularization_path(cohort, l, prior, betas=betas, n_betas=n_betas, **options)
        if len(whole.betas) < (n_betas if betas is None else len(betas)):  # Ctrl-C
            break
        bar.update()
        density, error = np.full((2, n_folds, len(whole.betas)), np.nan)
        complete = True
        for k in range(n_folds):
            path = regularization_path(
                cohort.take(fold != k), l, prior, betas=whole.betas, **options
            )
            complete = len(path.fits) == len(whole.fits)
            if not complete:  # Ctrl-C
                break
            for i, fit in enumerate(path.fits):
                density[k, i], error[k, i] = _held_out(fit.params, cohort, fold == k)
            bar.update()
        if not complete:
            break
        for i, (beta, fit) in enumerate(zip(whole.betas, whole.fits, strict=True)):
            nonzero = int((np.asarray(fit.params.A) != 0).sum())
            rows.append(
                {
                    "n_states": l,
                    "beta": beta,
                    "density": density[:, i].mean(),
                    "density_se": density[:, i].std(ddof=1) / np.sqrt(n_folds),
                    "error": error[:, i].mean(),
                    "error_se": error[:, i].std(ddof=1) / np.sqrt(n_folds),
                    "bic": bic(fit, N),
                    "nonzero": nonzero,
                    "active_states": len(effective_states(fit.params)),
                }
            )
            fits[l, beta] = fit
    bar.close()
    if not rows:
        raise KeyboardInterrupt("interrupted before the first number of states was done")
    table = pd.DataFrame(rows)
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
    """Log predictive density for each cell, and forecast error, of the sequences held out.

    The whole cohort is evaluated: its shape is the same for every fold, so that nothing is compiled anew.
    """
    cells = np.asarray(cohort.mask)[held].sum()
    density = float(np.asarray(log_likelihood(params, cohort))[held].sum()) / cells
    half = np.asarray(cohort.lengths) // 2
    horizon = int((np.asarray(cohort.lengths) - half).max())
    mean = np.asarray(forecast(params, cohort, horizon, given=half).mean)
    steps = half[:, None] + np.arange(horizon)  # (N, horizon)
    n = np.arange(len(cohort))[:, None]
    inside = (steps < np.asarray(cohort.lengths)[:, None]) & held[:, None]
    steps = np.minimum(steps, cohort.n_steps - 1)
    seen = np.asarray(cohort.mask)[n, steps] & inside[..., None]
    gap = np.abs(
        np.asarray(cohort.to_units(mean)) - np.asarray(cohort.to_units(cohort.y))[n, steps]
    )
    return density, float(gap[seen].mean()) if seen.any() else float("nan")


def bic(fit: FitResult, N: int) -> float:
    """-2 log-likelihood + log N for each entry of A that is not zero and each other free parameter."""
    sizes = fit.spec.sizes(fit.params.n_states, fit.params.n_channels)
    sizes["A"] = int((np.asarray(fit.params.A) != 0).sum())
    free = sum(size for name, size in sizes.items() if fit.spec.free(name))
    return -2 * fit.log_likelihood + np.log(N) * free


def stability_selection(
    cohort: Cohort,
    fit: FitResult,
    *,
    n_bootstraps: int = 50,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> np.ndarray:
    """How often each A_ij is not zero, (l, l), when the sequences are drawn again with replacement.

    Every fit starts at `fit` and holds what it held, and C, so that an entry means the same in all of them. Takes the
    options of `fit_map`, which may say otherwise. Ctrl-C returns the share among the fits that are done.
    """
    if int(n_bootstraps) != n_bootstraps or n_bootstraps < 1:
        raise ValueError(f"n_bootstraps is {n_bootstraps}; it must be a whole number, at least 1")
    rng = np.random.default_rng(seed)
    sequences, l = cohort.sequences(), fit.params.n_states
    options = {**fit.spec.options, "hold": {*fit.spec.hold, "C"}, **options}
    included, done = np.zeros((l, l)), 0
    for _ in tqdm(range(n_bootstraps), disable=not progress, desc="stability", unit="fit"):
        drawn = [sequences[i] for i in rng.integers(len(sequences), size=len(sequences))]
        again = fit_map(
            Cohort.from_sequences(drawn, channels=cohort.channels),
            l,
            fit.prior,
            init=fit.params,
            **options,
        )
        if again.interrupted:
            break
        included += np.asarray(again.params.A) != 0
        done += 1
    if not done:
        raise KeyboardInterrupt("interrupted before the first bootstrap was done")
    return included / done
