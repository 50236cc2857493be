"""Fits along a path of β: each begins where the last one ended, with data arranged once and the curvature it left."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...models import Cohort, Penalty
from ..result import FitResult
from .checks import warnings_of, warnings_of_input
from .em import weighted, with_prior_of_B
from .loop import Options, climb, init
from .program import pose

# options of `fit_map` under which a fit may begin at another one without being asked for anything else
KNOWN = {"constraints", "hold", "diagonal", "Q", "priors", "weights", "max_iter", "tol", "seed"}


def fits_along(
    cohort: Cohort,
    first: FitResult,
    priors_on_A: Sequence[Penalty],
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    max_iter: int = 500,
    tol: float = 1e-4,
) -> Iterator[FitResult]:
    """Yield the fit under each prior on A, beginning with that of `first`, a fit of `fit_map` under another of them.

    Constraints, other priors and weights are those of `first`. Ends after a fit that Ctrl-C interrupted.
    """
    counted, w = weighted(cohort, weights)
    constraints, before, curvature = first.constraints, first, None
    problem = pose(cohort, first.prior, first.params, constraints, first.priors, w)
    k, dtype = constraints.n_moving(first.params), first.params.A.dtype
    noticed = warnings_of_input(counted, constraints, True)
    others = {name: prior for name, prior in first.priors.items() if name != "B"}
    for prior in priors_on_A:
        priors = dict(first.priors)
        if prior.prior_of_B(k, first.params.n_inputs) is not None:  # it changes along the path
            priors = with_prior_of_B(others, prior, first.params, constraints, cohort.intercept)
            problem = pose(cohort, prior, first.params, constraints, priors, w)
        problem = problem._replace(prior=prior.expanded(k, dtype))
        asked = True, max_iter, tol, True
        options = Options(prior, priors, constraints, *asked, cohort.channels, along=True)
        begun = init(before.params, problem, options)._replace(curvature=curvature)
        fit, curvature = climb(begun, options, _silent)
        before = fit._replace(warnings=(*noticed, *warnings_of(fit, counted), *fit.warnings))
        yield before
        if before.interrupted:
            return


def _silent(n: int, objective: float, residual: float) -> Any:
    """Tell nobody: a path has a bar of its own."""
