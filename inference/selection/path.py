"""The regularisation path: MAP fits over a grid of β."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...models import Cohort, DiskCohort, Laplace, LDSParams, Penalty, fisher_score
from ...models.arguments import whole
from ...models.priors import as_penalty
from ..constraints import Constraints
from ..map.along import KNOWN, fits_along
from ..map.checkpoint import inside
from ..map.em import fit_map
from ..map.input_mstep import without_input
from ..map.program import evaluate, pose
from ..proximal import beta_max
from ..result import FitResult


class Path(NamedTuple):
    """Fits from the largest β to the smallest."""

    betas: np.ndarray  # (k,), decreasing
    fits: tuple[FitResult, ...]

    @property
    def A(self) -> np.ndarray:
        """The A of every fit, (k, l, l), for a plot of entries against β."""
        return np.stack([np.asarray(fit.moving.A) for fit in self.fits])

    @property
    def B(self) -> np.ndarray:
        """The B of every fit, (k, l, p), of a path with inputs."""
        return np.stack([np.asarray(fit.moving.B) for fit in self.fits])

    def table(self) -> pd.DataFrame:
        """Return a table with one row for each β."""
        found = pd.DataFrame(
            {
                "beta": self.betas,
                "objective": [fit.objective[-1] for fit in self.fits],
                "log_likelihood": [fit.log_likelihood for fit in self.fits],
                "nonzero": [int((~fit.zeros).sum()) for fit in self.fits],
                "effective_states": [len(effective_states(fit.moving)) for fit in self.fits],
                "converged": [fit.converged for fit in self.fits],
                "n_iter": [fit.n_iter for fit in self.fits],
            }
        )
        if self.fits and self.fits[0].params.n_inputs:
            counts = [int((~fit.zeros_B).sum()) for fit in self.fits]
            found.insert(list(found).index("nonzero") + 1, "nonzero_B", counts)
        return found


def effective_states(params: LDSParams) -> np.ndarray:
    """Return the effective states, those that take part in the dynamics: their row or column of A is not zero.

    A state that is not effective is white noise: no past state acts on it, and it acts on no later one. The number of
    effective states is the number that the data ask for, which the paper promises need not be known.

    >>> I = np.eye(3)
    >>> effective_states(LDSParams(np.diag([0.9, 0.0, 0.5]), I, I, I, np.zeros(3), I)).tolist()
    [0, 2]
    """
    on = np.asarray(params.A) != 0
    return np.flatnonzero(on.any(0) | on.any(1))


def scaled_beta(beta: Any, fitted: Cohort | DiskCohort, wanted: Cohort | DiskCohort) -> Any:
    """Return the β that weighs as much in a fit to `wanted` as `beta` does in a fit to `fitted`.

    The log-likelihood that a penalty weighs against is a sum over transitions, so β grows with their number: a β that
    is chosen on parts of a cohort shrinks A by the same amount when it is scaled to the whole. (glmnet and
    scikit-learn scale likewise: their penalty is for one observation.)
    """
    return beta * _transitions(wanted) / _transitions(fitted)


def _transitions(cohort: Cohort | DiskCohort) -> int:
    """Return the number of pairs of consecutive steps."""
    if isinstance(cohort, DiskCohort):
        return cohort.n_transitions
    return int((np.asarray(cohort.lengths) - 1).sum())


def regularization_path(
    cohort: Cohort | DiskCohort,
    n_states: int,
    prior: Penalty | None = None,
    *,
    n_betas: int = 30,
    smallest: float = 1e-3,
    betas: Sequence[float] | np.ndarray | None = None,
    init: LDSParams | str | None = None,
    warm: bool | None = None,
    max_iter: int = 500,
    progress: bool = False,
    **options: Any,
) -> Path:
    """Fit over a grid of β, with one compiled program for all fits.

    A β of the path is a factor of `prior`, which gives the kind of penalty, and relative weights in its own β
    (`Laplace(1.0)` by default, for which the factor is β itself). The grid is geometric, from the smallest β at which
    A = 0 is optimal, with the other parameters fitted to A = 0, down to `smallest` times that, unless `betas` gives
    the grid. Takes the options of `fit_map`. Ctrl-C returns the fits that are done. With inputs the path is one over
    [A B] where the prior has a `beta_B`, as `Laplace(1.0, beta_B=1.0)`, and starts where B = 0 too; else B has the
    prior that `priors` gives it at every β.

    `warm`: fits begin where the fit at the next smaller β ended, from the smallest β up, and only the first of them
    at `init`; by default where `priors` keep noise away from singular. They take a third of the iterations: each begins
    with the curvature that the last one has learned. With states that are levels such fits mostly end where those from
    `init` do (0.8 nats below where two optima were near each other); with hidden states, which have many optima, up to
    4 nats below or above (`python benchmarks path`). Without priors every fit begins at `init`: where noise is singular
    and entries of A are zero, EM leaves slowly or not at all, and warm fits were seen to end up to a thousand nats
    lower. From the largest β down, fits end lower with priors too.
    """
    prior = Laplace(1.0) if prior is None else as_penalty(prior)
    if not prior.penalised(whole("n_states", n_states)).any():
        raise ValueError(f"prior is {prior!r}, which has no penalty to vary")
    options["max_iter"] = max_iter
    if betas is None:
        grid = beta_grid(cohort, n_states, prior, n_betas, smallest, init=init, **options)
    else:
        grid = np.unique(np.asarray(betas, float).ravel())[::-1]
        if not grid.size or not (np.isfinite(grid) & (grid >= 0)).all():
            raise ValueError(f"betas is {betas}; give one or more numbers from 0 on")
    warm = bool(options.get("priors")) if warm is None else warm
    fits: dict[float, FitResult] = {}
    with tqdm(total=len(grid), disable=not progress, desc="path", unit="fit") as bar:
        for fit in _upwards(cohort, n_states, prior, grid[::-1], init, warm, options):
            if fit.interrupted:
                break
            fits[float(grid[::-1][len(fits)])] = fit
            bar.update()
    done = sorted(fits, reverse=True)
    return Path(np.array(done), tuple(fits[beta] for beta in done))


def _upwards(
    cohort: Cohort | DiskCohort,
    n_states: int,
    prior: Penalty,
    betas: np.ndarray,
    init: LDSParams | str | None,
    warm: bool,
    options: dict[str, Any],
) -> Iterator[FitResult]:
    """Yield the fit at each β, from the smallest up, until one is interrupted."""
    priors = [prior.scaled(float(beta)) for beta in betas]
    asked = {name: options[name] for name in ("weights", "max_iter", "tol") if name in options}
    fit = None
    plain = isinstance(cohort, Cohort) and KNOWN.issuperset(options)
    for i, each in enumerate(priors):
        if fit is not None and warm and plain:
            yield from fits_along(cohort, fit, priors[i:], **asked)  # type: ignore[arg-type]
            return
        start = init if fit is None or not warm else fit.params
        own = inside(options, f"beta-{float(betas[i])!r}")
        fit = fit_map(cohort, n_states, each, init=start, warm=warm and fit is not None, **own)
        yield fit
        if fit.interrupted:
            return


def beta_grid(
    cohort: Cohort | DiskCohort,
    n_states: int,
    prior: Penalty,
    n_betas: int,
    smallest: float = 1e-3,
    **options: Any,
) -> np.ndarray:
    """Return a geometric grid from the least β that holds all penalised entries of A at the centre, downwards.

    Takes the options of `fit_map`. Empty after Ctrl-C.
    """
    n_betas = whole("n_betas", n_betas, 2)
    if not 0 < smallest < 1:
        raise ValueError(f"smallest is {smallest}; it is a share of the largest beta, in (0, 1)")
    # the fit with all penalised entries of A at the centre, which an infinite penalty forces
    center = prior.center_of(n_states)
    infinite = np.where(prior.penalised(n_states), np.inf, 0.0)
    zero = Laplace(infinite, center if center.any() else 0.0)
    there: list[int] = []  # inputs that the path is over too
    sparse_B = cohort.n_inputs > 0 and prior.prior_of_B(n_states, cohort.n_inputs) is not None
    if sparse_B and isinstance(cohort, Cohort):  # one on disk has no inputs
        kept, options = _without_inputs(options, cohort)
        there = kept.columns("B", cohort.n_inputs) if kept.free("B") else []
    empty = fit_map(cohort, n_states, zero, **inside(options, "all-zero"))
    if empty.interrupted:
        return np.zeros(0)
    where = options.get("weights"), options.get("mesh")
    largest = _largest(cohort, empty, prior, *where, there)
    if not largest > 0:
        raise ValueError(f"A stays at the centre of {prior!r} without any penalty; give betas")
    return largest * np.geomspace(1.0, smallest, n_betas)


def _without_inputs(options: dict[str, Any], cohort: Cohort) -> tuple[Constraints, dict[str, Any]]:
    """Return what a fit keeps, and options of one with B at zero too, but for an intercept, which no path penalises."""
    own = {name: options[name] for name in ("hold", "diagonal", "Q") if name in options}
    kept = (options.get("constraints") or Constraints(**own)).with_intercept_of(cohort)
    init = options.get("init")
    if isinstance(init, LDSParams) and init.B is not None:
        init = init._replace(B=np.zeros_like(np.asarray(init.B)))
    rest = {k: v for k, v in options.items() if k not in own}
    if cohort.intercept in kept.columns("B", cohort.n_inputs) and kept.free("B"):
        others = [("B", j) for j in range(cohort.n_inputs) if j != cohort.intercept]
        empty = replace(kept, absent=(*kept.absent, *others))
    else:
        empty = kept.holding("B")
    return kept, {**rest, "constraints": empty, "init": init}


def _largest(
    cohort: Cohort | DiskCohort,
    empty: FitResult,
    prior: Penalty,
    weights: Any,
    mesh: Any,
    there: list[int],
) -> float:
    """Return the smallest factor of the prior at which A = 0 (and B = 0 for the inputs `there`) is optimal."""
    params, constraints = empty.params, empty.constraints
    problem = pose(cohort, empty.prior, params, constraints, empty.priors, weights, mesh)
    s, core = evaluate(params, problem, constraints).stats, empty.moving
    k = core.n_states
    S10 = without_input(s.S10, params.B, s)[:k, :k]
    found = float(beta_max(core.Q, S10, prior, s.S00[:k, :k], core.A))
    if there and isinstance(cohort, Cohort):
        pull = np.asarray(fisher_score(params, s).B)[:k]
        pull = np.where(np.isin(np.arange(pull.shape[1]), there), pull, 0.0)
        found = max(found, prior.beta_max_of_B(pull, cohort.intercept))
    if not np.isfinite(found):
        raise ValueError(
            f"no factor of {prior!r} holds A at zero (beta_max is {found}); give betas"
        )
    return found
