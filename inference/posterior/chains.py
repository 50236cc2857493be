"""NUTS on `lds_model`: started at the MAP, scaled by the curvature there, in chunks that can be saved and resumed.

NumPyro's kernel is driven here directly, with data as arguments of one compiled program: runs of the same size do not
compile again, chains run in threads (JAX lets go of Python's lock), and a chain can stop at any chunk.
"""

import io
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc import hmc
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

from ...models import Cohort, HierarchicalPrior, LDSParams, Prepared, Prior, lds_model
from ...models.files import write_whole
from ...models.numpyro_model import sample_params
from ...models.priors.base import PriorDistribution

_CHUNK = 50  # draws between two looks from the host: progress, Ctrl-C, a saved state
_FIELDS = ("potential_energy", "energy", "num_steps", "accept_prob", "diverging")


class Target(NamedTuple):
    """What is sampled: the arguments of the model, a pytree, so that targets of one size share their programs."""

    cohort: Cohort  # for default priors: it gives the scale of each channel
    prepared: Prepared
    prior: Prior | HierarchicalPrior
    priors: dict[str, Any]
    params: LDSParams  # where it starts, and the values of what is held


class Free(NamedTuple):
    """What moves: hashable, so that it is static under jit."""

    names: tuple[str, ...]
    forced: tuple[int, ...] = ()  # entries of A that the prior forces to be zero, counted by rows


class Settings(NamedTuple):
    """What a compiled sampler is made for: hashable."""

    free: Free
    num_warmup: int
    target_accept: float
    max_tree_depth: int
    adapt_mass: bool


class Chains(NamedTuple):
    """Draws of every chain."""

    sites: dict[str, np.ndarray]  # parameters and what they are made of, (chains, draws, ...)
    stats: dict[str, np.ndarray]  # (chains, draws)
    step_size: np.ndarray  # (chains,)
    interrupted: bool


def model(free: Free, target: Target) -> None:
    """`lds_model` with all but what is free held."""
    arguments, options = model_arguments(free, target)
    lds_model(*arguments, **options, prepared=target.prepared)


def prior_model(free: Free, target: Target) -> None:
    """Its parameters alone."""
    arguments, options = model_arguments(free, target)
    sample_params(*arguments, **options)


def model_arguments(free: Free, target: Target) -> tuple[tuple, dict[str, Any]]:
    cohort, _, prior, priors, params = target
    l = params.n_states
    if free.forced:  # under jit the prior's beta is traced, and does not tell
        forced = np.zeros(l * l, bool)
        forced[list(free.forced)] = True
        priors = {"A": PriorDistribution(prior, l, forced.reshape(l, l)), **priors}
    held = {k: v for k, v in params._asdict().items() if k not in free.names}
    return (cohort, l, prior), {"priors": priors, "held": held}


def forced_zeros(free, prior, priors, n_states: int) -> tuple[int, ...]:
    """Entries of A, counted by rows, that its prior forces to be zero."""
    if "A" not in free or "A" in priors or not isinstance(prior, Prior):
        return ()
    return tuple(np.flatnonzero(prior.forced(n_states)).tolist())


def adapts_mass(free, prior) -> bool:
    """Whether the curvature at the start is not enough of a mass matrix."""
    return tuple(free) != ("A",) or isinstance(prior, HierarchicalPrior)


@partial(jax.jit, static_argnames="free")
def potential(z: dict[str, Array], target: Target, free: Free) -> Any:
    """-log density of the model at unconstrained values."""
    return potential_energy(partial(model, free), (target,), {}, z)


@partial(jax.jit, static_argnames="free")
def start(target: Target, free: Free) -> dict[str, Array]:
    """Unconstrained values of the sites at `target.params`."""
    values = {k: v for k, v in target.params._asdict().items() if k in free.names}
    if "A" in values and "A" not in target.priors:
        values |= target.prior.start(values.pop("A"))
    return unconstrain_fn(partial(prior_model, free), (target,), {}, values)


@partial(jax.jit, static_argnames="free")
def _hessian(z: dict[str, Array], target: Target, free: Free) -> Array:
    flat, unravel = ravel_pytree(z)
    return jax.hessian(lambda x: potential(unravel(x), target, free))(flat)


def inverse_mass(z: dict[str, Array], target: Target, free: Free) -> Array:
    """The inverse of the curvature of the potential at z, made positive definite.

    The penalty on A has a kink instead of a curvature; a Laplace entry counts with the inverse of its variance, β²/2 (a
    group of k with β²/(k + 1)).
    """
    H = np.array(_hessian(z, target, free), float)
    prior = target.prior
    if "A" in z and isinstance(prior, Prior):
        l = target.params.n_states
        k = 1 if prior._axis is None else l
        beta = np.broadcast_to(np.asarray(prior._blocks(jnp.zeros((l, l)))[0]), (l, l))
        beta = np.delete(
            beta.ravel(), np.array(free.forced, int)
        )  # forced zeros are no coordinates
        at = ravel_pytree({name: jnp.full_like(x, name == "A") for name, x in z.items()})[0]
        H[np.diag(np.asarray(at, bool))] += beta**2 / (k + 1)
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    size = np.abs(values)
    dtype = target.params.A.dtype
    least = 1e3 * float(jnp.finfo(dtype).eps)
    size = np.maximum(size, max(least * size.max(initial=0.0), least))
    return jnp.asarray((vectors / size) @ vectors.T, dtype)


class Sampler(NamedTuple):
    """Two compiled programs for targets of one size."""

    init: Callable[..., Any]  # (key, z, inverse_mass, target) -> state
    advance: Callable[..., Any]  # (state, n, target) -> state, draws of n <= _CHUNK steps


