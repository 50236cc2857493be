"""EM for the ordinary LDS (OLDS) and MAP-EM for the sparse one (SLDS): one loop, two priors."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from tqdm.auto import tqdm

from ..models import (
    Cohort,
    Flat,
    Laplace,
    LDSParams,
    Prepared,
    Prior,
    change_basis,
    check_params,
    jitted_statistics,
    prepare,
    statistics,
)
from .basis import basis_step, level
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

    @property
    def drifted(self) -> bool:
        """Whether a drift of single states' scales ended it."""
        return self.reason.startswith(_REASONS["drift"].split("{")[0])


class State(NamedTuple):
    """Between two EM iterations."""

    params: LDSParams
    objective: Array  # at the point before
    residual: Array  # violation of the optimality conditions there


class Problem(NamedTuple):
    """What a fit works on: arrays, so that fits of one size share their compiled programs."""

    data: Prepared
    prior: Prior
    floors: Floors


@partial(jax.jit, static_argnames="spec")
def run(
    params: LDSParams, problem: Problem, spec: Spec, n: Array | int, tol: Array | float
) -> tuple[State, Array, Array]:
    """Up to n <= _RACE EM iterations, fewer if the optimality conditions hold to tol.

    Returns the state, the objective at the point that each iteration started from, and how many there were.
    """
    data, prior, floors = problem

    def unfinished(carry):
        state, _, k = carry
        return (k < n) & (state.residual > tol)

    def body(carry):
        (params, _, _), trace, k = carry
        stats = statistics(params, data)
        objective = stats.log_likelihood + prior.log_prob(params.A)
        new, _ = m_step(stats, params, prior, floors, spec)
        residual = stationarity(stats, params, prior, new, spec)
        return State(new, objective, residual), trace.at[k].set(objective), k + 1

    low, high = (jnp.asarray(x, params.A.dtype) for x in (-jnp.inf, jnp.inf))
    trace = jnp.full(_RACE, low)
    return lax.while_loop(unfinished, body, (State(params, low, high), trace, jnp.asarray(0)))


def _evaluate(params: LDSParams, problem: Problem) -> tuple[float, float]:
    """The objective, and the log-likelihood in it."""
    log_likelihood = jitted_statistics(params, problem.data).log_likelihood
    return float(log_likelihood + problem.prior.log_prob(params.A)), float(log_likelihood)


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
    problem = Problem(prepare(cohort, starts[0].A.dtype), prior, floors_below(starts[0]))
    best, restarts = _race(starts, problem, spec)
    fit = climb(best, problem, spec, accelerate and variant == "exact", max_iter, tol, progress)
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
        params = change_basis(params, jnp.linalg.inv(jnp.linalg.cholesky(params.Q)))
        params = params._replace(Q=jnp.eye(params.n_states, dtype=params.Q.dtype))
    elif Q == "unit diagonal":
        params = level(params)
    return params._replace(A=prior.prox(params.A, 0.0))


def _race(starts: list[LDSParams], problem: Problem, spec: Spec) -> tuple[LDSParams, np.ndarray]:
    """EM from all starts together; the best of them, and the objective that each has reached."""
    if len(starts) == 1:
        return starts[0], np.zeros(0)
    stacked = LDSParams(*(jnp.stack(x) for x in zip(*starts, strict=True)))
    state, _, _ = jax.vmap(lambda p: run(p, problem, spec, _RACE, 0.0))(stacked)
    reached = np.where(np.isfinite(state.objective), state.objective, -np.inf)
    winner = int(np.argmax(reached))
    return LDSParams(*(x[winner] for x in state.params)), reached


def climb(
    start: LDSParams,
    problem: Problem,
    spec: Spec,
    accelerate: bool,
    max_iter: int,
    tol: float,
    progress: bool = False,
) -> FitResult:
    """EM from `start` until the optimality conditions hold to tol, with quasi-Newton runs between if accelerated."""
    prior = problem.prior
    penalised = not isinstance(prior, Flat)
    movable, rotatable = penalised and basis_is_free(spec), penalised and rotates(start, spec)
    params, residual = start, np.inf
    values: list[float] = []  # the objective at the point that each iteration started from
    steps = {"em": 0, "quasi-newton": 0, "basis": 0}
    n_em, reason = _FIRST if accelerate else _CHUNK, "max_iter"
    bar = tqdm(total=max_iter, disable=not progress, desc="EM", unit="it")

    def count(kind: str, before: Sequence[float]) -> None:
        """Iterations; `before` is the objective where each of them began."""
        values.extend(before)
        steps[kind] += len(before)
        bar.update(len(before))
        bar.set_postfix(objective=f"{before[-1]:.4f}", kkt=f"{residual:.1e}", refresh=False)

    def arrived(point: LDSParams) -> None:
        nonlocal params
        params = point

    try:
        while len(values) < max_iter:
            state, trace, k = run(params, problem, spec, min(n_em, max_iter - len(values)), tol)
            residual = float(state.residual)
            params = state.params
            count("em", np.asarray(trace)[: int(k)].tolist())
            if not np.isfinite(float(state.objective)):
                reason = "not finite"
                break
            if residual <= tol:
                reason = "tolerance"
                break
            if accelerate and len(values) < max_iter:
                if movable and scale_ratio(params) > _DRIFT:
                    reason = "drift"
                    break
                if movable or rotatable:
                    moved, W, gain = basis_step(params, prior, rotatable)
                    if gain > 0 and _evaluate(moved, problem)[0] > _evaluate(params, problem)[0]:
                        Q, R, V1 = problem.floors
                        params = moved
                        problem = problem._replace(floors=Floors(W @ Q @ W.T, R, W @ V1 @ W.T))
                        steps["basis"] += 1
                n = min(_RUN, max_iter - len(values))
                done = quasi_newton(
                    params, *problem, spec, n, tol, lambda f: count("quasi-newton", [f]), arrived
                )
                n_em = _BETWEEN if done > 1 else _CHUNK
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        bar.close()
    params = regular(params, spec)
    if spec.free("A") and spec.variant == "exact" and reason != "not finite":
        params = _exact_zeros(params, problem)
    objective, log_likelihood = _evaluate(params, problem)
    trace = np.append(values[1:], objective)
    params = normalised(params, prior, spec)
    return FitResult(
        params=params,
        objective=trace,
        n_iter=len(trace),
        converged=reason == "tolerance",
        reason=_REASONS[reason].format(tol=tol, max_iter=max_iter, residual=residual),
        kkt_residual=residual,
        log_likelihood=log_likelihood,
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


def _exact_zeros(params: LDSParams, problem: Problem) -> LDSParams:
    """Entries on their way to zero set to it, where the objective does not fall: EM goes there only linearly."""
    if isinstance(problem.prior, Flat):
        return params
    size, before = jnp.abs(params.A), _evaluate(params, problem)[0]
    for share in (1e-2, 1e-3, 1e-4, 1e-5):
        small = (size > 0) & (size < share * size.max())
        if small.any():
            cleared = params._replace(A=jnp.where(small, 0.0, params.A))
            if _evaluate(cleared, problem)[0] >= before:
                return cleared
    return params
