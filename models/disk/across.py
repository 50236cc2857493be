"""The processes that share the work on one cohort: who reads which file, and what they tell each other."""

import pickle
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np


class Processes(NamedTuple):
    """The number of processes that share a cohort, and which of them this one is."""

    count: int = 1
    index: int = 0

    @classmethod
    def of(cls, mesh: Any) -> "Processes":
        """Return the processes whose devices a mesh is made of; raise unless these are all."""
        if mesh is None:
            return cls()
        of_mesh = {device.process_index for device in mesh.devices.flat}
        if len(of_mesh) not in (1, jax.process_count()):
            raise ValueError(
                f"mesh has devices of {len(of_mesh)} of {jax.process_count()} processes; give devices of all of them"
            )
        return cls(len(of_mesh), jax.process_index() if len(of_mesh) > 1 else 0)

    def share(self, n: int) -> Iterable[int]:
        """Return which of n files this process reads."""
        return range(self.index, n, self.count)

    def gathered(self, x: Any) -> list[Any]:
        """Return what all processes have given, in their order: the same list in each of them."""
        if self.count == 1:
            return [x]
        from jax.experimental.multihost_utils import process_allgather

        content = np.frombuffer(pickle.dumps(x), np.uint8)
        sizes = np.asarray(process_allgather(np.array([len(content)]))).reshape(-1)
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(content)] = content
        found = np.asarray(process_allgather(padded)).reshape(self.count, -1)
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(found, sizes, strict=True)]

    def summed(self, tree: Any) -> Any:
        """Return the sums over all processes of the arrays in a pytree, in numpy: the same bits in each of them."""
        leaves, form = jax.tree.flatten(tree)
        host = [np.asarray(x) for x in leaves]
        if self.count > 1:
            from jax.experimental.multihost_utils import process_allgather

            flat = np.concatenate([x.ravel() for x in host])
            total = np.asarray(process_allgather(flat)).reshape(self.count, -1).sum(0)
            ends = np.cumsum([x.size for x in host])[:-1]
            host = [x.reshape(y.shape) for x, y in zip(np.split(total, ends), host, strict=True)]
        return jax.tree.unflatten(form, host)
