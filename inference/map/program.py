"""The one compiled program of a fit: n EM iterations, where n = 0 is an E-step alone.

What EM, its basis steps, quasi-Newton steps and the end of a fit need of the data, they get here, so that a fit
compiles once.
"""

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...models import (
    Cohort,
    ExpectedStatistics,
    Laplace,
    LDSParams,
    Prepared,
    Prior,
    prepare,
    statistics,
)
from .mstep import Floors, Spec, floors_below, m_step, stationarity

LONGEST = 50  # EM iterations in one call


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
    """Up to n <= LONGEST EM iterations, fewer if the optimality conditions hold to tol.

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
        trace = jnp.where(jnp.arange(LONGEST) == k, objective, trace)
        return State(params, stats, objective, residual), trace, k + 1

    trace = jnp.full(LONGEST, -jnp.inf, state.params.A.dtype)
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
