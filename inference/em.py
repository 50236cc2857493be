"""EM for the ordinary LDS (OLDS) and MAP-EM for the sparse one (SLDS): one loop, two priors."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from tqdm.auto import tqdm

from ..models import (
    Cohort,
    ExpectedStatistics,
    Flat,
    Laplace,
    LDSParams,
    Prepared,
    Prior,
    change_basis,
    check_params,
    prepare,
    statistics,
)
from .basis import basis_step, level
from .chart import chart_at
from .checks import check_arguments, scale_ratio, warnings_of
from .finish import basis_is_free, normalised, regular, rotates
from .initial import initial_params
from .mstep import Floors, Spec, floors_below, m_step, stationarity
from .quasi_newton import quasi_newton

_CHUNK = 25  # EM iterations between two looks from the host: progress, Ctrl-C
_FIRST, _BETWEEN = 20, 3  # EM iterations before and between runs of quasi-Newton steps
_RUN = 400  # quasi-Newton steps in a run: each run sets its coordinates anew
_DRIFT = 1e4  # ratio of the states' scales at which a fit gives up
_LIFT = 0.01  # of V1, added to Q where a start is to have Q = I: states with little noise would be huge in units of it
_RACE = 50  # EM iterations after which the best of several starts goes on alone


class FitResult(NamedTuple):
    """Where a fit ended, and why."""

    params: LDSParams
    objective: np.ndarray  # (n_iter,), log p(y | Ω) + log p(A) after each iteration
    n_iter: int
    converged: bool
    reason: str
    kkt_residual: float  # relative violation of the optimality conditions at the last EM step
    log_likelihood: float  # Σ log p(y_n | Ω)
    prior: Prior
    spec: Spec
    steps: dict[str, int]  # how many of each kind: em, quasi-newton, basis
    warnings: tuple[str, ...]
    restarts: np.ndarray  # the objective of each start when the best was chosen, if several

    def __str__(self) -> str:
        A, beta = np.asarray(self.params.A), np.asarray(self.prior.beta)
        l, d = self.params.n_states, len(self.params.C)
        range_ = f"β = {beta.min():.4g}" + (f" to {beta.max():.4g}" if beta.ndim else "")
        lines = [
            f"LDS of {l} states and {d} channels, prior of A: {type(self.prior).__name__}({range_})",
            f"{self.reason}, {self.n_iter} iterations",
            f"log-likelihood {self.log_likelihood:.4f}, objective {self.objective[-1]:.4f}",
            f"{int((A == 0).sum())} of {A.size} entries of A are exactly zero",
        ]
        if self.spec.hold:
            lines.append(f"held: {', '.join(self.spec.hold)}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.reason == _REASONS["interrupted"]


class State(NamedTuple):
    """A point, and what is known of it."""

    params: LDSParams
    stats: ExpectedStatistics  # the E-step there
    objective: Array
    residual: Array  # violation of the optimality conditions, at the point before


class Problem(NamedTuple):
    """What a fit works on: arrays, so that fits of one size share their compiled programs."""

    data: Prepared
    prior: Prior
    floors: Floors


@partial(jax.jit, static_argnames="spec")
def run(
    state: State, problem: Problem, spec: Spec, n: Array | int, tol: Array | float
) -> tuple[State, Array, Array]:
    """Up to n <= _RACE EM iterations, fewer if the optimality conditions hold to tol.

    Returns the state, the objective after each iteration, and how many there were. A state of which nothing is known
    (see `at`) gets its E-step first. It is the one large program of a fit: n = 0 serves all that needs an E-step alone.
    """
    data, prior, floors = problem

    def m(state):
        new, _ = m_step(state.stats, state.params, prior, floors, spec)
        return new, stationarity(state.stats, state.params, prior, new, spec)

    def unfinished(carry):
        state, _, k = carry
        return (k < n) & (state.residual > tol)

    def body(carry):
        state, trace, k = carry
        params, residual = lax.cond(k < 0, lambda s: (s.params, s.residual), m, state)
        stats = statistics(params, data)
        objective = stats.log_likelihood + prior.log_prob(params.A)
        trace = jnp.where(jnp.arange(_RACE) == k, objective, trace)
        return State(params, stats, objective, residual), trace, k + 1

    trace = jnp.full(_RACE, -jnp.inf, state.params.A.dtype)
    first = jnp.where(jnp.isnan(state.objective), -1, 0)
    return lax.while_loop(unfinished, body, (state, trace, first))


def at(params: LDSParams) -> State:
    """A point of which nothing is known."""
    return State(params, *_nothing(*params.C.shape, params.A.dtype))


@lru_cache(maxsize=64)
def _nothing(d: int, l: int, dtype) -> tuple[ExpectedStatistics, Array, Array]:
    shapes = ((), (), (), (l,), (l, l), (l, l), (l, l), (l, l), (l, l), (d, l), (d, d), ())
    zeros = (jnp.asarray(np.zeros(shape), dtype) for shape in shapes)
    return ExpectedStatistics(*zeros), jnp.asarray(np.nan, dtype), jnp.asarray(np.inf, dtype)


def evaluate(params: LDSParams, problem: Problem, spec: Spec) -> State:
    """The E-step and the objective at a point."""
    return run(at(params), problem, spec, 0, 0.0)[0]


def pose(cohort: Cohort, prior: Prior, start: LDSParams) -> Problem:
    """The problem of a fit that begins at `start`."""
    l, dtype = start.n_states, start.A.dtype
    if isinstance(prior, Laplace):  # one program for a number and a matrix
        prior = Laplace(jnp.asarray(np.broadcast_to(np.asarray(prior.beta, dtype), (l, l))))
    return Problem(prepare(cohort, dtype), prior, floors_below(start))


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
    return fit._replace(restarts=restarts)


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
    """EM from all starts; the best of them, and the objective that each has reached."""
    if len(starts) == 1:
        return starts[0], np.zeros(0)
    states = [run(at(start), problem, spec, _RACE, 0.0)[0] for start in starts]
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
        reason=_REASONS[reason].format(tol=tol, max_iter=max_iter, residual=residual),
        kkt_residual=residual,
        log_likelihood=float(state.stats.log_likelihood),
        prior=prior,
        spec=spec,
        steps=steps,
        warnings=warnings_of(params, prior, spec),
        restarts=np.zeros(0),
    )


_REASONS = {
    "tolerance": "converged: the optimality conditions hold to {residual:.1e}, tol is {tol:g}",
    "max_iter": "stopped after max_iter = {max_iter} iterations, optimality conditions at {residual:.1e}",
    "interrupted": "interrupted; this is what was reached",
    "not finite": "the objective is not finite",
    "drift": "stopped: the scales of single states drift apart, see warnings; optimality conditions at {residual:.1e}",
}


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
