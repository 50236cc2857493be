"""Checks of what a fit is asked for, and the warnings that come with its result."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from ...models import Cohort, DiskCohort, LDSParams
from ...models.arguments import whole
from ...models.inputs import INTERCEPT
from ...models.linalg import least_correlation, sym
from ..constraints import Constraints
from ..result import FitResult, Stop


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
    if cohort.u is not None and (constraints.free("B") or constraints.free("D")):
        _check_independent(cohort)
    if n_states > cohort.n_observed:
        raise ValueError(
            f"n_states is {n_states}; the cohort has only {cohort.n_observed} observed cells"
        )


def _check_independent(cohort: Cohort) -> None:
    """Raise if an input is always 0, or a combination of others: nothing tells their effects apart."""
    inside = np.arange(cohort.n_steps) < np.asarray(cohort.lengths)[:, None]
    u = np.asarray(cohort.u)[inside]  # (steps, p)
    if u.shape[1] >= len(u):
        raise ValueError(
            f"there are {u.shape[1]} inputs, and {len(u)} steps in all: too few to tell their effects apart"
        )
    size = np.sqrt((u**2).sum(0))
    for j in np.flatnonzero(size == 0):
        raise ValueError(f"input {cohort.inputs[j]!r} is 0 at every step; leave it out")
    unit = u / size
    for j in range(1, u.shape[1]):
        weights = np.linalg.lstsq(unit[:, :j], unit[:, j], rcond=None)[0]
        if np.linalg.norm(unit[:, j] - unit[:, :j] @ weights) < 1e-7:
            others = [cohort.inputs[i] for i in np.flatnonzero(np.abs(weights) > 1e-6)]
            raise ValueError(
                f"input {cohort.inputs[j]!r} is a combination of {', '.join(others)}: nothing tells their effects "
                "apart; leave one of them out"
            )


def check_types(cohort: Any, init: Any, tol: Any) -> None:
    """Raise unless the arguments of a fit are of the kinds that it takes."""
    if not isinstance(cohort, Cohort | DiskCohort):
        raise TypeError(
            f"cohort is a {type(cohort).__name__}; give a Cohort, such as Cohort.from_array(y) with y (N, T, d), NaN "
            "where a cell is missing"
        )
    if not (init is None or isinstance(init, str | LDSParams)):
        raise TypeError(
            f"init is a {type(init).__name__}; give an LDSParams, such as fit.params, or a method"
        )
    if isinstance(init, str) and init not in ("subspace", "pca", "random"):
        raise ValueError(f"init is {init!r}; give 'subspace', 'pca', 'random' or an LDSParams")
    if not isinstance(tol, Real) or not float(tol) >= 0:
        raise ValueError(f"tol is {tol!r}; it must be a number, 0 or more")


def bad_start(params: LDSParams) -> str:
    """Return what to do where already the objective of a start is not finite."""
    A = np.asarray(params.A)
    radius = np.abs(np.linalg.eigvals(A)).max() if np.isfinite(A).all() else np.nan
    return (
        f"the objective is not finite at the start of the fit, where A has a spectral radius of {radius:.4g}: give "
        "other starting values (init), or data of another scale (cohort.standardize())"
    )


def warnings_of_floors(
    params: LDSParams, floors: Any, constraints: Constraints, channels: Sequence[str]
) -> tuple[str, ...]:
    """Return a warning if the likelihood would have a covariance below its floor: there is no maximum in it.

    `floors` are those of the fit (see mstep.py), in the basis of `params`. The channels named are those in which the
    directions at the floor show most.
    """
    C, R = np.asarray(params.C, float), np.asarray(params.R, float)
    found: dict[str, list[int]] = {}
    for name in ("Q", "R", "V1"):
        if constraints.free(name):
            S, F = (np.asarray(getattr(x, name), float) for x in (params, floors))
            at = _at_floor(S, F, constraints.covariance(name, params).blocks(len(S)))
            shown = at if name == "R" else C @ at
            sizes = np.abs(shown) / np.sqrt(np.maximum(np.diagonal(R), 1e-300))[:, None]
            if at.size:
                found[name] = sorted({int(j) for j in np.argmax(sizes, axis=0)})
    if not found:
        return ()
    where = [f"{name} ({', '.join(channels[j] for j in at)})" for name, at in found.items()]
    are = f"{' and '.join(where)} {'are at their floors' if where[1:] else 'is at its floor'}"
    return (
        f"{are}, a millionth of the variances at the start of the fit or less: the likelihood would have less still, "
        "as for values that do not differ, or are calculated from others; leave a channel out that has such values, or "
        "ask for priors='weak', which keeps covariances away from 0",
    )


def _at_floor(S: np.ndarray, floor: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
    """Return the directions (k, n) in which the blocks of a covariance are within twice their floor."""
    found, start = [], 0
    for size in blocks:
        at = slice(start, start + size)
        start += size
        directions = np.zeros((len(S), size))
        directions[at] = _low_directions(S[at, at], floor[at, at])
        found.append(directions[:, directions.any(axis=0)])
    return np.hstack(found) if found else np.zeros((len(S), 0))


def _low_directions(S: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Return, in columns, the directions in which S is within twice its floor; others are 0."""
    scale = np.sqrt(np.diagonal(floor))
    if not (scale > 0).all() or not np.isfinite(S).all():
        return np.eye(len(S))
    half = np.linalg.cholesky(floor / np.outer(scale, scale))
    white = np.linalg.solve(half, np.linalg.solve(half, S / np.outer(scale, scale)).T)
    values, vectors = np.linalg.eigh(sym(white))
    return np.where(values < 2, scale[:, None] * (half @ vectors), 0.0)


