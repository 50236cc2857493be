"""Checks of what a fit is asked for, and the warnings that come with its result."""

import numpy as np

from ...models import Cohort, LDSParams, Penalty
from ...models.arguments import whole
from ...models.linalg import least_correlation
from ..constraints import Constraints


def check_request(cohort: Cohort, n_states: int, constraints: Constraints) -> None:
    """Raise unless a fit of this size can be learned from the cohort under the constraints."""
    whole("n_states", n_states)
    constraints.check(cohort, n_states)
    if constraints.free("A") and (np.asarray(cohort.lengths) < 2).all():
        raise ValueError(
            "every sequence has a single step, which says nothing on A; hold A, or give longer ones"
        )
    seen = np.atleast_1d(np.asarray(cohort.mask).any(axis=(0, 1)))
    unseen = [c for c, yes in zip(cohort.channels, seen, strict=True) if not yes]
    if unseen and (constraints.free("C") or constraints.free("R")):
        raise ValueError(
            f"channel {unseen[0]!r} is entirely missing: nothing can be learned of it; leave it out"
        )
    if n_states > cohort.n_observed:
        raise ValueError(
            f"n_states is {n_states}; the cohort has only {cohort.n_observed} observed cells"
        )


def warnings_of(params: LDSParams, prior: Penalty, constraints: Constraints) -> tuple[str, ...]:
    """Return warnings about the result of a fit."""
    found = []
    ratio = scale_ratio(params)
    if not prior.is_flat and constraints.free("Q") and ratio > 1e3:
        found.append(
            f"the scales of single states drift apart (ratio {ratio:.1e}): the "
            "penalty on A can be lowered without end by rescaling states; Q='unit diagonal' or "
            "Q='identity' makes the problem well posed"
        )
    if constraints.free("R") and _sees_no_error(params):
        found.append(
            "R is nearly singular: the model sees no measurement error in some combination of channels, as on "
            "interpolated, rounded or calculated values; likelihoods of new data may be far off. Gaps left missing, "
            "fewer states or a diagonal R may help"
        )
    finite = np.isfinite(np.asarray(params.A)).all()
    radius = np.abs(np.linalg.eigvals(params.A)).max() if finite else np.nan
    if radius > 1:
        found.append(f"A is not stable: its spectral radius is {radius:.3f}")
    return tuple(found)


def warnings_of_input(cohort: Cohort, constraints: Constraints, given: bool) -> tuple[str, ...]:
    """Return warnings about the input of a fit; `given` says whether the user gave the starting values."""
    found = []
    for name, y, seen in zip(
        cohort.channels, np.moveaxis(cohort.y, -1, 0), np.moveaxis(cohort.mask, -1, 0), strict=True
    ):
        if not seen.any():
            continue
        mean, sd = np.mean(y[seen]), np.std(y[seen])
        if abs(mean) > 5 * sd:
            found.append(
                f"channel {name!r} has mean {mean:.3g} and sd {sd:.3g}, and the model no intercept: "
                "fit cohort.standardize()"
            )
            break
    if "C" in constraints.hold and not given:
        found.append(
            "C is held where the starting values put it: entries of A mean something where a C that you know is held "
            "(init=LDSParams(...))"
        )
    return tuple(found)


def _sees_no_error(params: LDSParams) -> bool:
    """Tell whether R is near singular, or hardly any of a channel's variance at the first step is error."""
    C, V1 = np.asarray(params.C), np.asarray(params.V1)
    signal = np.diagonal(C @ V1 @ C.T)
    error = np.diagonal(params.R)
    return bool(least_correlation(params.R) < 1e-5 or (error < 1e-5 * signal).any())


def scale_ratio(params: LDSParams) -> float:
    """Return the largest over the smallest standard deviation of the noise of a state."""
    scales = np.sqrt(np.diagonal(params.Q))
    scales = scales[scales > 0]  # states without noise have none
    return float(scales.max() / scales.min()) if scales.size else 1.0
