"""Arguments of a fit, checked at the door, and what a user should be told of its result."""

from collections.abc import Sequence

import numpy as np

from ...models import Cohort, Flat, LDSParams, Prior
from ...models.kalman.linalg import least_correlation
from .mstep import Floors, Spec

_Q = ("free", "unit diagonal", "identity")


def check_arguments(
    cohort: Cohort,
    n_states: int,
    prior: Prior,
    *,
    variant: str,
    hold,
    diagonal,
    Q: str,
    max_iter: int,
    tol: float,
    n_restarts: int,
) -> Spec:
    """What may move, or an error that names the argument and its value."""
    if isinstance(n_states, bool) or not isinstance(n_states, int | np.integer) or n_states < 1:
        raise ValueError(f"n_states is {n_states!r}; it must be a whole number, at least 1")
    if not isinstance(prior, Prior):
        raise TypeError(f"prior is {prior!r}; give Flat(), Laplace(beta) or GroupLaplace(beta, by)")
    if variant not in ("exact", "paper"):
        raise ValueError(f"variant is {variant!r}; it must be 'exact' or 'paper'")
    hold, diagonal = (hold,) if isinstance(hold, str) else tuple(hold), tuple(diagonal)
    for argument, names, known in (
        ("hold", hold, LDSParams._fields),
        ("diagonal", diagonal, Floors._fields),
    ):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument} names {name!r}; it may name {', '.join(known)}")
    if int(max_iter) != max_iter or max_iter < 1:
        raise ValueError(f"max_iter is {max_iter}; it must be a whole number, at least 1")
    if not tol >= 0:
        raise ValueError(f"tol is {tol}; it must be 0 or more")
    if "A" not in hold and (np.asarray(cohort.lengths) < 2).all():
        raise ValueError(
            "every sequence has a single step, which says nothing on A; hold A, or give longer ones"
        )
    seen = np.atleast_1d(np.asarray(cohort.mask).any(axis=(0, 1)))
    unseen = [c for c, yes in zip(cohort.channels, seen, strict=True) if not yes]
    if unseen and not {"C", "R"} <= set(hold):
        raise ValueError(
            f"channel {unseen[0]!r} is entirely missing: nothing can be learned of it; leave it out"
        )
    if int(n_restarts) != n_restarts or n_restarts < 1:
        raise ValueError(f"n_restarts is {n_restarts}; it must be a whole number, at least 1")
    if Q not in _Q:
        raise ValueError(f"Q is {Q!r}; it must be one of {', '.join(map(repr, _Q))}")
    if Q != "free" and ("Q" in hold or "Q" in diagonal or variant == "paper"):
        raise ValueError(
            f"Q is {Q!r}, which the exact variant alone knows, with Q not held or diagonal"
        )
    if n_states > cohort.n_observed:
        raise ValueError(
            f"n_states is {n_states}; the cohort has only {cohort.n_observed} observed cells"
        )
    if Q == "identity":
        hold = {*hold, "Q"}
    return Spec(variant, tuple(sorted(hold)), tuple(sorted(diagonal)), Q == "unit diagonal")


def warnings_of(params: LDSParams, prior: Prior, spec: Spec) -> tuple[str, ...]:
    found = []
    ratio = scale_ratio(params)
    if not isinstance(prior, Flat) and spec.free("Q") and ratio > 1e3:
        found.append(
            f"the scales of single states drift apart (ratio {ratio:.1e}): the "
            "penalty on A can be lowered without end by rescaling states; Q='unit diagonal' or "
            "Q='identity' makes the problem well posed"
        )
    if spec.free("R") and _sees_no_error(params):
        found.append(
            "R is nearly singular: the model sees no measurement error in some combination of channels, as on "
            "interpolated, rounded or calculated values; likelihoods of new data may be far off. Gaps left missing, "
            "fewer states or a diagonal R may help"
        )
    radius = np.abs(np.linalg.eigvals(params.A)).max()
    if radius > 1:
        found.append(f"A is not stable: its spectral radius is {radius:.3f}")
    return tuple(found)


def warnings_of_input(cohort: Cohort, given: bool, hold: Sequence[str]) -> tuple[str, ...]:
    """Of what was asked for; `given` says that the starting values were."""
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
    if "C" in hold and not given:
        found.append(
            "C is held where the starting values put it: entries of A mean something where a C that you know is held "
            "(init=LDSParams(...))"
        )
    return tuple(found)


def _sees_no_error(params: LDSParams) -> bool:
    """Whether R is near singular, or hardly any of a channel's variance at the first step is error."""
    C, V1 = np.asarray(params.C), np.asarray(params.V1)
    signal = np.diagonal(C @ V1 @ C.T)
    error = np.diagonal(params.R)
    return bool(least_correlation(params.R) < 1e-5 or (error < 1e-5 * signal).any())


def scale_ratio(params: LDSParams) -> float:
    """Largest over smallest standard deviation of the noise of a state."""
    scales = np.sqrt(np.diagonal(params.Q))
    return float(scales.max() / scales.min())
