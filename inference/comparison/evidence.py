"""What the data added to the prior, for each entry of A, and the verdict on what the MAP says of it.

A posterior is prior and data together: an entry that it calls zero may be one of which the data say nothing. Here the
posterior is set against the prior that it was sampled with.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Real

from ...models import GammaLaplace, Prior, SpikeSlab

VERDICTS = ("supported", "contradicted", "undecided", "prior only", "not judged")
_PRIOR_DRAWS = 4000
_WITHIN = 0.9  # probability of the intervals whose widths are compared


class Added(NamedTuple):
    """What the data added, (l, l) each for A and (l, p) for B; NaN where it cannot be known."""

    bayes_factor_zero: Real[np.ndarray, "l k"]  # by what the data multiply the odds of zero
    p_zero: Real[np.ndarray, "l k"]
    contraction: Real[np.ndarray, "l k"]


def definition(odds: float, contraction: float) -> str:
    """Return the sentences that say what the verdicts mean."""
    return (
        f"What the MAP says of an entry, zero or not, is supported if the data make its odds at least {odds:g} times "
        f"those of the prior (the Bayes factor), contradicted if at most 1/{odds:g} times. In between it is prior only "
        f"if the data have hardly narrowed the entry (contraction below {contraction:g}), else undecided. The "
        f"contraction is 1 - (w / w0)², w and w0 the widths of the central {_WITHIN:.0%} intervals of posterior and "
        "prior: 0 if the data say nothing, near 1 if they say all. An entry that the prior leaves free or forces, or "
        "whose prior has no known density, is not judged."
    )


def prior_draws(prior: Prior | None, n_states: int) -> np.ndarray | None:
    """Draw A from its prior, (n, l, l), the same at every call; None if it cannot be drawn from.

    Free entries have a typical penalty here: they only keep others company, and nothing is said of them.
    """
    if prior is None or getattr(prior, "is_flat", False):
        return None
    if not prior.is_proper:
        if not hasattr(prior, "proper"):
            return None
        prior = prior.proper(n_states)  # type: ignore[attr-defined]
    try:
        found = prior.sample(jax.random.key(0), n_states, (_PRIOR_DRAWS,))  # type: ignore[attr-defined]
    except (AttributeError, NotImplementedError):
        return None
    return np.asarray(found, float)


def added(draws: np.ndarray, prior: Prior | None, before: np.ndarray | None) -> Added:
    """Return what the data added, from draws (n, l, l) of posterior and prior (`before`).

    - The Bayes factor compares a model with the entry at zero with one where it is not, all else being unknown. Of β
      or ω, which the entries share, others may tell much: that is no evidence on this one, and is divided out. For a
      prior with a density it is the ratio of Savage and Dickey; for spike and slab the odds of zero among the draws
      over those that the other entries give.
    - p_zero is, for spike and slab, the share of draws that are zero; for a prior with a density, which has no mass at
      zero, BF / (1 + BF): the probability of zero for one who before the data gave it as much as the rest together.

    Zero means: at the centre of the prior.
    """
    l = draws.shape[-1]
    unknown = np.full((l, l), np.nan)
    if prior is None:
        return Added(unknown, unknown, unknown)
    known = _has_prior(prior, l)
    narrowed = unknown if before is None else np.where(known, contraction(draws, before), np.nan)
    if isinstance(prior, SpikeSlab):
        zero = prior.at_center(draws)
        return Added(odds_of_zero(zero, prior, prior.penalised(l)), zero.mean(0), narrowed)
    M = prior.center_of(l)
    if isinstance(prior, GammaLaplace):
        factor = _with_beta_unknown(draws, prior)
    else:
        flattened = None if before is None else partial(smoothed, before - M)
        factor = savage_dickey(draws - M, prior.density_at_center(l), flattened)
    return Added(factor, np.where(prior.forced(l), 1.0, factor / (1 + factor)), narrowed)


def _with_beta_unknown(draws: np.ndarray, prior: GammaLaplace) -> np.ndarray:
    """Return the Bayes factor of zero, (l, l), for a prior given β.

    The draws have the mean of 1/β given A as their weights: with few entries 1/β itself has no variance. The prior is
    drawn given draws of β that belong to those of A.
    """
    l = draws.shape[-1]
    M, X = prior.center_of(l), prior_draws(prior.base, l)
    few = draws[np.linspace(0, len(draws) - 1, _PRIOR_DRAWS).round().astype(int)]
    again = 1 / np.asarray(prior.drawn_after(jax.random.key(1), few)["beta"], float)
    scale = np.asarray(prior.mean_scale(draws), float)
    flattened = None
    if X is not None:
        flattened = partial(smoothed, (X - M) * again[:, None, None], weight=again)
    return savage_dickey(draws - M, prior.base.density_at_center(l), flattened, scale)


def odds_of_zero(zero: np.ndarray, prior: SpikeSlab, can: np.ndarray) -> np.ndarray:
    """Return the Bayes factor of zero from the zeros of draws (n, l, l) of spike and slab; NaN where none `can` be.

    Given the m - 1 other entries, k of them included, the odds of zero are (b + m - 1 - k) / (a + k). Each draw counts
    as one over its part of them, which leaves what the entry's own data say; half a draw is added to either side.
    """
    included = ~zero & can
    k = included.sum((1, 2), keepdims=True) - included
    rest = np.maximum(can.sum() - 1 - k, 0)
    weights = 1 / (prior.b + rest), 1 / (prior.a + k)
    at, off = (
        (w * where).sum(0) + 0.5 * w.mean(0)
        for w, where in zip(weights, (zero, ~zero), strict=True)
    )
    return np.where(can, at / off, np.nan)


def savage_dickey(D: np.ndarray, density, flattened: Any = None, weight: Any = 1.0) -> np.ndarray:
    """Return the density of the draws D (n, l, l) at 0 over the prior's, `density` (l, l).

    The density of the draws is a kernel estimate with normal kernels and Silverman's robust bandwidth,
    h = 0.9 min(sd, IQR / 1.34) n^(-1/5), of each entry. Prior and posterior have a peak at 0 which such a kernel
    flattens. `flattened(h)` is the density of the prior at 0 under the same kernel: the peak cancels, and what is left
    to be smooth on the scale of h is the likelihood.

    Where the prior of an entry depends on an unknown β, its density at 0 is that for β = 1, draws have the weight 1/β,
    and `flattened` is of draws given the β of the posterior: the ratio as Verdinelli and Wasserman (1995) corrected it.
    """
    low, high = np.quantile(D, [0.25, 0.75], axis=0)
    sd, robust = D.std(0, ddof=1), (high - low) / 1.34
    h = 0.9 * np.where(robust > 0, np.minimum(sd, robust), sd) * len(D) ** -0.2
    known = np.isfinite(density) & (h > 0)
    h = np.where(known, h, 1.0)
    share = 1.0
    if flattened is not None:
        share = np.minimum(flattened(h) / density, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, smoothed(D, h, weight) / (density * share), np.nan)


def contraction(draws: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return 1 - (w / w0)² for the widths of central intervals of draws (n, ...) of posterior and prior.

    For normal distributions this is one less the ratio of their variances; a prior with heavy tails has no variance.
    It is below 0 where the posterior is the wider one.
    """
    ends = [0.5 - _WITHIN / 2, 0.5 + _WITHIN / 2]
    w, w0 = (np.ptp(np.quantile(x, ends, axis=0), axis=0) for x in (draws, before))
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - np.where((w == 0) & (w0 == 0), 1.0, w / w0) ** 2


