"""Chains, each in a thread of its own (JAX releases Python's lock).

A chain has a warm-up of two stages: the first with the masses of the normal approximation at the posterior's centre,
the second with masses from the draws of the first. Spike and slab includes every entry in the first.
"""

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

from ...models.arguments import whole
from .centre import find_centre, jittered
from .checkpoint import load_chain, save_chain
from .kernel import CHUNK, Settings, sampler, shrunk_covariance
from .sweep import all_included, quadratic_model, spikes_of
from .target import Free, Target, constrained


class Chains(NamedTuple):
    """The draws of all chains."""

    sites: dict[str, np.ndarray]  # free parameters and other sites, (chains, draws, ...)
    stats: dict[str, np.ndarray]  # (chains, draws)
    step_size: Real[np.ndarray, " chains"]
    interrupted: bool


def raw_key(key) -> Array:
    """Return a key as an array of numbers, which can be saved."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        key = jax.random.key(whole("key", key, 0, 2**63 - 1))
    try:
        key = jnp.asarray(key)
        jax.random.split(key)
    except (TypeError, ValueError) as error:
        raise TypeError(f"key is {key!r}; give jax.random.key(0), or a whole number") from error
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
    free, warm = settings.free, settings.num_warmup
    target = all_included(target)
    centre = find_centre(target, free)
    keys = jax.random.split(key, (num_chains, 3))
    init, advance = sampler(settings)
    dtype = target.params.A.dtype

    # of the normal approximation: from the draws of one chain it would be too noisy
    spikes = spikes_of(target)
    model = quadratic_model(centre.z, centre.covariance, target) if spikes else None

    def begun(key, z, covariance, sweeping):
        return init(key, z, jnp.asarray(covariance, dtype), sweeping, model, target)

    def first(key):
        for shrink in (1.0, 0.3, 0.1, 0.01, 0.0):
            state = begun(key[1], jittered(key[0], centre, shrink), centre.covariance, False)
            if np.isfinite(float(state.nuts.potential_energy)):
                return state
        raise ValueError("the density is not finite where the chains would start, near the fit")

    starts = [first(key) for key in keys]
    # compiled here, in one thread: tracing a NumPyro model in several threads is not safe
    jax.block_until_ready(advance(starts[0], 0, target))
    stop = threading.Event()
    total = 2 * warm + num_samples

    def chain(c: int):
        file = None if folder is None else folder / f"chain{c}.npz"
        state, draws, done = load_chain(file, c, starts[c])
        advanced(done)
        while done < total and not stop.is_set():
            limit = next(end for end in (warm, 2 * warm, total) if done < end)
            n = min(CHUNK, limit - done)
            state, trace = advance(state, n, target)
            trace = jax.tree.map(lambda x, n=n: np.asarray(x)[:n], trace)
            if done < warm or done >= 2 * warm:
                draws.append(trace)
            done += n
            if done == warm:
                covariance = centre.covariance
                if settings.adapt_mass:
                    early = jax.tree.map(lambda *x: np.concatenate(x)[warm // 4 :], *draws)[0]
                    covariance = shrunk_covariance(early, covariance)
                state = begun(keys[c, 2], state.nuts.z, covariance, bool(target.given))
                draws = []
            save_chain(file, c, state, draws, done)
            advanced(n)
        return state, draws if done >= 2 * warm else []

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
    n = min(sum(len(d[2]["energy"]) for d in draws) for _, draws in results)
    if n == 0:
        raise KeyboardInterrupt("interrupted before the first draws")
    joined = [
        jax.tree.map(lambda *x: np.concatenate(x)[:n], *draws) if draws else None
        for _, draws in results
    ]
    unconstrained, given, stats = jax.tree.map(lambda *x: np.stack(x), *joined)
    return Chains(
        sites=constrained(unconstrained, given, target, free),
        stats=stats,
        step_size=np.array([float(s.nuts.adapt_state.step_size) for s, _ in results]),
        interrupted=interrupted,
    )