def warnings_of(fit: FitResult, cohort: Cohort) -> tuple[str, ...]:
    """Return warnings about the result of a fit, which name channels and advise what was not done already."""
    found, params, constraints = [], fit.params, fit.constraints
    ratio = drift(params)
    drifts = not fit.prior.is_flat and constraints.basis_changes == "any"
    told = fit.stop is Stop.DRIFT or scale_ratio(params) > 1e3
    if drifts and constraints.free("Q") and told:
        found.append(
            f"the scales of states, or of combinations of them, drift apart (ratio {ratio:.1e}): the "
            "penalty on A can be lowered without end by a change of basis; Q='unit diagonal' or "
            "Q='identity' makes the problem well posed"
        )
    if constraints.free("R"):
        found += _no_error(fit, cohort)
    if constraints.free("Q") and constraints.C == "identity":
        found += _collinear_noise(fit, cohort)
    finite = np.isfinite(np.asarray(params.A)).all()
    radius = np.abs(np.linalg.eigvals(fit.moving.A)).max() if finite else np.nan
    if radius > 1 + 1e-9:
        found.append(
            f"A is not stable: its spectral radius is {radius:#.5g}, and forecasts grow "
            f"{_power(radius, cohort.n_steps)} times within {cohort.n_steps} steps"
        )
    return tuple(found)


def _power(x: float, n: int) -> str:
    """Return x**n as text, however large."""
    digits = n * np.log10(x)
    return f"{x**n:.3g}" if digits < 300 else f"1e{digits:.0f}"


def _no_error(fit: FitResult, cohort: Cohort) -> list[str]:
    """Return a warning if the model sees no measurement error in a channel, or in a combination of channels."""
    C, V1, R = (np.asarray(x) for x in (fit.params.C, fit.params.V1, fit.params.R))
    bare = np.diagonal(R) < 1e-5 * np.diagonal(C @ V1 @ C.T)
    names = ", ".join(name for name, yes in zip(cohort.channels, bare, strict=True) if yes)
    if names:
        what = f"the model sees no measurement error in {names} (R is next to 0 there)"
    elif least_correlation(R) < 1e-5:
        sd = np.sqrt(np.diagonal(R))
        worst = np.linalg.eigh(R / sd[:, None] / sd)[1][:, 0]
        among = [cohort.channels[j] for j in np.argsort(-np.abs(worst))[:2]]
        what = f"R is nearly singular: the model sees no measurement error in a combination of {' and '.join(among)}"
    else:
        return []
    advice = [] if "R" in fit.priors else ["priors='weak' keeps R away from that"]
    if "R" not in fit.constraints.diagonal and not names:
        advice.append("a diagonal R may help")
    if cohort.complete:
        advice.append("values that were interpolated are better left missing")
    text = f"{what}, as on interpolated, rounded or calculated values; likelihoods of new data may be far off"
    return [f"{text}: {'; '.join(advice)}" if advice else text]


def _collinear_noise(fit: FitResult, cohort: Cohort) -> list[str]:
    """Return a warning if the noises of two levels are all but the same: single entries of A then mean little."""
    Q = np.asarray(fit.moving.Q)
    sd = np.sqrt(np.diagonal(Q))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.tril(Q / sd[:, None] / sd, -1)
    i, j = np.unravel_index(np.nanargmax(np.abs(correlation)), Q.shape)
    if len(Q) < 2 or not np.abs(correlation[i, j]) > 0.98:
        return []
    return [
        f"{cohort.channels[i]} and {cohort.channels[j]} move together (their noises in Q correlate by "
        f"{correlation[i, j]:.3f}): how the one acts on the other is hardly told apart; leave one out, or ask for a "
        "diagonal Q"
    ]


def warnings_of_input(cohort: Cohort, constraints: Constraints, given: bool) -> tuple[str, ...]:
    """Return warnings about the input of a fit; `given` says whether the user gave the starting values."""
    found = []
    for name, y, seen in zip(
        cohort.channels, np.moveaxis(cohort.y, -1, 0), np.moveaxis(cohort.mask, -1, 0), strict=True
    ):
        if not seen.any():
            continue
        if not np.std(y[seen]) > 1e-150:  # its square would be 0
            found.append(
                f"channel {name!r} does not change, or by less than arithmetic can tell: its sd is "
                f"{np.std(y[seen]):.3g}; leave it out, or rescale it (cohort.standardize())"
            )
            continue
        mean, sd = np.mean(y[seen]), np.std(y[seen])
        if abs(mean) > 1.5 * sd and INTERCEPT not in cohort.inputs:
            found.append(
                f"channel {name!r} has mean {mean:.3g} and sd {sd:.3g}, and the model no intercept: "
                "fit cohort.standardize(), or cohort.with_intercept()"
            )
            break
    if "C" in constraints.hold and not given:
        found.append(
            "C is held where the starting values put it: entries of A mean something where a C that you know is held "
            "(init=LDSParams(...))"
        )
    return tuple(found)


def drift(params: LDSParams) -> float:
    """Return how far scales are apart: of single states' noise, or of combinations of states that are all but equal."""
    Q = np.asarray(params.Q, float)
    noisy = np.diagonal(Q) > 0
    least = least_correlation(Q[np.ix_(noisy, noisy)]) if noisy.any() else 1.0
    return max(scale_ratio(params), max(least, 1e-16) ** -0.5)


def scale_ratio(params: LDSParams) -> float:
    """Return the largest over the smallest standard deviation of the noise of a state."""
    scales = np.sqrt(np.diagonal(params.Q))
    scales = scales[scales > 0]  # states without noise have none
    return float(scales.max() / scales.min()) if scales.size else 1.0
