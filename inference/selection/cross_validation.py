"""Cross-validation of one structure: its path of β, and the scores of sequences by fits that left them out."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...models import Cohort, DiskCohort, spectral_radius
from ...models.arguments import whole
from ..map.checkpoint import inside
from ..result import FitResult
from .candidates import Candidate
from .held_out import HeldOut, scores
from .jobs import Job, results
from .path import Path, beta_grid, effective_states, regularization_path, scaled_beta

_GROWTH = 2.0  # a model that grows more than this within the longest sequence is taken to explode


class Work(NamedTuple):
    """What all structures are judged on, and how."""

    cohort: Cohort | DiskCohort
    fold: np.ndarray  # of each sequence of `judged`
    options: dict[str, Any]
    bar: Any
    executor: Any = None

    @property
    def judged(self) -> Cohort:
        """The sequences that models are judged by: all of them, or the sample of a cohort on disk."""
        return self.cohort if isinstance(self.cohort, Cohort) else self.cohort.sample

    def training(self, k: int) -> tuple[Cohort | DiskCohort, dict[str, Any]]:
        """Return the cohort without a fold, and options of a fit to it."""
        if isinstance(self.cohort, DiskCohort):
            n_folds = int(self.fold.max()) + 1
            return self.cohort.without(self.cohort.fold(k, n_folds)), {}
        held = self.fold == k  # by weights, so that the shapes are those of the whole cohort
        return self.cohort, {"weights": ~held}


class Part(NamedTuple):
    """The path of one structure, and the scores of its models, (betas, N)."""

    candidate: Candidate
    path: Path
    density: np.ndarray
    error: np.ndarray
    left: Any = ()  # values of β that were left out at first

    def joined(self, more: "Part") -> "Part":
        """Return the part with other values of β added."""
        betas = np.append(self.path.betas, more.path.betas)
        order = np.argsort(-betas)
        fits = self.path.fits + more.path.fits
        path = Path(betas[order], tuple(fits[i] for i in order))
        density, error = (
            np.concatenate(x)[order]
            for x in ((self.density, more.density), (self.error, more.error))
        )
        return Part(self.candidate, path, density, error)


def folds_of(cohort: Cohort | DiskCohort, n_folds: int | None, seed: int) -> np.ndarray:
    """Return the fold of each sequence, (N,); on disk it goes by a hash of the id, and is that of the sample's."""
    if isinstance(cohort, DiskCohort):
        n_folds = 5 if n_folds is None else n_folds
        fold = np.zeros(len(cohort.sample), int)
        for k in range(n_folds):
            fold[np.isin(cohort.sample_buckets, cohort.fold(k, n_folds))] = k
        if fold.max() < n_folds - 1:
            raise ValueError(f"the cohort has too few sequences for {n_folds} folds; give fewer")
        return fold
    N = len(cohort)
    if N < 2:
        raise ValueError(
            "the cohort has one sequence, and none to hold out: give beta, or cut the sequence into several"
        )
    if n_folds is None:
        n_folds = N if N <= 10 else 5
    n_folds = whole("n_folds", n_folds, 2, N)
    return np.random.default_rng(seed).permutation(N) % n_folds


def check_folds(cohort: Cohort, fold: np.ndarray) -> None:
    """Raise if a channel has values in one fold only: without that fold nothing can be learned of it."""
    seen: Any = np.asarray(cohort.mask).any(1)  # (N, d)
    for name, has in zip(cohort.channels, seen.T, strict=True):
        if len({*fold[has]}) < 2:
            raise ValueError(
                f"channel {name!r} has values in {int(has.sum())} of {len(cohort)} sequences, all of them in one fold: "
                "leave it out, or give another seed or n_folds"
            )


def grid_of(work: Work, candidate: Candidate, n_betas: int) -> np.ndarray:
    """Return the grid of β of a structure."""
    options = {k: v for k, v in work.options.items() if k != "warm"}
    options = inside(options, candidate.name, "grid")
    return beta_grid(
        work.cohort,
        candidate.n_states,
        candidate.prior,
        n_betas,
        constraints=candidate.constraints,
        **options,
    )


