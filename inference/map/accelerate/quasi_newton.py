"""Quasi-Newton steps on the penalised log-likelihood, which converge where EM becomes slow.

By Fisher's identity the exact gradient follows from the sums of an E-step, which EM's own program computes. Steps are
scipy's L-BFGS-B, monotone, in the coordinates of coordinates.py. A stays within a piece on
which the penalty is smooth: bounds make its exact zeros, and the next EM step may choose another piece.

Along a path of β the curvature that one fit has learned serves the next (curvature.py): scipy's BFGS begins with it,
and needs a third of the steps. BFGS knows no bounds: a coordinate that meets one is put there and stays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ....models import ExpectedStatistics, LDSParams
from .coordinates import Chart
from .curvature import Curvature, learned

_MEMORY = 100  # pairs kept by L-BFGS-B
_TRIES = 6  # runs of BFGS, each of which may end at a bound
_STALLED = 50  # steps that gain less than the tolerance, in nats, after which EM tells what is left


class Run(NamedTuple):
    """The result of a run of quasi-Newton steps."""

    params: LDSParams | None  # None: no step was taken
    objective: list[float]  # after each step
    interrupted: bool  # by Ctrl-C
    curvature: Curvature | None = None  # learned on the way


def quasi_newton(
    chart: Chart,
    objective: float,
    e_step: Callable[[LDSParams], ExpectedStatistics],
    max_iter: int,
    tol: float,
    stepped: Callable[[float], None],
    curvature: Curvature | None = None,
) -> Run:
    """Take up to max_iter steps, fewer if the gradient is within a tenth of what EM calls optimal, or they gain little.

    `objective` is the objective at the chart's origin. `stepped` is called with the objective after each step.
    `curvature` is that of a problem nearby, as a neighbouring β is.
    """
    x0, lower, upper = chart.start()
    free = lower < upper

    latest: tuple[bytes, Any] = b"", None  # solvers ask again for where they begin

    def f(x):
        nonlocal latest
        if latest[0] != x.tobytes():
            latest = x.tobytes(), value_and_slope(x)
        return latest[1]

    def value_and_slope(x):
        try:
            with np.errstate(all="ignore"):
                point = chart.point(x)
                value, g = chart.slope(point, e_step(point.cast(chart.dtype)))
        except np.linalg.LinAlgError:
            return 1e300, np.zeros_like(x)
        g = np.where(free, g, 0.0)
        finite = np.isfinite(value) and np.isfinite(g).all()
        return (value, g) if finite else (1e300, np.zeros_like(x))

    best, last = f(x0)[0], None
    constant = objective + best  # log_constant of the prior, which f leaves out
    reached: list[float] = []

    def accept(value: float, x: np.ndarray) -> None:
        nonlocal best, last
        if value > best:  # only by rounding, near the optimum
            raise StopIteration
        best, last = value, np.array(x)
        stepped(constant - value)
        reached.append(constant - value)
        stalled = len(reached) > _STALLED and reached[-1] - reached[-1 - _STALLED] < tol
        if stalled or len(reached) >= max_iter:
            raise StopIteration

    interrupted, gtol = False, 0.1 * tol * chart.counts["V1"] ** 0.5
    try:
        if best < 1e300 and curvature is not None:
            options = dict(maxiter=max_iter, gtol=gtol)
            curvature = _with_curvature(f, x0, lower, upper, accept, options, curvature)
        if best < 1e300 and (curvature is None or not curvature.settled):
            found = minimize(
                f,
                x0 if last is None else last,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([lower, upper], axis=1),
                callback=lambda intermediate_result: accept(
                    float(intermediate_result.fun), intermediate_result.x
                ),
                options=dict(
                    maxiter=max_iter,
                    maxfun=4 * max_iter + 20,
                    maxcor=_MEMORY,
                    ftol=1e-15,
                    gtol=gtol,
                ),
            )
            if curvature is None:
                curvature = learned(found.get("hess_inv"), free)
    except KeyboardInterrupt:
        interrupted = True
    if last is None:
        return Run(None, reached, interrupted, curvature)
    found = LDSParams(*map(jnp.asarray, chart.point(last).cast(chart.dtype)))
    params = found._replace(A=found.A + 0.0)  # no -0.0
    return Run(params, reached, interrupted, curvature)


def _with_curvature(
    f: Callable,
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    accept: Callable[[float, np.ndarray], None],
    options: dict,
    curvature: Curvature,
) -> Curvature | None:
    """Take steps of BFGS from a known curvature until the gradient is small; return the curvature, None if of no use.

    A coordinate at a bound that it is pushed against stays there; one that meets its bound is put there.
    """
    for _ in range(_TRIES):
        value, g = f(x)
        moving = (lower < upper) & ~((x <= lower) & (g > 0)) & ~((x >= upper) & (g < 0))
        if np.abs(g[moving]).max(initial=0.0) <= options["gtol"]:
            return curvature._replace(settled=True)
        start = curvature.among(moving)
        if start is None:
            return None
        visited = []

        def inside(value: float, x: np.ndarray, visited=visited) -> None:
            visited.append((value, x))
            if (x < lower).any() or (x > upper).any():
                raise StopIteration
            accept(value, x)

        found = _bfgs(f, x, moving, inside, {**options, "hess_inv0": start})
        curvature = learned(found.hess_inv, moving) or curvature
        if not visited:
            return curvature
        reached, x = visited[-1]
        clipped = np.clip(x, lower, upper)
        if (clipped != x).any():
            before = visited[-2][0] if len(visited) > 1 else value
            x, reached = clipped, f(clipped)[0]
            if reached > before:
                return curvature
            try:
                accept(reached, x)
            except StopIteration:  # enough steps, or none that gains
                return curvature._replace(settled=True)
        elif not found.success:
            return curvature
    return curvature


def _bfgs(f: Callable, x0: np.ndarray, moving: np.ndarray, accept: Callable, options: dict) -> Any:
    """Run scipy's BFGS over the moving coordinates; `accept` is called with the value and x after each step."""

    def whole(part):
        x = x0.copy()
        x[moving] = part
        return x

    def of_moving(part):
        value, g = f(whole(part))
        return value, g[moving]

    def stepped(intermediate_result):
        accept(float(intermediate_result.fun), whole(intermediate_result.x))

    return minimize(
        of_moving, x0[moving], jac=True, method="BFGS", callback=stepped, options=options
    )
