"""The functions that fit: MAP-EM for the sparse LDS (SLDS), and EM for the ordinary one (OLDS), with a flat prior."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from ...models import (
    Cohort,
    DiskCohort,
    Flat,
    Laplace,
    LDSParams,
    Penalty,
    check_params,
)
from ...models.arguments import whole
from ...models.conjugate import to_dict
from ...models.disk.streamed import Streamed
from ...models.kalman.sharded import Sharded
from ...models.params import with_inputs
from ...models.priors import as_penalty
from ..constraints import Constraints
from ..result import FitResult
from .checkpoint import Checkpoint, described
from .checks import check_request, check_types, warnings_of, warnings_of_input
from .loop import Options, Tell, climb
from .loop import init as init_climb
from .paper import fit_paper
from .program import LONGEST, Problem, pose, run, unevaluated
from .starting_values import initial_params, regression_on_inputs


def fit_map(
    cohort: Cohort | DiskCohort,
    n_states: int,
    prior: Penalty,
    *,
    variant: str = "exact",
    accelerate: bool = True,
    init: LDSParams | str | None = None,
    n_restarts: int = 1,
    seed: int = 0,
    hold: Sequence[str] = (),
    diagonal: Sequence[str] = (),
    Q: str = "free",
    constraints: Constraints | None = None,
    priors: Mapping[str, Any] | str | None = None,
    weights: Sequence[float] | np.ndarray | None = None,
    warm: bool = False,
    max_iter: int = 2000,
    tol: float = 1e-4,
    progress: bool = False,
    mesh: Any = None,
    checkpoint: Any = None,
    checkpoint_every: int = 25,
) -> FitResult:
    """Maximise log p(y | Ω) + log p(A), plus the log density of other priors if given: MAP-EM for the sparse LDS.

    - `variant`: "exact" never lowers the objective; "paper" is Algorithm 1 to the letter (inference/map/paper.py).
    - `accelerate`: exact basis steps and quasi-Newton steps between the EM steps. Without them an iteration is one
      plain EM step. "paper" has none.
    - `init`: an `LDSParams`, or a method of `initial_params` ("subspace" by default). With `n_restarts` > 1 a few
      iterations are run from random starts by `seed` too, and the best start goes on.
    - `hold` names parameters kept at their initial values, `diagonal` covariances kept diagonal. B and D of inputs
      are 0 at first, and a regression of y on u: hold either to have inputs act on channels, or on states, alone.
      `Q="identity"` or `Q="unit diagonal"` fixes the scales of the states, which the penalty on A depends on.
    - `constraints` takes the place of these three by one object: that of an earlier fit (`fit.constraints`), or
      `Constraints.levels()`, which makes each state the level of a channel.
    - `priors` of the other parameters, as `lds_model` takes them: numpyro's InverseWishart for Q, R, V1, Normal for C,
      pi1, B and D, and for B Laplace or ColumnLaplace (which `Laplace(beta, beta_B=...)` and `GroupLaplace(...,
      beta_B=...)` bring along), by which B has exact zeros: which input moves which state, or any; or "weak", which are
      `weak_priors` on the scale of the data: noise does not run to singular. Without them, as in the paper, these
      parameters are at their maximum likelihood.
    - `weights` (N,) say how much each sequence counts: 0 leaves it out, 2 is as if it were there twice.
    - `warm` says that `init` is near the optimum, as the fit of a neighbouring β is: EM is cut short.
    - A fit has converged when the optimality conditions hold to `tol` (relative); `tol=0.0` runs all of `max_iter`.
    - `mesh`, a `jax.sharding.Mesh`, spreads the sequences over its devices, those of other processes among them
      (docs/scale.md). A cohort on disk (`open_cohort`) is taken like one in memory.
    - `checkpoint` is a folder in which the fit is saved every `checkpoint_every` iterations or somewhat more; the same
      call goes on from there, to the same parameters.
    - `progress` shows a bar. Ctrl-C returns the parameters reached so far.
    """
    check_types(cohort, init, tol)
    if isinstance(cohort, DiskCohort):
        cohort = cohort.shared(mesh)
    given, cohort = cohort, _in_memory(cohort, weights)
    constraints = _constraints(constraints, hold, diagonal, Q).with_intercept_of(cohort)
    whole_cohort, cohort, weights = cohort, *weighted(cohort, weights)
    check_request(cohort, n_states, constraints)
    prior = as_penalty(prior, n_states)
    if variant not in ("exact", "paper"):
        raise ValueError(f"variant is {variant!r}; it must be 'exact' or 'paper'")
    max_iter, n_restarts = whole("max_iter", max_iter), whole("n_restarts", n_restarts, 1, 10_000)
    seed = whole("seed", seed, 0, 2**63 - 1 - n_restarts)

    starts = _starts(cohort, n_states, prior, constraints, init, n_restarts, seed)
    if accelerate and variant == "exact" and constraints.free("A"):
        A = np.asarray(constraints.moving(starts[0]).A)
        prior.piece(A, np.zeros_like(A))  # a prior without it raises now, and not after some EM
    priors = _priors(priors, cohort, n_states, constraints, init)
    priors = with_prior_of_B(priors, prior, starts[0], constraints, cohort.intercept)
    data = given if isinstance(given, DiskCohort) else whole_cohort
    problem = pose(data, prior, starts[0], constraints, priors, weights, mesh)
    asked = accelerate, max_iter, tol, warm
    options = Options(prior, priors, constraints, *asked, cohort.channels)
    with _bar(max_iter, progress) as tell:
        if variant == "paper":
            _check_plain(problem, checkpoint)
            best, restarts = _race(starts, problem, constraints)
            fit = fit_paper(best, problem, prior, constraints, max_iter, tol, tell, cohort.channels)
        else:
            saved = None
            if checkpoint is not None:
                what = described(data, weights, starts, problem, options)
                every = whole("checkpoint_every", checkpoint_every)
                saved = Checkpoint(checkpoint, every, what)
            fit, restarts = _climbed(starts, problem, options, tell, saved)
    noticed = warnings_of_input(cohort, constraints, isinstance(init, LDSParams))
    noticed = (*noticed, *warnings_of(fit, cohort))
    return fit._replace(restarts=restarts, warnings=(*noticed, *fit.warnings))


def _climbed(
    starts: list[LDSParams],
    problem: Problem,
    options: Options,
    tell: Tell,
    saved: Checkpoint | None,
) -> tuple[FitResult, np.ndarray]:
    """Return the fit from the best of its starts, or from where it was saved, and what the starts had reached."""
    begun = None if saved is None else saved.load(starts[0], problem, options)
    if begun is not None and saved is not None:
        keep = partial(saved.keep, restarts=begun.restarts)
        return climb(begun.climb, options, tell, begun.stop, keep)[0], begun.restarts
    best, restarts = _race(starts, problem, options.constraints)
    keep = None if saved is None else partial(saved.keep, restarts=restarts)
    return climb(init_climb(best, problem, options), options, tell, keep=keep)[0], restarts


def _check_plain(problem: Problem, checkpoint: Any) -> None:
    """Raise if the paper's variant is asked for on data that are not in the memory of one device, or with files."""
    if isinstance(problem.data, Streamed | Sharded) or checkpoint is not None:
        raise ValueError(
            "variant='paper' takes data that fit into the memory of one device, and no checkpoint; give variant='exact'"
        )


