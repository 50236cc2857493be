"""Simulation-based calibration (Talts et al., 2018): does the sampler draw from the posterior that it claims?

Parameters are drawn from the prior, data from the parameters, and the true value is ranked among posterior draws. The
ranks are uniform if likelihood, prior and sampler are right together, and not uniform if one of them has a bug.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpyro.infer import Predictive
from scipy.stats import binom, chisquare, kstest
from tqdm.auto import tqdm

from ..inference.posterior.chains import raw_key, run_chains
from ..inference.posterior.kernel import Settings
from ..inference.posterior.target import Free, Target, moving, prior_model
from ..models import LDSParams, Prior, prepare, simulate


class Calibration(NamedTuple):
    """Ranks of the true values among posterior draws, with tests and figures of their uniformity."""

    ranks: pd.DataFrame  # a row for each simulation, a column for each scalar; 0 to n_draws
    n_draws: int

    def table(self, bins: int = 10) -> pd.DataFrame:
        """Return two tests of uniformity for each scalar: chi-square in equal bins, and Kolmogorov-Smirnov."""
        _check_bins(bins, self.n_draws)
        rows = {}
        for name in self.ranks:
            u = (self.ranks[name].to_numpy() + 0.5) / (self.n_draws + 1)
            counts = np.histogram(u, bins, (0.0, 1.0))[0]
            rows[name] = {
                "chi2_p": float(chisquare(counts).pvalue),
                "ks_p": float(kstest(u, "uniform").pvalue),
                "mean_rank": u.mean(),
            }
        return pd.DataFrame(rows).T

    def figure(self, bins: int = 10) -> Figure:
        """Draw histograms of the ranks, with the band that 95 of 100 bars of uniform ranks lie in."""
        _check_bins(bins, self.n_draws)
        names = list(self.ranks)
        columns = min(5, len(names))
        rows = -(-len(names) // columns)
        figure, axes = plt.subplots(
            rows, columns, figsize=(2.2 * columns, 1.7 * rows), layout="constrained", squeeze=False
        )
        n = len(self.ranks)
        low, high = binom.ppf([0.025, 0.975], n, 1 / bins)
        for axis, name in zip(axes.ravel(), names, strict=False):
            u = (self.ranks[name].to_numpy() + 0.5) / (self.n_draws + 1)
            axis.axhspan(low, high, color="0.9")
            axis.axhline(n / bins, color="0.6", lw=0.8)
            axis.hist(u, bins, (0.0, 1.0), color="C0", rwidth=0.9)
            axis.set_title(name, fontsize=8)
            axis.set(yticks=[], xticks=[0, 1])
        for axis in axes.ravel()[len(names) :]:
            axis.set_visible(False)
        figure.suptitle(
            f"Ranks of the truth among posterior draws, {n} simulations (grey: 95%)", fontsize=9
        )
        return figure


def _check_bins(bins: int, n_draws: int) -> None:
    """Raise unless the possible ranks fill the bins evenly."""
    if (n_draws + 1) % bins:
        raise ValueError(f"bins is {bins}; it must divide the {n_draws + 1} possible ranks evenly")


def calibrate(
    key,
    params: LDSParams,
    lengths: Sequence[int],
    prior: Prior,
    *,
    free: Sequence[str] = ("A",),
    priors: Mapping[str, Any] | None = None,
    inputs: Sequence[Any] | None = None,
    n_simulations: int = 200,
    n_draws: int = 99,
    thin: int = 5,
    num_warmup: int = 200,
    progress: bool = False,
) -> Calibration:
    """Return the ranks of every scalar of the free parameters; the other parameters are held at `params`.

    Every free parameter but A needs a prior in `priors`, one that does not depend on the data. A model with inputs
    needs `inputs`, an array (T_n, p) for each sequence, the same in every simulation.
    """
    missing = [name for name in free if name != "A" and name not in (priors or {})]
    if missing:
        raise ValueError(f"{missing[0]} is free and has no prior in priors")
    params = LDSParams(*(jnp.asarray(x) for x in params))
    ordered = tuple(name for name in params._fields if name in free)
    rows, rng = [], np.random.default_rng(np.asarray(raw_key(key)).ravel())
    for i in tqdm(range(n_simulations), disable=not progress, desc="calibration", unit="sim"):
        for_truth, for_start, for_data, for_chain = jax.random.split(jax.random.fold_in(key, i), 4)
        cohort = simulate(
            for_data, params, lengths, inputs=inputs
        ).cohort  # for its labels and lengths
        target = Target(cohort, prepare(cohort, params.A.dtype), prior, dict(priors or {}), params)
        names = moving(ordered, target)
        settings = Settings(names, (num_warmup + 1) // 2, 0.8, 10, True)
        truth = _from_prior(for_truth, target, names)
        full = params._replace(**{k: v for k, v in truth.items() if k in names.names})
        cohort = simulate(for_data, full, lengths, inputs=inputs).cohort
        # started at another draw of the prior: started at the truth, a sampler that does not move would pass
        other = _from_prior(for_start, target, names)
        start = params._replace(**{k: v for k, v in other.items() if k in names.names})
        target = target._replace(
            cohort=cohort, prepared=prepare(cohort, params.A.dtype), params=start
        )
        chains = run_chains(
            raw_key(for_chain), target, settings, n_draws * thin, 1, None, lambda n: None
        )
        row = {}
        for name in (*names.names, *({"included"} & set(truth))):  # γ of spike and slab
            draws = chains.sites[name][0, ::thin]
            rank = (draws < np.asarray(truth[name])).sum(0)
            ties = (draws == np.asarray(truth[name])).sum(0)  # exact zeros, for example
            rank = rank + rng.integers(0, ties + 1)
            for at in np.ndindex(rank.shape):
                if name in ("Q", "R", "V1") and at[0] < at[1]:
                    continue  # symmetric
                row[f"{name}[{', '.join(map(str, at))}]"] = rank[at]
        rows.append(row)
    return Calibration(pd.DataFrame(rows), n_draws)


@partial(jax.jit, static_argnames="free")
def _from_prior(key, target: Target, free: Free) -> dict[str, Any]:
    """Draw the parameters once from the prior."""
    found = Predictive(partial(prior_model, free), num_samples=1)(key, target)
    return {k: v[0] for k, v in found.items()}
