"""The result of `sample_posterior` as ArviZ's object: aligned draws, and all that diagnostics and comparisons need."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax
from numpyro.infer import Predictive

from ...models import Cohort, LDSParams, Penalty, Prior, log_likelihood
from ...models.basis import moved
from ...models.files import fingerprint
from ...models.numpyro_model import inputs_of
from ...models.params import PARAMETERS
from ...models.priors.base import Symmetry
from ...models.simulation import sample_paths
from ..alignment import align, relabelling
from ..result import FitResult
from . import arviz_compat as az
from .basis_free import basis_free
from .chains import Chains
from .free import default_free, tells_apart
from .input_prior import described
from .kernel import Settings
from .sweep import SITES
from .target import Free, Target, model_arguments

_PRIOR_DRAWS = 200
_DIMS = {"included": ("state", "from_state"), "included_B": ("state", "input")}


def build(
    keys: Any,
    chains: Chains,
    target: Target,
    settings: Settings,
    fit: FitResult,
    prior: Prior,
    n_directions: int,
    num_predictive: int,
) -> Any:
    """Return ArviZ's object with the draws, aligned, and all that diagnostics and comparisons need."""
    cohort, params = target.cohort, target.params
    free = settings.free.names
    coords = az.coordinates(cohort, params.n_states)
    own = any(tells_apart(name, prior) for name, prior in target.priors.items())
    kind = "none" if own else relabelling(params, free, target.prior.symmetry)
    sites = dict(chains.sites)
    if kind != "none":
        sites |= _aligned(sites, target, kind)
    if "A" in sites and "A" not in target.priors:
        sites |= _of_the_prior(keys[1], sites, target)
    if "included_B" in sites:  # of all entries, those that are not there too
        sites["included_B"] = sites["B"] != 0
    full = {name: sites.get(name, np.asarray(x)) for name, x in params._asdict().items()}
    of_sequence = _log_likelihood(full, cohort, free)
    invariant = basis_free(full["A"], full["C"], full["V1"])
    posterior = {
        **{k: x for k, x in sites.items() if k not in SITES},
        # quantities of held parameters are constants, which no diagnostic can judge
        **{k: x for k, x in invariant.items() if x.ndim == 2 + len(az.DIMS.get(k, ()))},
        "log_likelihood_total": of_sequence.sum(-1),
    }
    attrs = {
        "inference_library": "sparse-lds",
        "free": " ".join(free),
        "n_states": params.n_states,
        "cohort": fingerprint(cohort),
        "prior": "" if "A" in target.priors else str(prior),
        "prior_json": "" if "A" in target.priors else json.dumps(prior.to_dict()),
        "prior_B_json": described(target.priors["B"]) if "B" in target.priors else "",
        "conditional": int(_is_conditional(fit, free)),
        "auxiliary": " ".join(target.prior.site_dims),
        "alignment": kind,
        "directions_left": n_directions,
        "max_tree_depth": settings.max_tree_depth,
        "interrupted": int(chains.interrupted),
        "fit_converged": int(fit.converged),
        "fit_reason": fit.reason,
    }
    y = np.where(cohort.mask, cohort.y, np.nan)
    known = {"lengths": cohort.lengths, **{f"map_{k}": v for k, v in params._asdict().items()}}
    if cohort.u is not None:
        known["u"] = cohort.u
    groups = {
        "posterior": az.dataset(
            posterior, coords, attrs=attrs, dims={**_DIMS, **target.prior.site_dims}
        ),
        "sample_stats": az.dataset(_sample_stats(chains), coords),
        "log_likelihood": az.dataset({"y": of_sequence}, coords, dims={"y": ("sequence",)}),
        "observed_data": az.dataset({"y": y}, coords, draws=False),
        "constant_data": az.dataset(known, coords, draws=False),
    }
    if num_predictive:
        n = chains.stats["energy"].shape[1]
        kept = np.unique(np.linspace(0, n - 1, min(num_predictive, n)).round().astype(int))
        groups["posterior_predictive"] = _replicated(keys[0], full, cohort, free, kept, coords)
        if "A" not in free or target.prior.is_proper:
            with suppress(NotImplementedError):  # for a prior that cannot be drawn from
                groups |= _prior_groups(keys[1], target, settings.free, coords)
    return az.assemble(groups)


def _is_conditional(fit: FitResult, free: Sequence[str]) -> bool:
    """Tell whether a parameter that could be sampled is held, and taken for known."""
    return bool(set(default_free(fit)) - {*free})


def _of_the_prior(key, sites: Mapping[str, np.ndarray], target: Target) -> dict[str, np.ndarray]:
    """Return what belongs to the draws of A by their prior: β where it was integrated out, γ of spike and slab."""
    A = sites["A"]
    found = {name: np.asarray(x) for name, x in target.prior.drawn_after(key, A).items()}
    if "included" in sites:
        found["included"] = A != target.prior.center_of(A.shape[-1])
    return found


def _sample_stats(chains: Chains) -> dict[str, np.ndarray]:
    """Return the statistics of NUTS under ArviZ's names."""
    stats = chains.stats
    return {
        "lp": -stats["potential_energy"],
        "energy": stats["energy"],
        "diverging": stats["diverging"],
        "n_steps": stats["num_steps"],
        "tree_depth": np.floor(np.log2(np.maximum(stats["num_steps"], 1))).astype(int) + 1,
        "acceptance_rate": stats["accept_prob"],
        "step_size": np.broadcast_to(chains.step_size[:, None], stats["energy"].shape),
    }