def cross_validated(work: Work, candidate: Candidate, betas: Any) -> Part | None:
    """Return the path of a structure and the scores of held-out sequences; None after Ctrl-C."""
    options = {**work.options, "constraints": candidate.constraints}
    options.pop("smallest", None)
    if not len(betas):
        return None
    grid = np.unique(np.asarray(betas, float).ravel())[::-1]
    whole_options = inside(options, candidate.name, "all")
    jobs: list[Job] = [(_path, (work.cohort, candidate, betas, whole_options))]
    for k in range(work.fold.max() + 1):
        part, more = work.training(k)
        own = inside({**options, **more}, candidate.name, f"without-{k}")
        kept = work.cohort.take(work.fold != k) if isinstance(work.cohort, Cohort) else part
        scaled = scaled_beta(grid, work.cohort, kept)
        jobs.append((_scored, (part, candidate, scaled, own, work.judged, work.fold == k)))
    density, error = np.full((2, len(grid), len(work.fold)), np.nan)
    path = None
    for number, found in results(jobs, work.executor):
        if found is None:  # Ctrl-C
            return None
        if number == 0:
            path = found
        else:
            held = work.fold == number - 1
            density[:, held], error[:, held] = found
        work.bar.update()
    assert path is not None
    return Part(candidate, path, density, error)


def _path(cohort: Any, candidate: Candidate, betas: Any, options: dict[str, Any]) -> Path | None:
    """Return the path of a structure; None after Ctrl-C."""
    path = regularization_path(cohort, candidate.n_states, candidate.prior, betas=betas, **options)
    return path if len(path.fits) == len(np.unique(betas)) else None


def _scored(
    cohort: Any,
    candidate: Candidate,
    betas: np.ndarray,
    options: dict[str, Any],
    judged: Cohort,
    held: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the scores (betas, held) of sequences held out, by a path on the others; None after Ctrl-C."""
    path = _path(cohort, candidate, betas, options)
    if path is None:
        return None
    scale = _scale(judged)
    found = [scores(fit.params, judged, held, scale) for fit in path.fits]
    return np.stack([x for x, _ in found]), np.stack([x for _, x in found])


def _scale(cohort: Cohort) -> np.ndarray:
    """Return the standard deviation of each channel's observed values, (d,); 1 for a constant one."""
    y, mask = np.asarray(cohort.y), np.asarray(cohort.mask)
    sd = np.array([y[..., j][mask[..., j]].std() for j in range(y.shape[-1])])
    return np.where(sd > 0, sd, 1.0)


def joined(parts: list[Part], work: Work) -> tuple[pd.DataFrame, HeldOut]:
    """Return the table and the scores of all structures so far."""
    cells = np.asarray(work.judged.mask).sum((1, 2)).astype(float)
    found = HeldOut(
        np.concatenate([part.density for part in parts]),
        np.concatenate([part.error for part in parts]),
        cells,
        work.fold,
    )
    table = pd.DataFrame([row for part in parts for row in _rows(part, work.cohort)])
    density_gap = found.density_gaps(int(np.nanargmax(found.densities())))
    error_gap = found.error_gaps(int(np.nanargmin(found.errors())))
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


def _rows(part: Part, cohort: Cohort | DiskCohort) -> Iterator[dict[str, Any]]:
    """Yield what is known of each fit of a path."""
    for beta, fit in zip(part.path.betas, part.path.fits, strict=True):
        of_inputs = {"nonzero_B": int((~fit.zeros_B).sum())} if cohort.n_inputs else {}
        yield {
            "candidate": part.candidate.name,
            "n_states": part.candidate.n_states,
            "beta": beta,
            "bic": bic(fit, cohort),
            "nonzero": int((~fit.zeros).sum()),
            **of_inputs,
            "effective_states": len(effective_states(fit.moving)),
            "radius": float(spectral_radius(fit.params.A)),
            "explodes": not bool(spectral_radius(fit.params.A) ** cohort.n_steps <= _GROWTH),
        }


def bic(fit: FitResult, cohort: Cohort | DiskCohort) -> float:
    """Return -2 log-likelihood + log n for each entry of A or a sparse B that is not zero, and each other parameter.

    n is the number of steps with an observation: a sequence adds to what is known of A with every step.
    """
    if isinstance(cohort, DiskCohort):
        n = cohort.n_observed_steps
    else:
        n = int(np.asarray(cohort.mask).any(2).sum())
    free = fit.constraints.n_parameters(fit.params)
    if fit.constraints.free("A"):
        free += int((~fit.zeros).sum())
    if "B" in fit.priors and fit.constraints.free("B"):  # its zeros are not parameters
        there = fit.constraints.columns("B", fit.params.n_inputs)
        free -= int(fit.zeros_B[:, there].sum())
    return -2 * fit.log_likelihood + np.log(n) * free
