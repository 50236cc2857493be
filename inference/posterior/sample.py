"""Sampling the posterior around a fit by NUTS, with the result as ArviZ's object."""

import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from tqdm.auto import tqdm

from ...models import (
    Cohort,
    LDSParams,
    Prior,
    prepare,
    total_log_likelihood,
)
from ...models.arguments import probability, whole
from ...models.files import fingerprint, run_folder
from ...models.priors import Embedded
from ..constraints import COVARIANCES
from ..covariances import FULL
from ..identifiability import identifiability_report
from ..result import FitResult
from .chains import raw_key, run_chains
from .dataset import build
from .kernel import Settings, adapts_mass
from .target import Target, moving


def sample_posterior(
    key: Array,
    cohort: Cohort,
    fit: FitResult,
    *,
    free: Sequence[str] = ("A",),
    prior: Prior | None = None,
    priors: Mapping[str, Any] | None = None,
    num_warmup: int = 300,
    num_samples: int = 1000,
    num_chains: int = 4,
    num_predictive: int = 50,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    adapt_mass: bool | None = None,
    folder: str | os.PathLike | None = None,
    progress: bool = False,
) -> Any:
    """Sample the posterior by NUTS on `lds_model`, with the prior that the fit used, started at the fit.

    - `free` names the parameters that are sampled; the others are held at the fit. ("A",), the default, is the
      conditional posterior, whose mode is the MAP's A. Other parameters that are free have the priors of the fit, or
      `default_priors` where it had none, or those in `priors`.
    - `prior` replaces the fit's prior on A, by `GammaLaplace` (β unknown) or `Horseshoe`, for example.
    - The mass matrix is the curvature at the fit; `adapt_mass` adapts it during warm-up too (by default where
      more than A is free or the prior is hierarchical).
    - `num_predictive` replicated cohorts are drawn for each chain.
    - With a `folder` every chain is saved there as it goes: the same call goes on after an interruption, and gives the
      same draws as one that was never interrupted. Ctrl-C returns the draws made so far.

    Returns ArviZ's object (InferenceData or DataTree), groups posterior, sample_stats, log_likelihood (by sequence),
    posterior_predictive, prior, prior_predictive, observed_data and constant_data (which holds the fit).
    """
    free = _check_free(free)
    num_warmup, num_samples = whole("num_warmup", num_warmup), whole("num_samples", num_samples, 4)
    num_chains, num_predictive = (
        whole("num_chains", num_chains),
        whole("num_predictive", num_predictive, 0),
    )
    max_tree_depth = whole("max_tree_depth", max_tree_depth)
    target_accept = probability("target_accept", target_accept)
    _check_fit(cohort, fit)
    prior = fit.prior if prior is None else prior
    if fit.constraints.own_levels:
        _check_levels(free)
        prior = Embedded(prior, cohort.n_channels)
    priors = {**{k: p for k, p in fit.priors.items() if k in free}, **(priors or {})}
    params = LDSParams(*(jnp.asarray(x) for x in fit.params))
    _check_shapes(fit, free)
    n_directions = _check_identified(params, free, prior, priors)
    target = Target(cohort, prepare(cohort, params.A.dtype), prior, dict(priors), params)
    if adapt_mass is None:
        adapt_mass = adapts_mass(free, target)
    settings = Settings(moving(free, target), num_warmup, target_accept, max_tree_depth, adapt_mass)
    keys = jax.random.split(raw_key(key), 3)
    folder = _checked_folder(
        folder, keys, cohort, fit, prior, priors, settings, num_samples, num_chains
    )

    bar = tqdm(
        total=num_chains * (num_warmup + num_samples), disable=not progress, desc="NUTS", unit="it"
    )
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
    return build(keys[1:], chains, target, settings, fit, n_directions, num_predictive)


def _check_free(free: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the free parameters in their order; raise if there are none or one is unknown."""
    names = (free,) if isinstance(free, str) else tuple(free)
    if not names:
        raise ValueError("free is empty: with no free parameter there is nothing to sample")
    for name in names:
        if name not in LDSParams._fields:
            raise ValueError(f"free names {name!r}; it may name {', '.join(LDSParams._fields)}")
    return tuple(name for name in LDSParams._fields if name in names)


def _check_levels(free: tuple[str, ...]) -> None:
    """Raise if a parameter is to be sampled of which own levels of the sequences know a part."""
    bound = [name for name in free if name in ("C", "Q", "V1")]
    if bound:
        raise ValueError(
            f"free names {bound[0]!r}, and the fit has levels of the sequences' own, which know a part of it; free may "
            "name A, R and pi1"
        )


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


def _check_shapes(fit: FitResult, free: tuple[str, ...]) -> None:
    """Warn if a covariance that the fit kept in a shape of its own is to be sampled: NUTS samples it in full."""
    for name in free:
        if name in COVARIANCES and fit.constraints.covariance(name, fit.params) is not FULL:
            warnings.warn(
                f"the fit kept {fit.constraints}; NUTS samples {name} as a full covariance, which is another model",
                stacklevel=3,
            )


def _check_identified(params, free, prior, priors) -> int:
    """Return how many directions of change of basis are left, and warn of them; raise if the posterior is improper."""
    held = tuple(name for name in LDSParams._fields if name not in free)
    report = identifiability_report(params, held)
    if not report.n_directions:
        return 0
    if "A" in free and "A" not in priors and not prior.is_proper:
        raise ValueError(
            f"the prior {prior!r} is flat, and {report.n_directions} directions of change of basis are left: the "
            "posterior is improper; hold C, or give a prior with beta > 0"
        )
    warnings.warn(f"{report}\nThe entries of A will not mix, or mean little.", stacklevel=4)
    return report.n_directions


def _checked_folder(folder, key, cohort, fit, prior, priors, settings, num_samples, num_chains):
    """Return the folder of a run, or None; raise if the folder holds another run."""
    if folder is None:
        return None
    run = {
        "key": fingerprint(key),
        "cohort": fingerprint(cohort),
        "fit": fingerprint(fit.params),
        "prior": json.dumps(prior.to_dict()),
        "priors": str({k: f"{type(v).__name__} {fingerprint(v)}" for k, v in priors.items()}),
        "settings": str(tuple(settings)),
        "num_samples": num_samples,
        "num_chains": num_chains,
    }
    return run_folder(folder, run)
