"""The one compiled program of a fit: n EM iterations, where n = 0 is an E-step alone.

EM, basis steps, quasi-Newton steps and the end of a fit all run it, so that a fit compiles once.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from ...models import (
    Cohort,
    DiskCohort,
    ExpectedStatistics,
    LDSParams,
    Penalty,
    Prepared,
    prepare,
)
from ...models.conjugate import Conjugate, as_conjugate
from ...models.disk.streamed import Streamed
from ...models.kalman.sharded import Sharded, shard
from ...models.kalman.statistics import InputStatistics
from ..constraints import Constraints
from .mstep import Floors, floors_below, m_step, stationarity

LONGEST = 50  # EM iterations in one call


class State(NamedTuple):
    """Parameters, with their E-step and objective."""

    params: LDSParams
    stats: ExpectedStatistics  # of the E-step at `params`
    objective: Real[Any, ""]  # NaN: the E-step has not been run
    residual: Real[Any, ""]  # violation of the optimality conditions, before the last M-step


class Problem(NamedTuple):
    """Data, prior and floors of a fit: a pytree of arrays, so that fits of one size share their compiled programs."""

    data: Prepared
    prior: Penalty
    priors: Conjugate  # of the other parameters
    floors: Floors


def pose(
    cohort: Cohort | DiskCohort,
    prior: Penalty,
    start: LDSParams,
    constraints: Constraints,
    priors: Mapping[str, Any] | None = None,
    weights: np.ndarray | None = None,
    mesh: Any = None,
) -> Problem:
    """Return the problem of a fit that begins at `start`; priors of parameters that are held do not count.

    With a mesh the E-steps run on its devices.
    """
    dtype = start.A.dtype
    k = constraints.n_moving(start)
    prior = prior.expanded(k, dtype)
    learned = {name: p for name, p in (priors or {}).items() if constraints.free(name)}
    others = as_conjugate(learned, start.n_states, start.n_channels, dtype, k, start.n_inputs)
    data: Any
    if isinstance(cohort, DiskCohort):
        data = cohort.prepared(dtype, start.n_states, mesh)
    elif mesh is not None:
        data = shard(cohort, dtype, weights, start.n_states, mesh)
    else:
        data = prepare(cohort, dtype, weights, start.n_states)  # type: ignore[arg-type]
    return Problem(data, prior, others, floors_below(start, constraints))


def run(
    state: State, problem: Problem, constraints: Constraints, n: Array | int, tol: Array | float
) -> tuple[State, Array, Array]:
    """Take up to n <= LONGEST EM iterations, fewer if the optimality conditions hold to tol.

    Returns the state, the objective after each iteration, and the number of iterations. For a state whose E-step has
    not been run (see `unevaluated`) the E-step is run first; n = 0 runs nothing else.
    """
    if not isinstance(problem.data, Streamed | Sharded):
        return _run(state, problem, constraints, n, tol)
    apart = _run_from_host if isinstance(problem.data, Streamed) else _run_on_mesh
    try:
        return apart(state, problem, constraints, int(n), float(tol))
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise RuntimeError(
            f"process {jax.process_index()} of {jax.process_count()} lost the others: one of them has ended, or cannot "
            "be reached. Start all of them again; with checkpoint= the fit goes on from its last file"
        ) from error


def _run_on_mesh(
    state: State, problem: Problem, constraints: Constraints, n: int, tol: float
) -> tuple[State, Array, Array]:
    """Take EM iterations on the devices of a mesh.

    Its arrays stay in here: a process may see parts of them only, and all else runs on one device.
    """
    state, rest = jax.tree.map(np.asarray, (state, problem._replace(data=None)))  # type: ignore[arg-type]
    found = _run(state, rest._replace(data=problem.data), constraints, n, tol)
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), found)


@partial(jax.jit, static_argnames="constraints")
def _run(
    state: State, problem: Problem, constraints: Constraints, n: Array | int, tol: Array | float
) -> tuple[State, Array, Array]:
    """Take EM iterations in one compiled loop."""

    def unfinished(carry):
        state, _, k = carry
        return (k < 0) | ((k < n) & (state.residual > tol))

    def body(carry):
        state, trace, k = carry
        params, residual = lax.cond(
            k < 0,
            lambda s: (s.params, s.residual),
            lambda s: _maximised(s, problem, constraints),
            state,
        )
        stats = problem.data.expected_statistics(params)
        objective = stats.log_likelihood + log_prior(params, problem, constraints)
        trace = jnp.where(jnp.arange(LONGEST) == k, objective, trace)
        return State(params, stats, objective, residual), trace, k + 1

    trace = jnp.full(LONGEST, -jnp.inf, state.params.A.dtype)
    first = jnp.where(jnp.isnan(state.objective), -1, 0)
    return lax.while_loop(unfinished, body, (state, trace, first))


def _run_from_host(
    state: State, problem: Problem, constraints: Constraints, n: int, tol: float
) -> tuple[State, Array, Array]:
    """Take EM iterations over data that are read during each of them."""
    data, rest = problem.data, problem._replace(data=None)  # type: ignore[arg-type]
    trace, k = np.full(LONGEST, -np.inf), -1 if np.isnan(float(state.objective)) else 0
    while k < 0 or (k < n and float(state.residual) > tol):
        params, residual = state.params, state.residual
        if k >= 0:
            params, residual = _m_step(state, rest, constraints)
        stats = jax.tree.map(jnp.asarray, data.expected_statistics(params))
        objective = stats.log_likelihood + _log_prior(params, rest, constraints)
        if k >= 0:
            trace[k] = float(objective)
        state, k = State(params, stats, objective, residual), k + 1
    return state, jnp.asarray(trace, state.params.A.dtype), jnp.asarray(k)


def _maximised(state: State, problem: Problem, constraints: Constraints) -> tuple[LDSParams, Array]:
    """Take the M-step; return the new parameters, and how far the old ones were from optimal."""
    _, prior, priors, floors = problem
    convex = prior.majorant(constraints.moving(state.params).A)
    new = m_step(state.stats, state.params, convex, priors, floors, constraints)
    return new, stationarity(state.stats, state.params, convex, new, constraints)


def log_prior(params: LDSParams, problem: Problem, constraints: Constraints) -> Any:
    """Return log p(Ω): of the A of the moving states, and of the other parameters that have a prior."""
    return problem.prior.log_prob(constraints.moving(params).A) + problem.priors.log_prob(params)


_m_step = jax.jit(_maximised, static_argnames="constraints")
_log_prior = jax.jit(log_prior, static_argnames="constraints")


def evaluate(params: LDSParams, problem: Problem, constraints: Constraints) -> State:
    """Return the state of given parameters: their E-step and objective."""
    return run(unevaluated(params), problem, constraints, 0, 0.0)[0]


def unevaluated(params: LDSParams) -> State:
    """Return a state whose E-step has not been run."""
    return State(params, *_nothing(*params.C.shape, params.A.dtype, params.n_inputs))


@lru_cache(maxsize=64)
def _nothing(d: int, l: int, dtype, p: int = 0) -> tuple[ExpectedStatistics, Array, Array]:
    """Return placeholders for the statistics, objective and residual of a state."""
    shapes = ((), (), (), (l,), (l, l), (l, l), (l, l), (l, l), (l, l), (d, l), (d, d), ())
    of_inputs = ((p,), (p, p), (p, p), (l, p), (l, p), (l, p), (d, p))
    zeros, with_inputs = (
        [jnp.asarray(np.zeros(shape), dtype) for shape in each] for each in (shapes, of_inputs)
    )
    inputs = InputStatistics(*with_inputs) if p else None
    return (
        ExpectedStatistics(*zeros, inputs=inputs),
        jnp.asarray(np.nan, dtype),
        jnp.asarray(np.inf, dtype),
    )
