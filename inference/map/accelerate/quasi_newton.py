"""Quasi-Newton steps on the penalised log-likelihood, which finish what EM is slow to finish.

By Fisher's identity the exact gradient follows from the sums of an E-step, which EM's own program makes. Steps are
scipy's L-BFGS-B, monotone, in the coordinates of chart.py. A stays within the orthant that it starts in: bounds make
its exact zeros, and the next EM step may choose another orthant.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ....models import ExpectedStatistics, LDSParams
from .coordinates import Chart

_MEMORY = 100  # pairs kept by L-BFGS-B


def quasi_newton(
    chart: Chart,
    objective: float,
    e_step: Callable[[LDSParams], ExpectedStatistics],
    max_iter: int,
    tol: float,
    stepped: Callable[[float], None],
    arrived: Callable[[LDSParams], None],
) -> int:
    """Up to max_iter steps, fewer if the gradient is within a tenth of what EM calls optimal; how many were taken.

    `objective` is that at the chart's origin. `stepped` is told the objective after each step, and `arrived` the
    last point, also where an interruption ends it.
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

    reached, last = [f(x0)[0]], x0
    constant = objective + reached[0]  # the prior's: what is minimised is the rest

    def accept(intermediate_result):
        nonlocal last
        value = float(intermediate_result.fun)
        if value > reached[-1]:  # rounding, at the end
            raise StopIteration
        last = np.array(intermediate_result.x)
        stepped(constant - value)
        reached.append(value)
        if len(reached) > max_iter:
            raise StopIteration

    try:
        if reached[0] < 1e300:
            minimize(
                f,
                x0,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([lower, upper], axis=1),
                callback=accept,
                options={
                    "maxiter": max_iter,
                    "maxfun": 4 * max_iter + 20,
                    "maxcor": _MEMORY,
                    "ftol": 1e-15,
                    "gtol": 0.1 * tol * chart.counts["V1"] ** 0.5,
                },
            )
    finally:
        if len(reached) > 1:
            found = LDSParams(*map(jnp.asarray, chart.point(last).cast(chart.dtype)))
            arrived(found._replace(A=found.A + 0.0))  # no -0.0
    return len(reached) - 1
