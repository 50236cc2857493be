"""Chains in files, saved after each chunk, so that an interrupted run goes on where it stopped."""

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...models.files import write_whole
from .kernel import record


def save_chain(file: Path | None, chain: int, state: Any, draws: list, done: int) -> None:
    """Write which chain it is, its state, draws and number of steps to a file, if one is given."""
    if file is None:
        return
    leaves = jax.tree.leaves((state, draws))
    arrays: dict[str, Any] = {f"a{i}": np.asarray(x) for i, x in enumerate(leaves)}
    buffer = io.BytesIO()
    np.savez(buffer, chain=chain, done=done, chunks=len(draws), **arrays)
    write_whole(file, buffer.getvalue())


def load_chain(file: Path | None, chain: int, state: Any) -> tuple[Any, list, int]:
    """Return the state, draws and number of steps saved in a file, or those of a new chain; `state` is its start.

    Raise an error that names the file if it is damaged, or of another chain.
    """
    if file is None or not file.exists():
        return state, [], 0
    try:
        with open(file, "rb") as raw, np.load(raw, allow_pickle=False) as saved:
            found = {name: saved[name] for name in saved.files}
        own, done, chunks = (int(found.pop(name)) for name in ("chain", "done", "chunks"))
        treedef = jax.tree.structure((state, [record(state)] * chunks))
        old, draws = jax.tree.unflatten(treedef, [found[f"a{i}"] for i in range(len(found))])
        shapes = [[np.shape(x) for x in jax.tree.leaves(tree)] for tree in (old, state)]
        if shapes[0] != shapes[1]:
            raise ValueError("its state has another shape")
    except Exception as error:  # zipfile raises errors of many kinds
        raise ValueError(
            f"{str(file)!r} is damaged, or of another version ({error}); delete it: the chain then begins anew"
        ) from error
    if own != chain:
        raise ValueError(
            f"{str(file)!r} is of chain {own}, and stands where chain {chain} should be; put it back, or delete it"
        )
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), old, state), draws, done