def _aligned(
    sites: Mapping[str, np.ndarray], target: Target, kind: Symmetry
) -> dict[str, np.ndarray]:
    """Return the draws, each relabelled to be nearest to the fit."""
    params = target.params
    shape = sites["A" if "A" in sites else "C"].shape[:2]
    full = {
        k: sites.get(k, np.broadcast_to(v, (*shape, *np.shape(v))))
        for k, v in params._asdict().items()
    }
    flat = {k: np.asarray(x, float).reshape(-1, *x.shape[2:]) for k, x in full.items()}
    W = align(flat["A"], flat["C"], params, kind)
    own = {k: x.reshape(-1, *x.shape[2:]) for k, x in sites.items() if k not in full}
    found = moved(LDSParams(**flat), W)._asdict() | target.prior.relabelled(own, W)
    return {k: x.reshape(*shape, *x.shape[1:]) for k, x in found.items() if k in sites}


def each_draw(f, full: Mapping[str, Any], free: Sequence[str], *extra):
    """Return f(params, *extra[i]) of every draw (n, ...) in turn; parameters held have no draws and are shared."""
    moving = {k: jnp.asarray(v) for k, v in full.items() if k in free}
    fixed = {k: jnp.asarray(v) for k, v in full.items() if k not in free}
    return lax.map(lambda x: f(LDSParams(**fixed, **x[0]), *x[1:]), (moving, *extra))


def _flat(full: Mapping[str, Any], free: Sequence[str], kept=slice(None)) -> dict[str, Any]:
    """Return draws (chains, draws, ...) as (n, ...)."""
    flat = {}
    for name, x in full.items():
        if name in free:
            x = np.asarray(x)[:, kept]
            x = x.reshape(-1, *x.shape[2:])
        flat[name] = x
    return flat


@partial(jax.jit, static_argnames="free")
def _log_likelihood_jit(full, cohort, free):
    """Return log p(y_n | Ω) of every draw, (n, N)."""
    return each_draw(lambda params: log_likelihood(params, cohort), full, free)


def _log_likelihood(full, cohort: Cohort, free) -> np.ndarray:
    """Return log p(y_n | Ω) of every draw, (chains, draws, N)."""
    shape = full[free[0]].shape[:2]
    found = _log_likelihood_jit(_flat(full, free), cohort, free)
    return np.asarray(found).reshape(*shape, -1)


@partial(jax.jit, static_argnames=("free", "N", "T"))
def _paths_jit(keys, full, free, N, T, u=None):
    """Draw observations for every draw, (n, N, T, d)."""
    return each_draw(lambda params, key: sample_paths(key, params, (N,), T, u)[1], full, free, keys)


def _cohorts(key, flat: Mapping[str, Any], cohort: Cohort, free) -> np.ndarray:
    """Draw a cohort of the same lengths for each of n draws of the free parameters, (n, N, T, d), NaN past the ends."""
    N, T, _ = cohort.y.shape
    keys = jax.random.split(key, len(flat[free[0]]))
    y = np.asarray(_paths_jit(keys, flat, free, N, T, inputs_of(cohort)))
    inside = np.arange(T) < np.asarray(cohort.lengths)[:, None]
    return np.where(inside[..., None], y, np.nan).astype(np.float32)


def _replicated(key, full, cohort: Cohort, free, kept, coords) -> xr.Dataset:
    """Draw cohorts of the same lengths, for the draws `kept` of each chain."""
    y = _cohorts(key, _flat(full, free, kept), cohort, free)
    return az.dataset({"y": y.reshape(-1, len(kept), *y.shape[1:])}, coords, draw=kept)


def _from_prior(key, target: Target, free: Free) -> dict[str, Any]:
    """Draw the free parameters, and what the prior on A has besides, from their priors, (n, ...)."""
    (_, l, prior), options = model_arguments(free, target)
    keys = dict(zip(free.names, jax.random.split(key, len(free.names)), strict=True))
    priors, shape = options["priors"], (_PRIOR_DRAWS,)
    found = {name: priors[name].sample(keys[name], shape) for name in free.names if name in priors}
    if "A" in free.names and "A" not in priors:
        if isinstance(prior, Penalty):
            found["A"] = prior.sample(keys["A"], l, shape)
        else:
            found |= Predictive(prior.site, num_samples=_PRIOR_DRAWS)(keys["A"], l)
    return found


def _prior_groups(key, target: Target, free: Free, coords) -> dict[str, xr.Dataset]:
    """Return draws from the prior, and cohorts drawn from them."""
    own, paths = jax.random.split(key)
    found = {k: np.asarray(x) for k, x in _from_prior(own, target, free).items()}
    params = target.params._asdict() | {k: x for k, x in found.items() if k in free.names}
    with np.errstate(over="ignore", invalid="ignore"):  # an A from a wide prior may explode
        y = _cohorts(paths, params, target.cohort, free.names)
    prior = {k: x[None] for k, x in found.items() if k not in (*SITES, "included", "included_B")}
    return {
        "prior": az.dataset(prior, coords, dims=target.prior.site_dims),
        "prior_predictive": az.dataset({"y": y[None]}, coords),
    }


def posterior_params(posterior: Any, n: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return all parameters, at most n draws (n, ...) of the free ones, spread evenly, and the names of those."""
    data, constant = az.group(posterior, "posterior"), az.group(posterior, "constant_data")
    free = tuple(str(data.attrs["free"]).split())
    chains, draws = data.sizes["chain"], data.sizes["draw"]
    total = chains * draws
    kept = np.unique(np.linspace(0, total - 1, min(n, total)).round().astype(int))
    full: dict[str, Any] = {}
    for name in PARAMETERS:
        if f"map_{name}" not in constant:
            continue  # B and D of a model without inputs
        if name in free:
            x = data[name].values
            full[name] = x.reshape(-1, *x.shape[2:])[kept]
        else:
            full[name] = constant[f"map_{name}"].values
    return full, free