def fit_em(cohort: Cohort | DiskCohort, n_states: int, **options: Any) -> FitResult:
    """Maximise log p(y | Ω): EM for the ordinary LDS, which is `fit_map` with a flat prior.

    Takes the options of `fit_map`: init, n_restarts, seed, hold, diagonal, Q, constraints, priors, weights, accelerate,
    max_iter, tol, progress, mesh, checkpoint.
    """
    return fit_map(cohort, n_states, Flat(), **options)


def relaxed_fit(cohort: Cohort, fit: FitResult, **options: Any) -> FitResult:
    """Refit without shrinkage on the support that a fit has found: its zeros are forced, all other entries free.

    Takes the options of `fit_map`; the constraints are those of the fit, unless the options give others.
    """
    center = fit.prior.center_of(fit.n_states)
    support = Laplace(np.where(fit.zeros, np.inf, 0.0), center if center.any() else 0.0)
    options = {"init": fit.params, "priors": fit.priors, **fit.constraints.overridden(options)}
    return fit_map(cohort, fit.n_states, support, **options)


def _constraints(given: Constraints | None, hold, diagonal, Q: str) -> Constraints:
    """Return the constraints, given as one object or as hold, diagonal and Q; raise if given as both."""
    spelled = Constraints(hold, diagonal, Q)
    if given is None:
        return spelled
    if not isinstance(given, Constraints):
        raise TypeError(f"constraints is {given!r}; give Constraints(...), or those of a fit")
    if spelled != Constraints():
        raise ValueError(
            "constraints is given, and hold, diagonal or Q besides; give one or the other"
        )
    return given


def _in_memory(cohort: Cohort | DiskCohort, weights: Any) -> Cohort:
    """Return the cohort, or the sample of one on disk: that is where starts, checks and weak priors come from."""
    if isinstance(cohort, Cohort):
        return cohort
    if weights is not None:
        raise ValueError(
            "weights are of a cohort in memory; leave sequences of one on disk out by `where`"
        )
    return cohort.sample


