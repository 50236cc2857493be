"""EM for the ordinary LDS (OLDS) and MAP-EM for the sparse one (SLDS): one loop, two priors."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from ...models import Cohort, Flat, Laplace, LDSParams, Prior, change_basis, check_params
from ..result import REASONS, FitResult
from .accelerate.basis_steps import basis_step, level
from .accelerate.coordinates import chart_at
from .accelerate.quasi_newton import quasi_newton
from .checks import check_arguments, scale_ratio, warnings_of, warnings_of_input
from .finish import basis_is_free, normalised, regular, rotates
from .mstep import Floors, Spec
from .program import LONGEST, Problem, State, at, evaluate, pose, run
from .starting_values import initial_params

_CHUNK = 25  # EM iterations between two looks from the host: progress, Ctrl-C
_FIRST, _BETWEEN = 20, 3  # EM iterations before and between runs of quasi-Newton steps
_RUN = 400  # quasi-Newton steps in a run: each run sets its coordinates anew
_DRIFT = 1e4  # ratio of the states' scales at which a fit gives up
_LIFT = 0.01  # of V1, added to Q where a start is to have Q = I: states with little noise would be huge in units of it


def fit_map(
    cohort: Cohort,
    n_states: int,
    prior: Prior,
    *,
    variant: str = "exact",
    accelerate: bool = True,
    init: LDSParams | str | None = None,
    n_restarts: int = 1,
    seed: int = 0,
    hold: Sequence[str] = (),
    diagonal: Sequence[str] = (),
    Q: str = "free",
    max_iter: int = 2000,
    tol: float = 1e-4,
    progress: bool = False,
) -> FitResult:
    """Maximise log p(y | Ω) + log p(A) over Ω: MAP-EM for the sparse LDS.

    - `variant`: "exact" never lowers the objective; "paper" is Algorithm 1 to the letter.
    - `accelerate`: exact basis steps and quasi-Newton steps between the EM steps. Without it an iteration is one
      plain EM step. "paper" has none.
    - `init`: an `LDSParams`, or a method of `initial_params` ("subspace" by default). With `n_restarts` > 1 random
      starts by `seed` run beside it, and the best goes on.
    - `hold` names parameters kept at their initial values, `diagonal` covariances kept diagonal.
      `Q="identity"` or `Q="unit diagonal"` fixes the scales of the states, which the penalty on A depends on.
    - A fit has converged when the optimality conditions hold to `tol` (relative); `tol=0.0` runs all of `max_iter`.
    - `progress` shows a bar. Ctrl-C returns what was reached.
    """
    spec = check_arguments(
        cohort,
        n_states,
        prior,
        variant=variant,
        hold=hold,
        diagonal=diagonal,
        Q=Q,
        max_iter=max_iter,
        tol=tol,
        n_restarts=n_restarts,
    )
    guesses = [(init or "subspace", seed)] if not isinstance(init, LDSParams) else []
    guesses += [("random", seed + i) for i in range(1, n_restarts)]
    starts = [initial_params(cohort, n_states, method, key=key) for method, key in guesses]
    if Q == "identity":
        starts = [x._replace(Q=x.Q + _LIFT * x.V1) for x in starts]
    if isinstance(init, LDSParams):
        starts = [init, *starts]
    starts = [_admissible(check_params(x, cohort.n_channels, n_states), prior, Q) for x in starts]
    problem = pose(cohort, prior, starts[0])
    best, restarts = _race(starts, problem, spec)
    accelerate = accelerate and variant == "exact"
    fit = climb(best, problem, prior, spec, accelerate, max_iter, tol, progress)
    noticed = warnings_of_input(cohort, isinstance(init, LDSParams), hold)
    return fit._replace(restarts=restarts, warnings=(*noticed, *fit.warnings))


def fit_em(cohort: Cohort, n_states: int, **options: Any) -> FitResult:
    """Maximise log p(y | Ω): EM for the ordinary LDS, which is `fit_map` with a flat prior.

    Takes the options of `fit_map`: init, n_restarts, seed, hold, diagonal, Q, accelerate, max_iter, tol, progress.
    """
    return fit_map(cohort, n_states, Flat(), **options)


def relaxed_fit(cohort: Cohort, fit: FitResult, **options: Any) -> FitResult:
    """Refit without shrinkage on the support that a fit has found: its zeros are held, nothing is penalised.

    Takes the options of `fit_map`; what the fit held or constrained is so again, unless they say otherwise.
    """
    support = Laplace(jnp.where(fit.params.A == 0, jnp.inf, 0.0))
    options = {**fit.spec.options, **options}
    return fit_map(cohort, fit.params.n_states, support, init=fit.params, **options)


def _admissible(params: LDSParams, prior: Prior, Q: str) -> LDSParams:
    """A start in the basis that Q asks for, with the forced zeros in place."""
    if Q == "identity":
        params = change_basis(params, np.linalg.inv(np.linalg.cholesky(params.Q)))
        params = params._replace(Q=jnp.asarray(np.eye(params.n_states), params.Q.dtype))
    elif Q == "unit diagonal":
        params = level(params)
    kept = np.where(prior.forced(params.n_states), 0.0, params.A)
    return params._replace(A=jnp.asarray(kept, params.A.dtype))


def _race(starts: list[LDSParams], problem: Problem, spec: Spec) -> tuple[LDSParams, np.ndarray]:
    """A few EM iterations from each start; the best of them goes on, and what each has reached."""
    if len(starts) == 1:
        return starts[0], np.zeros(0)
    states = [run(at(start), problem, spec, LONGEST, 0.0)[0] for start in starts]
    reached = np.nan_to_num([float(x.objective) for x in states], nan=-np.inf, posinf=-np.inf)
    return states[int(np.argmax(reached))].params, reached


def climb(
    start: LDSParams,
    problem: Problem,
    prior: Prior,
    spec: Spec,
    accelerate: bool,
    max_iter: int,
    tol: float,
    progress: bool = False,
) -> FitResult:
    """EM from `start` until the optimality conditions hold to tol, with quasi-Newton runs between if accelerated."""
    penalised = not isinstance(prior, Flat)
    movable, rotatable = penalised and basis_is_free(spec), penalised and rotates(start, spec)
    state, residual = at(start), np.inf
    values: list[float] = []  # the objective after each iteration
    steps = {"em": 0, "quasi-newton": 0, "basis": 0}
    n_em, reason = _FIRST if accelerate else _CHUNK, "max_iter"
    bar = tqdm(total=max_iter, disable=not progress, desc="EM", unit="it")

    def count(kind: str, after: Sequence[float]) -> None:
        """Iterations, and the objective after each."""
        values.extend(after)
        steps[kind] += len(after)
        bar.update(len(after))
        bar.set_postfix(objective=f"{after[-1]:.4f}", kkt=f"{residual:.1e}", refresh=False)

    def arrived(point: LDSParams) -> None:
        nonlocal state
        state = at(point)

    try:
        while len(values) < max_iter:
            state, trace, k = run(state, problem, spec, min(n_em, max_iter - len(values)), tol)
            residual = float(state.residual)
            count("em", np.asarray(trace)[: int(k)].tolist())
            if not np.isfinite(float(state.objective)):
                reason = "not finite"
                break
            if residual <= tol:
                reason = "tolerance"
                break
            if accelerate and len(values) < max_iter:
                if movable and scale_ratio(state.params) > _DRIFT:
                    reason = "drift"
                    break
                if movable or rotatable:
                    moved, W, gain = basis_step(state.params, prior, rotatable)
                    there = evaluate(moved, problem, spec) if gain > 0 else state
                    if float(there.objective) > float(state.objective):
                        Q, R, V1 = problem.floors
                        state = there
                        problem = problem._replace(floors=Floors(W @ Q @ W.T, R, W @ V1 @ W.T))
                        steps["basis"] += 1
                chart = chart_at(*state[:2], *problem[1:], spec)
                done = (
                    0
                    if chart is None
                    else quasi_newton(
                        chart,
                        float(state.objective),
                        lambda params, problem=problem: evaluate(params, problem, spec).stats,
                        min(_RUN, max_iter - len(values)),
                        tol,
                        lambda objective: count("quasi-newton", [objective]),
                        arrived,
                    )
                )
                n_em = _BETWEEN if done > 1 else _CHUNK
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        bar.close()
    state = evaluate(regular(state.params, spec), problem, spec)
    if spec.free("A") and spec.variant == "exact" and reason != "not finite":
        state = _exact_zeros(state, problem, spec)
    trace = np.append(values[:-1], float(state.objective))
    params = normalised(state.params, prior, spec)
    return FitResult(
        params=params,
        objective=trace,
        n_iter=len(trace),
        converged=reason == "tolerance",
        reason=REASONS[reason].format(tol=tol, max_iter=max_iter, residual=residual),
        kkt_residual=residual,
        log_likelihood=float(state.stats.log_likelihood),
        prior=prior,
        spec=spec,
        steps=steps,
        warnings=warnings_of(params, prior, spec),
        restarts=np.zeros(0),
    )


def _exact_zeros(state: State, problem: Problem, spec: Spec) -> State:
    """Entries on their way to zero set to it, where the objective does not fall: EM goes there only linearly."""
    if isinstance(problem.prior, Flat):
        return state
    A = np.asarray(state.params.A)
    size = np.abs(A)
    for share in (1e-2, 1e-3, 1e-4, 1e-5):
        small = (size > 0) & (size < share * size.max())
        if small.any():
            A_new = jnp.asarray(np.where(small, 0.0, A), A.dtype)
            cleared = evaluate(state.params._replace(A=A_new), problem, spec)
            if float(cleared.objective) >= float(state.objective):
                return cleared
    return state
