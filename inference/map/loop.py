"""The loop of the exact fit: init, step, stop, finish.

A step is a run of EM iterations and, where the fit is accelerated, an exact change of basis and a run of quasi-Newton
steps. None of them lowers the objective.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...models import (
    LDSParams,
    NumericalBreakdown,
    Penalty,
    canonical_scaling,
    with_own_levels,
)
from ...models.linalg import sym
from ..constraints import COVARIANCES, Constraints
from ..result import FitResult, Stop
from .accelerate.basis_steps import basis_step
from .accelerate.coordinates import chart_at
from .accelerate.curvature import Curvature
from .accelerate.quasi_newton import quasi_newton
from .checks import bad_start, drift, warnings_of_floors
from .program import Problem, State, evaluate, log_prior, run, unevaluated
from .second_look import second_look

_CHUNK = 25  # EM iterations in one compiled run, after which progress is shown and Ctrl-C is seen
_FIRST, _BETWEEN = 20, 3  # EM iterations before and between runs of quasi-Newton steps
_RUN = 400  # quasi-Newton steps in a run: each run sets up new coordinates
_DRIFT = 1e4  # ratio of the scales of states, or of their combinations, at which a fit gives up

Tell = Callable[[int, float, float], None]  # called with n more iterations, objective and residual


Keep = Callable[[Any, Stop | None], None]  # called with the climb after each round of the loop


class Options(NamedTuple):
    """Options of a fit: prior, constraints, kinds of steps, and when to stop."""

    prior: Penalty  # as the user gave it; that of the problem has fields of full size
    priors: dict[str, Any]  # of the other parameters, likewise
    constraints: Constraints
    accelerate: bool
    max_iter: int
    tol: float
    warm: bool = False  # the start is near the optimum
    channels: tuple[str, ...] = ()  # named in warnings
    along: bool = False  # one of a path: the curvature of its neighbour serves it


class Climb(NamedTuple):
    """The state of a fit that is under way."""

    point: State
    problem: Problem  # its floors move with the basis
    objective: tuple[float, ...]  # after each iteration
    steps: dict[str, int]  # how many of each kind
    next_em: int  # EM iterations in the next run
    tried: bool = False  # whether quasi-Newton steps were tried
    signs: Any = None  # of A about the prior's centre after quasi-Newton steps, if any were taken
    broken: bool = False  # whether the next EM step would not be finite
    curvature: Curvature | None = None  # that quasi-Newton steps have learned

    def left(self, options: Options) -> int:
        """Return the number of iterations that may still be taken."""
        return options.max_iter - len(self.objective)

    def counted(self, kind: str, values: list[float], **changes) -> "Climb":
        """Return the climb after iterations of one kind, with the objective after each."""
        steps = self.steps | {kind: self.steps[kind] + len(values)}
        return self._replace(objective=(*self.objective, *values), steps=steps, **changes)


def climb(
    begun: Climb, options: Options, tell: Tell, reason: Stop | None = None, keep: Keep | None = None
) -> tuple[FitResult, Curvature | None]:
    """Raise the objective until the optimality conditions hold; return the result, and the curvature that was learned.

    `begun` is what `init` returns, or a climb that was saved, `reason` why that had stopped; `keep` saves one.
    """
    now = begun
    if reason is not None:
        return finish(now, options, reason), now.curvature
    try:
        while reason is None:
            taken = len(now.objective)
            now = em_steps(now, options, tell)
            reason = stop(now, options)
            settled = reason is Stop.TOLERANCE and options.accelerate
            higher = _second_look(now, options) if settled else None
            if higher is not None:
                now, reason = now._replace(point=higher, tried=False, signs=None), None
            if reason is None and options.accelerate:
                now, interrupted = accelerated(now, options, tell)
                reason = Stop.INTERRUPTED if interrupted else None
            if reason is None and now.left(options) <= 0:
                reason = Stop.MAX_ITER
            stuck = len(now.objective) == taken and not float(now.point.residual) <= options.tol
            if reason is None and stuck:  # neither EM nor quasi-Newton could take a step
                reason = Stop.NOT_FINITE
            if keep is not None and reason is not Stop.INTERRUPTED:
                keep(now, reason)
    except KeyboardInterrupt:
        reason = Stop.INTERRUPTED
    return finish(now, options, reason), now.curvature


def init(start: LDSParams, problem: Problem, options: Options) -> Climb:
    """Return a climb that has not taken a step."""
    steps = {"em": 0, "quasi-newton": 0, "basis": 0}
    first = (_BETWEEN if options.warm else _FIRST) if options.accelerate else _CHUNK
    return Climb(unevaluated(start), problem, (), steps, first)


def em_steps(now: Climb, options: Options, tell: Tell) -> Climb:
    """Take a run of EM iterations."""
    n = min(now.next_em, now.left(options))
    point, trace, k = run(now.point, now.problem, options.constraints, n, options.tol)
    values = np.asarray(trace)[: max(int(k), 0)].tolist()
    good = _sound(now.objective[-1:], values, np.finfo(point.params.A.dtype).eps)
    broken = good < len(values) or not _is_finite(point) or np.isnan(float(point.residual))
    if broken:  # back to the last point that was sound
        values = values[:good]
        point = _taken_again(now, options, good)
    if values:  # none where the conditions hold already
        tell(len(values), values[-1], float(point.residual))
    return now.counted("em", values, point=point, broken=broken)


def _sound(before: tuple[float, ...], values: list[float], eps: Any) -> int:
    """Return how many iterations pass before one that is not finite or lowers the objective, which EM cannot do."""
    earlier = np.array([*(before or values[:1]), *values[:-1]])
    with np.errstate(invalid="ignore"):
        rises = np.array(values) - earlier > -np.sqrt(float(eps)) * (1 + np.abs(earlier))
    return int((np.isfinite(values) & rises).cumprod().sum())


def _is_finite(point: State) -> bool:
    """Tell whether parameters and objective are finite."""
    return all(np.isfinite(np.asarray(x)).all() for x in (*point.params, point.objective))


def _taken_again(now: Climb, options: Options, n: int) -> State:
    """Return the point after n EM iterations; raise if already the start of the fit is not finite."""
    point = run(now.point, now.problem, options.constraints, n, 0.0)[0]
    if n or _is_finite(point):
        return point
    raise NumericalBreakdown(bad_start(now.point.params))


def stop(now: Climb, options: Options) -> Stop | None:
    """Return the reason to stop after a run of EM, or None to go on."""
    if now.broken:
        return Stop.NOT_FINITE
    # EM may be so slow that it looks settled, near an optimum or far from it: quasi-Newton steps are tried first
    # and an entry of A that EM has just set free, or moved through zero, has a way to go
    there = now.signs is None or np.array_equal(now.signs, _signs(now.point.params, options))
    settled = (now.tried and there) or not options.accelerate
    if float(now.point.residual) <= options.tol and settled:
        return Stop.TOLERANCE
    if now.left(options) <= 0:
        return Stop.MAX_ITER
    movable = not options.prior.is_flat and options.constraints.basis_changes == "any"
    if options.accelerate and movable and drift(now.point.params) > _DRIFT:
        return Stop.DRIFT
    return None


def _second_look(now: Climb, options: Options) -> State | None:
    """Return a point with a higher objective that small steps do not find, or None."""
    asked = options.constraints, options.prior, options.tol
    try:
        return second_look(now.point, now.problem, *asked)
    except np.linalg.LinAlgError:  # a covariance that is singular but for rounding
        return None


def accelerated(now: Climb, options: Options, tell: Tell) -> tuple[Climb, bool]:
    """Change the basis if the penalty falls, then take quasi-Newton steps; return whether Ctrl-C ended them, too."""
    constraints = options.constraints
    now = _in_a_better_basis(now, options)
    point, problem = now.point, now.problem
    try:
        chart = chart_at(
            point.params, point.stats, problem.prior, problem.priors, problem.floors, constraints
        )
    except np.linalg.LinAlgError:  # a covariance that is singular but for rounding: EM goes on
        chart = None
    if chart is None:
        return now._replace(next_em=_CHUNK, tried=True, signs=None), False
    residual = float(point.residual)
    found = quasi_newton(
        chart,
        float(point.objective),
        lambda params: evaluate(params, problem, constraints).stats,
        min(_RUN, now.left(options)),
        options.tol,
        lambda objective: tell(1, objective, residual),
        now.curvature if options.along else None,
    )
    signs = None
    if found.params is not None:
        signs = _signs(found.params, options)
        # above the tolerance, so that another EM step measures it anew
        residual_before = jnp.maximum(point.residual, 1.01 * options.tol)
        point = unevaluated(found.params)._replace(residual=residual_before)
    next_em = _BETWEEN if len(found.objective) > 1 else _CHUNK
    changes = {"point": point, "next_em": next_em, "tried": True, "signs": signs}
    changes["curvature"] = found.curvature
    now = now.counted("quasi-newton", found.objective, **changes)
    return now, found.interrupted


def _signs(params: LDSParams, options: Options) -> np.ndarray:
    """Return the signs of A about the centre of its prior, which tell the piece of the penalty that it is in."""
    A = np.asarray(options.constraints.moving(params).A)
    return np.sign(A - options.prior.center_of(len(A)))


def _in_a_better_basis(now: Climb, options: Options) -> Climb:
    """Return the climb in a basis with a lower penalty, if the constraints allow one and it raises the objective."""
    point, problem, constraints = now.point, now.problem, options.constraints
    if constraints.basis_changes == "none" or options.prior.is_flat:
        return now
    orthogonal = constraints.basis_changes == "orthogonal"
    moved, W, gain = basis_step(constraints.moving(point.params), options.prior, orthogonal)
    if constraints.own_levels:  # the static states stay as they are
        k = moved.n_states
        rest = jnp.eye(point.params.n_channels, dtype=W.dtype)
        moved = with_own_levels(moved, point.params.pi1[k:], point.params.V1[k:, k:])
        moved = LDSParams(*(jnp.asarray(x, W.dtype) for x in moved))
        W = jax.scipy.linalg.block_diag(W, rest)
    there = evaluate(moved, problem, constraints) if gain > 0 else point
    if not float(there.objective) > float(point.objective):
        return now
    there = there._replace(residual=point.residual)
    steps = now.steps | {"basis": now.steps["basis"] + 1}
    floors = problem.floors.moved(W)
    return now._replace(point=there, problem=problem._replace(floors=floors), steps=steps)


def finish(now: Climb, options: Options, reason: Stop) -> FitResult:
    """Return the result of a climb: no covariance singular, zeros exact, states in canonical order."""
    constraints, residual = options.constraints, float(now.point.residual)
    point = evaluate(constraints.regular(now.point.params), now.problem, constraints)
    point = point if _is_finite(point) else now.point
    if constraints.free("A") and reason is not Stop.NOT_FINITE and not options.prior.is_flat:
        point = _exact_zeros(point, now.problem, constraints)
    params = normalised(point.params, options.prior, constraints)
    if options.priors and constraints.basis_changes != "none":
        before, after = (
            float(log_prior(p, now.problem, constraints)) for p in (point.params, params)
        )
        rounding = max(1e-9, 10 * float(jnp.finfo(params.A.dtype).eps)) * (1 + abs(before))
        if abs(after - before) > rounding:  # priors that tell the states apart
            params = point.params
    return FitResult(
        params=params,
        objective=np.append(now.objective[:-1], float(point.objective)),
        stop=reason,
        reason=reason.text(residual=residual, tol=options.tol, max_iter=options.max_iter),
        kkt_residual=residual,
        log_likelihood=float(point.stats.log_likelihood),
        prior=options.prior,
        priors=options.priors,
        constraints=constraints,
        steps=now.steps,
        warnings=warnings_of_floors(
            now.point.params, now.problem.floors, constraints, options.channels
        ),
        restarts=np.zeros(0),
    )


def normalised(params: LDSParams, prior: Penalty, constraints: Constraints) -> LDSParams:
    """Return the parameters with a normal form of all that changes neither likelihood nor penalty.

    These are overall scale, signs and order of the states; signs of zeros; and exact symmetry, which fused arithmetic
    may miss by a bit.
    """
    movable = constraints.basis_changes != "none" and not constraints.own_levels
    if movable and prior.symmetry == "signed permutations":
        params = canonical_scaling(params)
    host = {name: np.asarray(x) for name, x in params._asdict().items()}
    host["A"] = np.where(host["A"] == 0, host["A"].dtype.type(0), host["A"])
    host |= {name: sym(host[name]) for name in COVARIANCES}
    return LDSParams(**{name: jnp.asarray(x) for name, x in host.items()})


def _exact_zeros(point: State, problem: Problem, constraints: Constraints) -> State:
    """Set small entries to zero if the objective does not fall: EM converges to such a zero only linearly."""
    k = constraints.n_moving(point.params)
    A = np.asarray(point.params.A)[:k, :k]
    center = problem.prior.center_of(k).astype(A.dtype)
    size, penalised = np.abs(A - center), problem.prior.penalised(k)
    for share in (1e-2, 1e-3, 1e-4, 1e-5):
        small = penalised & (size > 0) & (size < share * np.abs(A).max())
        if small.any():
            A_new = jnp.asarray(point.params.A).at[:k, :k].set(np.where(small, center, A))
            cleared = evaluate(point.params._replace(A=A_new), problem, constraints)
            if float(cleared.objective) >= float(point.objective):
                return cleared
    return point
