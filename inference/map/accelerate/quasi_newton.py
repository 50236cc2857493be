"""Quasi-Newton steps on the penalised log-likelihood, which converge where EM becomes slow.

By Fisher's identity the exact gradient follows from the sums of an E-step, which EM's own program computes. Steps are
scipy's L-BFGS-B, monotone, in the coordinates of coordinates.py. A stays within a piece on
which the penalty is smooth: bounds make its exact zeros, and the next EM step may choose another piece.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ....models import ExpectedStatistics, LDSParams
from .coordinates import Chart

_MEMORY = 100  # pairs kept by L-BFGS-B
_STALLED = 50  # steps that gain less than the tolerance, in nats, after which EM tells what is left


class Run(NamedTuple):
    """The result of a run of quasi-Newton steps."""

    params: LDSParams | None  # None: no step was taken
    objective: list[float]  # after each step
    interrupted: bool  # by Ctrl-C


def quasi_newton(
    chart: Chart,
    objective: float,
    e_step: Callable[[LDSParams], ExpectedStatistics],
    max_iter: int,
    tol: float,
    stepped: Callable[[float], None],
) -> Run:
    """Take up to max_iter steps, fewer if the gradient is within a tenth of what EM calls optimal, or they gain little.

    `objective` is the objective at the chart's origin. `stepped` is called with the objective after each step.
    """
    x0, lower, upper = chart.start()

    def f(x):
        try:
            with np.errstate(all="ignore"):
                point = chart.point(x)
                value, g = chart.slope(point, e_step(point.cast(chart.dtype)))
        except np.linalg.LinAlgError:
            return 1e300, np.zeros_like(x)
        g = np.where(lower < upper, g, 0.0)
        finite = np.isfinite(value) and np.isfinite(g).all()
        return (value, g) if finite else (1e300, np.zeros_like(x))

    best, last = f(x0)[0], None
    constant = objective + best  # log_constant of the prior, which f leaves out
    reached: list[float] = []

    def accept(intermediate_result):
        nonlocal best, last
        value = float(intermediate_result.fun)
        if value > best:  # only by rounding, near the optimum
            raise StopIteration
        best, last = value, np.array(intermediate_result.x)
        stepped(constant - value)
        reached.append(constant - value)
        stalled = len(reached) > _STALLED and reached[-1] - reached[-1 - _STALLED] < tol
        if stalled or len(reached) >= max_iter:
            raise StopIteration

    interrupted, gtol = False, 0.1 * tol * chart.counts["V1"] ** 0.5
    try:
        if best < 1e300:
            minimize(
                f,
                x0,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([lower, upper], axis=1),
                callback=accept,
                options=dict(
                    maxiter=max_iter,
                    maxfun=4 * max_iter + 20,
                    maxcor=_MEMORY,
                    ftol=1e-15,
                    gtol=gtol,
                ),
            )
    except KeyboardInterrupt:
        interrupted = True
    if last is None:
        return Run(None, reached, interrupted)
    found = LDSParams(*map(jnp.asarray, chart.point(last).cast(chart.dtype)))
    return Run(found._replace(A=found.A + 0.0), reached, interrupted)  # no -0.0