def weighted(
    cohort: Cohort, weights: Sequence[float] | np.ndarray | None
) -> tuple[Cohort, np.ndarray | None]:
    """Return the sequences that count, and the weights of all (N,); raise unless weights are numbers from 0 on."""
    if weights is None:
        return cohort, None
    try:
        w = np.asarray(weights, float)
    except (TypeError, ValueError):
        w = np.zeros(0)
    if w.shape != (len(cohort),) or not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise ValueError(
            f"weights is {weights!r}; give {len(cohort)} numbers from 0 on, one a sequence, not all 0"
        )
    return cohort.take(w > 0), w


def _priors(
    given: Mapping[str, Any] | str | None,
    cohort: Cohort,
    n_states: int,
    constraints: Constraints,
    init: Any,
) -> dict[str, Any]:
    """Return the priors of the parameters besides A that are learned; "weak" ones are made from the cohort."""
    if isinstance(given, str):
        if given != "weak":
            raise ValueError(f"priors is {given!r}; give 'weak', or a mapping of distributions")
        given = constraints.weak_priors(
            cohort, n_states, init if isinstance(init, LDSParams) else None
        )
    if not isinstance(given, Mapping | None):
        raise TypeError(f"priors is {given!r}; give 'weak', or a mapping of distributions")
    return {name: prior for name, prior in (given or {}).items() if constraints.free(name)}


def with_prior_of_B(
    priors: dict[str, Any],
    prior: Penalty,
    start: LDSParams,
    constraints: Constraints,
    intercept: int | None,
) -> dict[str, Any]:
    """Return the priors with that of B that the prior on A brings along; raise if another one is given besides."""
    if not constraints.free("B"):
        return priors
    of_B = prior.prior_of_B(start.n_states, start.n_inputs, intercept)
    if of_B is None:
        return priors
    if "B" in priors and to_dict({"B": priors["B"]}) != to_dict({"B": of_B}):
        raise ValueError(
            f"prior is {prior!r}, and priors has another prior of B besides; give one of them"
        )
    return {**priors, "B": of_B}


def _starts(
    cohort: Cohort,
    n_states: int,
    prior: Penalty,
    constraints: Constraints,
    init: LDSParams | str | None,
    n_restarts: int,
    seed: int,
) -> list[LDSParams]:
    """Return the starting values: those asked for, then random ones, all in the basis that the constraints ask for."""
    first = constraints.first_guess(cohort) if init is None else init
    guesses = [(first or "subspace", seed)] if not isinstance(first, LDSParams) else []
    if constraints.first_guess(cohort) is None:  # otherwise random starts would be in other bases
        guesses += [("random", seed + i) for i in range(1, n_restarts)]
    p = cohort.n_inputs
    D = None
    if p:
        used = constraints.columns("D", p) if constraints.free("D") else []
        D = regression_on_inputs(cohort, used)
    starts = [
        constraints.lifted(initial_params(cohort, n_states, method, key=key, D=D))
        for method, key in guesses
    ]
    if isinstance(first, LDSParams):
        starts = [first if init is not None or D is None else first._replace(D=D), *starts]
    l, d = n_states + cohort.n_channels * constraints.own_levels, cohort.n_channels

    def admissible(params):
        params = with_inputs(params, p)
        if params.n_states == n_states:
            params = constraints.extended(params, cohort)
        params = constraints.start(check_params(params, d, l, p))
        A, k = np.array(params.A), n_states
        A[:k, :k] = np.where(prior.forced(k), prior.center_of(k), A[:k, :k])
        return params._replace(A=jnp.asarray(A))

    found = [admissible(start) for start in starts]
    dtype = found[0].A.dtype  # that of the start that was asked for
    return [LDSParams(*(x.astype(dtype) for x in start)) for start in found]


def _race(
    starts: list[LDSParams], problem: Problem, constraints: Constraints
) -> tuple[LDSParams, np.ndarray]:
    """Take a few EM iterations from each start; return the best parameters, and the objective that each reached."""
    if len(starts) == 1:
        return starts[0], np.zeros(0)
    states = [run(unevaluated(start), problem, constraints, LONGEST, 0.0)[0] for start in starts]
    reached = np.nan_to_num([float(x.objective) for x in states], nan=-np.inf, posinf=-np.inf)
    best = int(np.argmax(reached))
    return (states[best].params if np.isfinite(reached[best]) else starts[0]), reached


@contextmanager
def _bar(max_iter: int, progress: bool) -> Iterator[Tell]:
    """Show a bar of the iterations; yield the function that moves it."""
    with tqdm(total=max_iter, disable=not progress, desc="EM", unit="it") as bar:

        def tell(n: int, objective: float, residual: float) -> None:
            bar.update(n)
            bar.set_postfix(objective=f"{objective:.4f}", kkt=f"{residual:.1e}", refresh=False)

        yield tell
