"""Chains of NUTS, started at the MAP, each in a thread of its own (JAX releases Python's lock)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Real

from .checkpoint import load_chain, save_chain
from .kernel import CHUNK, Settings, sampler
from .target import Free, Target, constrained, inverse_mass, jittered, start


class Chains(NamedTuple):
    """The draws of all chains."""

    sites: dict[str, np.ndarray]  # free parameters and other sites, (chains, draws, ...)
    stats: dict[str, np.ndarray]  # (chains, draws)
    step_size: Real[np.ndarray, " chains"]
    interrupted: bool


def raw_key(key) -> Array:
    """Return a key as an array of numbers, which can be saved."""
    key = jnp.asarray(key)
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def run_chains(
    key: Array,
    target: Target,
    settings: Settings,
    num_samples: int,
    num_chains: int,
    folder: Path | None,
    advanced: Callable[[int], None],
) -> Chains:
    """Run all chains, each in a thread of its own; `advanced(n)` is called after n more steps.

    With a `folder` each chain is saved there after each chunk, and goes on from there when it is run again. Ctrl-C lets
    every chain end its chunk and returns the draws that all chains have.
    """
    free = settings.free
    z = start(target, free)
    scale = inverse_mass(z, target, free)
    keys = jax.random.split(key, (num_chains, 2))
    init, advance = sampler(settings)
    starts = [init(k[1], jittered(k[0], z, scale, target, free), scale, target) for k in keys]
    # compiled here, in one thread: tracing a NumPyro model in several threads is not safe
    jax.block_until_ready(advance(starts[0], 0, target))
    stop = threading.Event()
    total = settings.num_warmup + num_samples

    def chain(c: int):
        file = None if folder is None else folder / f"chain{c}.npz"
        state, draws, done = load_chain(file, starts[c])
        advanced(done)
        while done < total and not stop.is_set():
            limit = settings.num_warmup if done < settings.num_warmup else total
            n = min(CHUNK, limit - done)
            state, trace = advance(state, n, target)
            trace = jax.tree.map(lambda x, n=n: np.asarray(x)[:n], trace)
            if done >= settings.num_warmup:
                draws.append(trace)
            done += n
            save_chain(file, state, draws, done)
            advanced(n)
        return state, draws

    with ThreadPoolExecutor(num_chains) as pool:
        jobs = [pool.submit(chain, c) for c in range(num_chains)]
        try:
            for job in as_completed(jobs):
                job.result()
        except KeyboardInterrupt:
            stop.set()
        except BaseException:
            stop.set()
            raise
        results = [job.result() for job in jobs]
    return _joined(results, target, free, stop.is_set())


def _joined(results: list, target: Target, free: Free, interrupted: bool) -> Chains:
    """Return the chains together, cut to the number of draws that all of them have."""
    n = min(sum(len(d[1]["energy"]) for d in draws) for _, draws in results)
    if n == 0:
        raise KeyboardInterrupt("interrupted before the first draws")
    joined = [
        jax.tree.map(lambda *x: np.concatenate(x)[:n], *draws) if draws else None
        for _, draws in results
    ]
    unconstrained, stats = jax.tree.map(lambda *x: np.stack(x), *joined)
    return Chains(
        sites=constrained(unconstrained, target, free),
        stats=stats,
        step_size=np.array([float(s.adapt_state.step_size) for s, _ in results]),
        interrupted=interrupted,
    )
