"""EM on sequences with gaps that are filled in: the objective never falls, and it ends where the filter's EM does."""

import jax.numpy as jnp
import numpy as np
from oracles import random_params

from sparse_lds.inference.constraints import Constraints
from sparse_lds.inference.map.program import pose, run, unevaluated
from sparse_lds.models import Cohort, Laplace, LDSParams
from sparse_lds.models.kalman.parts import Guarded
from sparse_lds.models.kalman.routes import Route


def problem(seed):
    """Ten sequences of 3 or 4 steps with cells missing, and 1 to 4 whole steps: one shape for all seeds."""
    rng = np.random.default_rng(seed)
    y = [rng.normal(size=(t, 2)) for t in (4, 4, 4, 4, 4, 3, 3, 3, 3, 3)]
    for x in y:  # no step loses both of its cells here
        x[np.arange(len(x)), rng.integers(0, 2, len(x))] = np.where(
            rng.random(len(x)) < 0.4, np.nan, 0.3
        )
    for n in (0, 1, 5, 6)[: rng.integers(1, 5)]:
        y[n][rng.integers(len(y[n]))] = np.nan
    start = LDSParams(*map(jnp.asarray, random_params(rng, 2, 2, 0.8)))
    return start, Cohort.from_sequences(y)


def test_objective_never_falls_on_200_problems_with_gaps(monkeypatch):
    """Every iteration, and the last objective is that of EM by the filter."""
    constraints = Constraints()
    for seed in range(200):
        start, cohort = problem(seed)
        traces = []
        both = (Route.FILLED, Route.FILTERED)
        every = (*both, Route.OBSERVED, Route.SKIPPED)
        for route in every if seed < 20 else both[seed % 2 :][:1]:
            monkeypatch.setattr(
                "sparse_lds.models.kalman.prepare.choose_routes",
                lambda gaps, l, d, route=route: np.full(len(gaps.k), route),
            )
            posed = pose(cohort, Laplace(1.0), start, constraints)
            assert isinstance(posed.data, Guarded) == (route in (Route.FILLED, Route.OBSERVED))
            _, trace, n = run(unevaluated(start), posed, constraints, 12, 0.0)
            assert int(n) == 12
            traces.append(np.asarray(trace)[:12])
        for trace in traces:
            assert (np.diff(trace) >= -1e-9 * np.abs(trace[:-1])).all(), seed
            np.testing.assert_allclose(trace, traces[0], rtol=1e-8)
