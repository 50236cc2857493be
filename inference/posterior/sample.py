"""Sampling the posterior around a fit, with the result as ArviZ's object."""

import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution
from tqdm.auto import tqdm

from ...models import Cohort, GammaLaplace, LDSParams, Prior, prepare, total_log_likelihood
from ...models.arguments import probability, whole
from ...models.files import fingerprint, run_folder
from ...models.priors import InputSpikes
from ..result import FitResult
from .chains import raw_key, run_chains
from .dataset import build
from .free import (
    check_identified,
    checked_free,
    default_free,
    framed,
    site_prior,
    site_priors,
)
from .kernel import Settings
from .target import Target, moving


def sample_posterior(
    key: Array,
    cohort: Cohort,
    fit: FitResult,
    *,
    free: Sequence[str] | None = None,
    prior: Prior | None = None,
    priors: Mapping[str, Any] | None = None,
    num_warmup: int = 300,
    num_samples: int = 1000,
    num_chains: int = 4,
    num_predictive: int = 50,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    adapt_mass: bool = True,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> Any:
    """Sample the posterior of `lds_model` around a fit: of all parameters that the basis allows, with β unknown.

    - `free` names the parameters that are sampled; the others are held at the fit. By default all that the fit learned
      (see `default_free`), in the shapes that it kept. With ("A",) the rest is taken for known: intervals are
      conditional on the fit, and too narrow.
    - `prior` on A is by default the fit's own with β unknown (`GammaLaplace.like`), so that a β which was chosen for
      another purpose does not decide; `fit.prior` is the one that was maximised. `SpikeSlab()` has mass at zero.
    - `priors` replaces those of the other free parameters: the fit's, or weak ones where it had none (and for B, where
      the fit had a Laplace prior and no `prior` is given). `{"B": SpikeSlab()}` has mass at zero there too.
    - Chains start near the mode, with its curvature as masses; with `adapt_mass` they change to masses from their own
      draws after half of the warm-up.
    - `num_predictive` replicated cohorts are drawn for each chain.
    - `progress` shows a bar. By default it comes after half a minute, where there is more than that to wait for.
    - With a `folder` every chain is saved there as it goes: the same call goes on after an interruption, and gives the
      same draws as one that was never interrupted. Ctrl-C returns the draws made so far.

    Returns ArviZ's object (InferenceData or DataTree), groups posterior, sample_stats, log_likelihood (by sequence),
    posterior_predictive, prior, prior_predictive, observed_data and constant_data (which holds the fit).
    """
    num_warmup, num_samples = whole("num_warmup", num_warmup), whole("num_samples", num_samples, 4)
    num_chains, num_predictive = (
        whole("num_chains", num_chains),
        whole("num_predictive", num_predictive, 0),
    )
    max_tree_depth = whole("max_tree_depth", max_tree_depth)
    target_accept = probability("target_accept", target_accept)
    _check_fit(cohort, fit)
    asked, as_fitted = free is not None, prior is not None
    free = default_free(fit) if free is None else checked_free(free, fit)
    prior, priors = GammaLaplace.like(fit.prior) if prior is None else prior, dict(priors or {})
    n_directions = check_identified(fit, free, prior, priors, asked=asked)
    own = {"A": priors["A"]} if "A" in priors and "A" in free else {}
    params = LDSParams(*(jnp.asarray(x) for x in fit.params))
    target = Target(
        cohort,
        prepare(cohort, params.A.dtype, n_states=params.n_states),
        site_prior(fit, prior, priors),
        site_priors(cohort, fit, free, priors, as_fitted) | own,
        params,
    )
    half = (num_warmup + 1) // 2
    moves = moving(free, target)
    target = framed(target, moves, fit, n_directions)
    settings = Settings(moves, half, target_accept, max_tree_depth, bool(adapt_mass))
    keys = jax.random.split(raw_key(key), 3)
    folder = _checked_folder(
        folder, keys, cohort, fit, prior, target.priors, settings, num_samples, num_chains
    )

    # tqdm's own environment variables (TQDM_DISABLE=1) count where nothing is asked for
    shown: dict[str, Any] = {"delay": 30} if progress is None else {"disable": not progress}
    bar = tqdm(total=num_chains * (2 * half + num_samples), desc="posterior", unit="it", **shown)
    lock = threading.Lock()

    def advanced(n: int) -> None:
        with lock:
            bar.update(n)

    try:
        chains = run_chains(keys[0], target, settings, num_samples, num_chains, folder, advanced)
    finally:
        bar.close()
    if chains.stats["energy"].shape[1] < 4:
        raise KeyboardInterrupt("interrupted after fewer than 4 draws of each chain")
    return build(keys[1:], chains, target, settings, fit, prior, n_directions, num_predictive)


def _check_fit(cohort: Cohort, fit: FitResult) -> None:
    """Raise unless `fit` was fitted to this cohort; warn if it has not converged."""
    if not isinstance(fit, FitResult):
        raise TypeError(f"fit is a {type(fit).__name__}; give what fit_map or fit_em returns")
    d = fit.params.n_channels
    if d != cohort.n_channels:
        raise ValueError(f"the fit is of {d} channels, the cohort has {cohort.n_channels}")
    here = float(total_log_likelihood(fit.params, cohort))
    tolerance = 1e-6 if fit.params.A.dtype == jnp.float64 else 1e-3
    if abs(here - fit.log_likelihood) > tolerance * (1 + abs(here)):
        raise ValueError(
            f"the fit was made on another cohort: its log-likelihood is {fit.log_likelihood:.6g}, and {here:.6g} "
            "on this one; fit this cohort first"
        )
    if not fit.converged:
        warnings.warn(
            f"the fit has not converged ({fit.reason}): what is held is held at values that are not the MAP's",
            stacklevel=3,
        )


def _checked_folder(folder, key, cohort, fit, prior, priors, settings, num_samples, num_chains):
    """Return the folder of a run, or None; raise if the folder holds another run."""
    if folder is None:
        return None
    run = {
        "key": fingerprint(key),
        "cohort": fingerprint(cohort),
        "fit": fingerprint(fit.params),
        "prior": json.dumps(prior.to_dict()),
        "priors": str({name: describe_prior(prior) for name, prior in priors.items()}),
        "settings": str(tuple(settings)),
        "num_samples": num_samples,
        "num_chains": num_chains,
    }
    return run_folder(folder, run)


def describe_prior(prior: Any) -> str:
    """Return the kind of a distribution and a hash of its arrays, by their names.

    As a pytree it would have them in the order of a set, which is another one in the next process.
    """
    if isinstance(prior, InputSpikes):
        return f"{json.dumps(prior.prior.to_dict())} {fingerprint(prior.scale)} {prior.columns}"
    arrays = {}
    for name in sorted(type(prior).gather_pytree_data_fields()):
        x = getattr(prior, name, None)
        arrays[name] = describe_prior(x) if isinstance(x, Distribution) else fingerprint(x)
    return f"{type(prior).__name__} {arrays}"
