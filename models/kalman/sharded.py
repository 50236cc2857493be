"""A cohort cut into shards, one a device of a mesh: each sums over its own sequences, and one all-reduce adds the sums.

Parameters are the same on all devices. What is exchanged in an E-step are the sums that EM needs, which are
5 l² + l d + d² + l + 4 numbers, whatever the number of sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..cohort import Cohort
from ..params import LDSParams
from .complete import Complete
from .pieces import piece, plan_for, plan_of
from .prepare import _filtered, _members, prepare
from .routes import count_gaps
from .statistics import ExpectedStatistics


@dataclass(frozen=True, eq=False)
class Sharded:
    """Data ready for the E-step on the devices of a mesh; a pytree, whose arrays have a first axis over the devices."""

    shards: Any
    mesh: Mesh

    def log_likelihood(self, params: LDSParams) -> Any:
        """Return Σ_n w_n log p(y_n | Ω); to differentiate it, ask for the `score`."""
        return self._summed(lambda data, params: data.log_likelihood(params), params)

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return self._summed(lambda data, params: data.score(params), params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        return self._summed(lambda data, params: data.expected_statistics(params), params)

    def _summed(self, of_shard: Callable, params: LDSParams) -> Any:
        axes = self.mesh.axis_names
        each = PartitionSpec(axes)

        def one(shards, params):
            mine = jax.tree.map(lambda x: x[0], shards)
            return jax.lax.psum(of_shard(mine, params), axes)

        # without check_vma: scans start from constants, which it takes for the same on all devices
        run = jax.shard_map(
            one,
            mesh=self.mesh,
            in_specs=(each, PartitionSpec()),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
        return run(self.shards, params)


jax.tree_util.register_dataclass(Sharded, ["shards"], ["mesh"])


def shard(
    cohort: Cohort, dtype: Any, weights: Any, n_states: int, mesh: Mesh, multiple: int = 8
) -> Sharded:
    """Arrange a cohort, which every process has, for the devices of a mesh: each gets a part of the sequences."""
    D = mesh.devices.size
    if cohort.complete:
        parts = _of_complete(prepare(cohort, dtype, weights, n_states), D, multiple)
    else:
        w = np.ones(len(cohort)) if weights is None else np.asarray(weights, float)
        parts = _with_gaps(cohort, dtype, w, n_states, D, multiple)
    stacked = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *parts)
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))

    def placed(x: np.ndarray) -> Any:
        return jax.make_array_from_callback(x.shape, sharding, lambda at: x[at])

    return Sharded(jax.tree.map(placed, stacked), mesh)


def _of_complete(data: Any, D: int, multiple: int) -> list[Complete]:
    """Return complete (pseudo-)sequences in D parts; the counts of sequences are dealt out evenly."""
    N = data.unit.shape[-1]
    N += -N % (D * multiple)

    def cut(x: Any) -> list[Any]:
        if x is None:
            return [None] * D
        x = np.asarray(x)  # inputs are those of the first sequences: the others have 0
        return np.split(np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, N - x.shape[-1])]), D, axis=-1)

    n_t = np.asarray(data.n_t) / D
    each = zip(*map(cut, (data.y, data.inside, data.unit, data.weights, data.u)), strict=True)
    return [Complete(y, inside, unit, weights, n_t, u) for y, inside, unit, weights, u in each]


def _with_gaps(
    cohort: Cohort, dtype: Any, weights: np.ndarray, n_states: int, D: int, multiple: int
) -> list[Any]:
    """Return sequences with gaps in D pieces of the same shapes, dealt out in turn."""
    N, T, d = cohort.y.shape
    y, mask, lengths = (np.asarray(x) for x in (cohort.y, cohort.mask, cohort.lengths))
    n = -(-N // (D * multiple)) * multiple
    if cohort.u is not None:  # the filter takes inputs, and its shapes are the same for all shards
        return [_of_inputs(cohort, weights, i, D, n, dtype) for i in range(D)]
    every = count_gaps(mask, lengths)
    plan = plan_of(every, int(every.k.max()), lengths, N, n, T, d, n_states)
    gaps = [type(every)(*(x[i::D] for x in every)) for i in range(D)]
    plan = plan_for(gaps, plan) if plan.sizes else plan
    return [piece(plan, y[i::D], mask[i::D], lengths[i::D], weights[i::D], dtype) for i in range(D)]


def _of_inputs(cohort: Cohort, weights: np.ndarray, i: int, D: int, n: int, dtype: Any) -> Any:
    """Return every D-th sequence from i on, filled up to n by ones of weight 0."""
    at = np.arange(i, len(cohort), D)
    chosen = np.concatenate([at, np.zeros(n - len(at), int)])
    w = np.concatenate([weights[at], np.zeros(n - len(at))])
    few = _members(cohort, chosen)
    short = cohort.n_steps - few.n_steps
    assert short >= 0
    return _filtered(_lengthened(few, short), dtype, jnp.asarray(w, dtype))


def _lengthened(cohort: Cohort, more: int) -> Cohort:
    """Return a cohort whose arrays have more steps, past the ends of its sequences."""

    def pad(x):
        return np.pad(x, [(0, 0), (0, more), (0, 0)])

    return replace(cohort, y=pad(cohort.y), mask=pad(cohort.mask), u=pad(cohort.u))
