"""A cohort on disk ready for the E-step, in chunks that are read ahead while others are computed.

The sums of an E-step are sums over chunks. All chunks have the same shapes (models/kalman/pieces.py), so that one
compiled program serves them, and no more than a few are in memory at any time.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..kalman.pieces import Plan, piece, plan_of
from ..kalman.routes import count_gaps
from ..kalman.statistics import ExpectedStatistics
from ..params import LDSParams
from .across import Processes
from .ahead import read_ahead
from .reading import Sequences, Source, joined
from .summary import bucket_of, hash_ids

if TYPE_CHECKING:
    from .cohort import DiskCohort

_CHUNK = 4096  # sequences


class Streamed(NamedTuple):
    """A cohort on disk, ready for the E-step. Fits run it from the host (see inference/map/program.py)."""

    source: Source
    plan: Plan
    left_out: tuple[int, ...]
    shift: np.ndarray
    scale: np.ndarray
    dtype: Any
    processes: Processes
    devices: tuple[Any, ...] = ()  # of this process; none: the default one

    @classmethod
    def of(cls, cohort: "DiskCohort", dtype: Any, n_states: int, mesh: Any = None) -> "Streamed":
        """Return the stream of a cohort: its shapes are planned from the sample."""
        sample, summary = cohort.without(()).sample, cohort.summary
        gaps = count_gaps(np.asarray(sample.mask), np.asarray(sample.lengths))
        lengths = np.unique([T for _, T in summary.lengths])
        N = sum(summary.lengths.values())
        n = -(-min(_CHUNK, N) // 8) * 8
        T, d = cohort.n_steps, cohort.n_channels
        plan = plan_of(gaps, summary.most_missing, lengths, N, n, T, d, n_states)
        shift, scale = (np.array(x) for x in (cohort.labels.shift, cohort.labels.scale))
        devices = () if mesh is None else tuple(mesh.local_devices)
        return cls(
            cohort.source,
            plan,
            cohort.left_out,
            shift,
            scale,
            np.dtype(dtype),
            cohort.once.processes,
            devices,
        )

    def log_likelihood(self, params: LDSParams) -> Any:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return self._sum(_log_likelihood, params)

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return self._sum(_score, params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        return self._sum(_statistics, params)

    def _sum(self, of_chunk: Callable, params: LDSParams) -> Any:
        """Return the sum of a function of parameters and chunk over all chunks, of all processes."""
        devices = self.devices or (None,)
        on = [params if device is None else jax.device_put(params, device) for device in devices]
        totals: list[Any] = [None] * len(devices)
        with read_ahead(self.chunks()) as chunks:
            for i, chunk in enumerate(chunks):
                at = i % len(devices)
                if devices[at] is not None:
                    chunk = jax.device_put(chunk, devices[at])
                before = totals[at]
                found = of_chunk(on[at], chunk)
                totals[at] = found if before is None else _add(before, found)
                jax.block_until_ready(before)  # no more than two chunks a device are under way
        host = [jax.tree.map(np.asarray, x) for x in totals if x is not None]
        if not host:  # a process without a file
            zero = jax.eval_shape(of_chunk, params, self._packed([])[0])
            host = [jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), zero)]
        return self.processes.summed(jax.tree.map(lambda *x: sum(x), *host))

    def chunks(self) -> Iterator[Any]:
        """Yield the chunks of the files that this process reads."""
        waiting: list[Sequences] = []
        for file in self.processes.share(len(self.source.files)):
            for part in self.source.batches(file):
                waiting.append(part)
                if sum(len(x.ids) for x in waiting) < self.plan.n:
                    continue
                found = joined(waiting)
                while len(found.ids) >= self.plan.n:
                    first, found = found.cut(self.plan.n)
                    yield from self._packed([first])
                waiting = [found]
        if sum(len(x.ids) for x in waiting):
            yield from self._packed(waiting)

    def _packed(self, parts: list[Sequences]) -> list[Any]:
        """Return sequences as chunks: one, or several where they do not fit."""
        T, d = self.plan.T, self.plan.d
        if not parts:
            y, mask, one = np.zeros((1, T, d)), np.ones((1, T, d), bool), self.plan.lengths[:1]
            return [piece(self.plan, y, mask, one, np.zeros(1), self.dtype)]
        found = joined(parts)
        y = (found.padded(T) - self.shift) / self.scale
        mask = ~np.isnan(y)
        weights = 1.0 - np.isin(bucket_of(hash_ids(found.ids)), self.left_out)
        k = found.lengths * d - mask.sum((1, 2))
        whole = slice(0, len(y))
        todo, chunks = [whole], []
        while todo:
            rows = todo.pop()
            if self.plan.fits(found.lengths[rows], k[rows]):
                some = y[rows], mask[rows], found.lengths[rows], weights[rows]
                chunks.append(piece(self.plan, *some, self.dtype))
            else:
                middle = (rows.start + rows.stop) // 2
                todo += [slice(middle, rows.stop), slice(rows.start, middle)]
        return chunks


_statistics = jax.jit(lambda params, chunk: chunk.expected_statistics(params))
_log_likelihood = jax.jit(lambda params, chunk: chunk.log_likelihood(params))
_score = jax.jit(lambda params, chunk: chunk.score(params))
_add = jax.jit(lambda one, other: jax.tree.map(lambda a, b: a + b, one, other))