def verdicts(
    map_zero: np.ndarray, found: Added, odds: float, least: float, judged: Any = True
) -> np.ndarray:
    """Return one of VERDICTS for each entry, (l, l); `least` is the contraction below which the prior speaks."""
    with np.errstate(divide="ignore", over="ignore"):
        claim = np.where(map_zero, found.bayes_factor_zero, 1 / found.bayes_factor_zero)
    conditions = [
        np.isnan(claim) | ~np.broadcast_to(judged, claim.shape),
        claim >= odds,
        claim <= 1 / odds,
        found.contraction < least,
    ]
    names = ["not judged", "supported", "contradicted", "prior only"]
    return np.select(conditions, names, "undecided")


def _has_prior(prior: Prior, n_states: int) -> np.ndarray:
    """Tell which entries have a prior that is neither flat nor a point."""
    free = np.zeros((n_states, n_states), bool)
    if not prior.is_proper:
        free = ~prior.penalised(n_states)  # type: ignore[attr-defined]
    return ~free & ~prior.forced(n_states)


def smoothed(D: np.ndarray, h: np.ndarray, weight: Any = 1.0) -> np.ndarray:
    """Return the density at 0 of weighted draws (n, l, l), smoothed by normal kernels of widths h (l, l)."""
    heights = np.exp(-0.5 * (D / h) ** 2) / (h * np.sqrt(2 * np.pi))
    return (heights * np.reshape(weight, (-1, 1, 1))).mean(0)
