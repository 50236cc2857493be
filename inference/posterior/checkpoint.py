"""Chains in files, saved after each chunk, so that an interrupted run goes on where it stopped."""

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...models.files import write_whole
from .kernel import record


def save_chain(file: Path | None, state: Any, draws: list, done: int) -> None:
    """Write the state, draws and number of steps of a chain to a file, if one is given."""
    if file is None:
        return
    leaves = jax.tree.leaves((state, draws))
    arrays: dict[str, Any] = {f"a{i}": np.asarray(x) for i, x in enumerate(leaves)}
    buffer = io.BytesIO()
    np.savez(buffer, done=done, chunks=len(draws), **arrays)
    write_whole(file, buffer.getvalue())


def load_chain(file: Path | None, state: Any) -> tuple[Any, list, int]:
    """Return the state, draws and number of steps saved in a file, or those of a new chain."""
    if file is None or not file.exists():
        return state, [], 0
    with np.load(file) as saved:
        leaves = [saved[f"a{i}"] for i in range(len(saved.files) - 2)]
        done, chunks = int(saved["done"]), int(saved["chunks"])
    treedef = jax.tree.structure((state, [record(state)] * chunks))
    old, draws = jax.tree.unflatten(treedef, leaves)
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), old, state), draws, done