@lru_cache(maxsize=32)
def sampler(settings: Settings) -> Sampler:
    free, num_warmup, target_accept, max_tree_depth, adapt_mass = settings

    def potential_of(target):
        return lambda z: potential_energy(partial(model, free), (target,), {}, z)

    init_kernel, sample_kernel = hmc(potential_fn_gen=potential_of, algo="NUTS")

    @jax.jit
    def init(key, z, inverse_mass, target):
        return init_kernel(
            z,
            num_warmup,
            step_size=0.5,
            inverse_mass_matrix=inverse_mass,
            adapt_mass_matrix=adapt_mass,
            dense_mass=True,
            target_accept_prob=target_accept,
            max_tree_depth=max_tree_depth,
            model_args=(target,),
            rng_key=key,
        )

    @jax.jit
    def advance(state, n, target):
        def record(state):
            return state.z, {name: getattr(state, name) for name in _FIELDS}

        def body(i, carry):
            state, trace = carry
            state = sample_kernel(state, (target,))
            return state, jax.tree.map(lambda t, x: t.at[i].set(x), trace, record(state))

        empty = jax.tree.map(lambda x: jnp.zeros((_CHUNK, *x.shape), x.dtype), record(state))
        return jax.lax.fori_loop(0, n, body, (state, empty))

    return Sampler(init, advance)


def raw_key(key) -> Array:
    """A key as numbers, which can be saved."""
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
    """All chains, each in a thread of its own; `advanced(n)` is told of n more steps.

    With a `folder` each chain is saved there after each chunk, and goes on from there when it is run again. Ctrl-C lets
    every chain end its chunk and returns the draws that all chains have.
    """
    free = settings.free
    z = start(target, free)
    scale = inverse_mass(z, target, free)
    keys = jax.random.split(key, (num_chains, 2))
    init, advance = sampler(settings)
    starts = [init(k[1], _jittered(k[0], z, scale, target, free), scale, target) for k in keys]
    # compiled here, in one thread: tracing a NumPyro model is not safe in several
    jax.block_until_ready(advance(starts[0], 0, target))
    stop = threading.Event()
    total = settings.num_warmup + num_samples

    def chain(c: int):
        file = None if folder is None else folder / f"chain{c}.npz"
        state, draws, done = _load(file, starts[c])
        advanced(done)
        while done < total and not stop.is_set():
            limit = settings.num_warmup if done < settings.num_warmup else total
            n = min(_CHUNK, limit - done)
            state, trace = advance(state, n, target)
            trace = jax.tree.map(lambda x, n=n: np.asarray(x)[:n], trace)
            if done >= settings.num_warmup:
                draws.append(trace)
            done += n
            _save(file, state, draws, done)
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
    n = min(sum(len(d[1]["energy"]) for d in draws) for _, draws in results)
    if n == 0:
        raise KeyboardInterrupt("interrupted before the first draws")
    joined = [
        jax.tree.map(lambda *x: np.concatenate(x)[:n], *draws) if draws else None
        for _, draws in results
    ]
    unconstrained, stats = jax.tree.map(lambda *x: np.stack(x), *joined)
    return Chains(
        sites=_constrained(unconstrained, target, free),
        stats=stats,
        step_size=np.array([float(s.adapt_state.step_size) for s, _ in results]),
        interrupted=stop.is_set(),
    )


def _jittered(key, z, scale, target, free):
    """A draw from the normal approximation at z, nearer to z if the density is not finite there."""
    flat, unravel = ravel_pytree(z)
    noise = jnp.linalg.cholesky(scale) @ jax.random.normal(key, flat.shape, flat.dtype)
    for shrink in (1.0, 0.3, 0.1, 0.01, 0.0):
        near = unravel(flat + shrink * noise) if shrink else z
        if np.isfinite(float(potential(near, target, free))):
            return near
    raise ValueError("the density is not finite where the chains would start, at the fit")


def _constrained(z: Mapping[str, np.ndarray], target: Target, free) -> dict[str, np.ndarray]:
    """Values of all sites, deterministic ones among them; what is held is left out."""
    flat = {k: jnp.asarray(x).reshape(-1, *x.shape[2:]) for k, x in z.items()}
    shape = next(iter(z.values())).shape[:2]
    return {
        k: np.asarray(x).reshape(*shape, *x.shape[1:])
        for k, x in _sites(flat, target, free).items()
    }


@partial(jax.jit, static_argnames="free")
def _sites(flat, target, free):
    def one(z):
        values = constrain_fn(
            partial(prior_model, free), (target,), {}, z, return_deterministic=True
        )
        return {k: v for k, v in values.items() if k in free.names or k not in LDSParams._fields}

    return jax.vmap(one)(flat)


def _save(file: Path | None, state, draws, done: int) -> None:
    if file is None:
        return
    leaves = jax.tree.leaves((state, draws))
    arrays: dict[str, Any] = {f"a{i}": np.asarray(x) for i, x in enumerate(leaves)}
    buffer = io.BytesIO()
    np.savez(buffer, done=done, chunks=len(draws), **arrays)
    write_whole(file, buffer.getvalue())


def _load(file: Path | None, state):
    """The state, draws and number of steps saved in a file, or those of a new chain."""
    if file is None or not file.exists():
        return state, [], 0
    with np.load(file) as saved:
        leaves = [saved[f"a{i}"] for i in range(len(saved.files) - 2)]
        done, chunks = int(saved["done"]), int(saved["chunks"])
    empty = state.z, {name: getattr(state, name) for name in _FIELDS}
    treedef = jax.tree.structure((state, [empty] * chunks))
    old, draws = jax.tree.unflatten(treedef, leaves)
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), old, state), draws, done
