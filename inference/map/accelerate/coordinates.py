"""Coordinates for quasi-Newton steps, in which the information of the complete data is near the identity.

x = 0 is the point that they are set up at, but for A, which is x · signs / scale: it stays within its orthant, where
the Laplace penalty is linear. All of it is on the host: matrices this small cost more to hand over than to multiply.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....models import ExpectedStatistics, LDSParams, Prior, fisher_score
from ..mstep import Floors, Spec

_CLEAR = 2.0  # a covariance moves if it is above this many times its floor


class Chart(NamedTuple):
    origin: LDSParams
    dtype: Any  # of the parameters; the coordinates have 64 bits
    spec: Spec
    moving: tuple[str, ...]  # parameters that have coordinates, in their order
    beta: np.ndarray  # (l, l), or one for each group
    axis: int | None  # along which a group extends
    signs: np.ndarray  # (l, l), the orthant of A
    scales: dict[str, np.ndarray]  # of A and C: square roots of the complete data's information
    factors: dict[
        str, np.ndarray
    ]  # lower Cholesky factors: of V1, and of moving covariances less their floors
    floors: dict[str, np.ndarray]
    counts: dict[str, float]  # how many terms each covariance is the mean of

    def point(self, x: np.ndarray) -> "Point":
        """The parameters at x."""
        found = {name: _at(self, name, part) for name, part in self.parts(x)}
        new = {name: value for name, (value, _) in found.items()}
        return Point(
            self.origin._replace(**new), {name: known for name, (_, known) in found.items()}
        )

    def slope(self, point: "Point", stats: ExpectedStatistics) -> tuple[float, np.ndarray]:
        """Penalty less log-likelihood, and its gradient in x, from the sums of the E-step there."""
        score = fisher_score(point.params, stats)
        penalty, by_A = _penalty(self, point.params.A)
        down = LDSParams(*(-g for g in score))._replace(A=by_A - score.A)
        g = [_pull(self, name, point, getattr(down, name)) for name in self.moving]
        return penalty - float(stats.log_likelihood), np.concatenate(g)

    def parts(self, x: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """The coordinates of each parameter."""
        d, l = self.origin.C.shape
        size = self.spec.sizes(l, d)
        ends = np.cumsum([size[name] for name in self.moving])
        return list(zip(self.moving, np.split(x, ends[:-1]), strict=True))

    def start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x of the point itself, and bounds that keep A in its orthant; an entry that stays zero has both at 0."""
        A, shape = self.origin.A, self.origin.A.shape
        if self.axis is None:
            fixed, lower = np.isinf(self.beta), np.where(self.beta > 0, 0.0, -np.inf)
        else:  # a group of zeros is left to EM; within the others the penalty is smooth
            fixed = np.broadcast_to(~(A != 0).any(self.axis, keepdims=True), shape)
            lower = np.full(shape, -np.inf)
        d, l = self.origin.C.shape
        size = self.spec.sizes(l, d)
        x = {name: np.zeros(size[name]) for name in self.moving}
        low = {name: np.full(size[name], -np.inf) for name in self.moving}
        high = {name: np.full(size[name], np.inf) for name in self.moving}
        if "A" in x:
            x["A"] = (A * self.signs * self.scales["A"]).ravel()
            low["A"] = np.where(fixed, 0.0, lower).ravel()
            high["A"] = np.where(fixed, 0.0, np.inf).ravel()
        x, low, high = (np.concatenate(list(part.values())) for part in (x, low, high))
        return x, low, high


class Point(NamedTuple):
    """The parameters at some x, and what `_pull` would otherwise form again."""

    params: LDSParams  # in 64 bits
    known: dict[str, Any]

    def cast(self, dtype) -> LDSParams:
        """The parameters as numpy arrays, which a compiled program takes faster than it is handed jax's."""
        return LDSParams(*(np.asarray(value, dtype) for value in self.params))


def chart_at(
    params: LDSParams, stats: ExpectedStatistics, prior: Prior, floors: Floors, spec: Spec
) -> Chart | None:
    """Coordinates at a point; None if nothing may move."""
    dtype = params.A.dtype
    params = LDSParams(*(np.asarray(x, float) for x in params))
    A, C, Q, R, _, V1 = params
    below = {name: np.asarray(F, float) for name, F in floors._asdict().items()}

    def clear(name):
        """A covariance at its floor is left to EM, which knows how to stay there."""
        if name not in below:
            return True
        return np.linalg.eigvalsh(getattr(params, name) - _CLEAR * below[name])[0] > 0

    moving = tuple(name for name in LDSParams._fields if spec.free(name) and clear(name))
    if not moving:
        return None

    def information(S, M) -> np.ndarray:
        return np.sqrt(np.outer(np.diagonal(np.linalg.inv(S)), np.diagonal(M)))

    S00, S10, Szz = (np.asarray(x, float) for x in (stats.S00, stats.S10, stats.Szz))
    uphill = np.where(np.linalg.solve(Q, S10 - A @ S00) >= 0, 1.0, -1.0)
    movable = {name: np.linalg.cholesky(getattr(params, name) - below[name])
               for name in below if name in moving}  # fmt: skip
    counts = dict(Q=stats.n_transitions, R=stats.n_emissions, V1=stats.n_sequences)
    return Chart(
        origin=params,
        dtype=dtype,
        spec=spec,
        moving=moving,
        beta=np.asarray(prior._blocks(A)[0], float),
        axis=prior._axis,
        signs=np.where(A != 0, np.sign(A), uphill),
        scales={"A": information(Q, S00), "C": information(R, Szz)},
        factors=movable | {"pi1": np.linalg.cholesky(V1)},
        floors=below,
        counts={name: float(n) for name, n in counts.items()},
    )


def _at(chart: Chart, name: str, x: np.ndarray) -> tuple[np.ndarray, Any]:
    """A parameter at x, and what `_pull` needs to know of it."""
    now = getattr(chart.origin, name)
    if name == "A":
        return x.reshape(now.shape) * chart.signs / chart.scales["A"], None
    if name == "C":
        return now + x.reshape(now.shape) / chart.scales["C"], None
    if name == "pi1":
        return now + chart.factors[name] @ x / np.sqrt(chart.counts["V1"]), None
    k, n = len(now), chart.counts[name]
    M = np.diag(np.exp(x[:k] / np.sqrt(2 * n)))
    if name not in chart.spec.diagonal:
        M[_below(k)] = x[k:] / np.sqrt(n)
    L = chart.factors[name] @ M
    S = L @ L.T + chart.floors[name]
    if name == "Q" and chart.spec.unit_Q:
        variance = np.diagonal(S)
        return S / np.sqrt(np.outer(variance, variance)), (M, L, variance)
    return S, (M, L, None)


def _pull(chart: Chart, name: str, point: Point, g: np.ndarray) -> np.ndarray:
    """The gradient in x from that in the parameter."""
    if name == "A":
        return (g * chart.signs / chart.scales["A"]).ravel()
    if name == "C":
        return (g / chart.scales["C"]).ravel()
    if name == "pi1":
        return chart.factors[name].T @ g / np.sqrt(chart.counts["V1"])
    value, (M, L, variance) = getattr(point.params, name), point.known[name]
    k, n = len(value), chart.counts[name]
    if variance is not None:  # through S / √(S_ii S_jj)
        along = (g * value).sum(1) / variance
        g = g / np.sqrt(np.outer(variance, variance)) - np.diag(along)
    by_M = 2 * chart.factors[name].T @ g @ L
    logs = np.diagonal(by_M) * np.diagonal(M) / np.sqrt(2 * n)
    if name in chart.spec.diagonal:
        return logs
    return np.append(logs, by_M[_below(k)] / np.sqrt(n))


@lru_cache
def _below(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices below the diagonal."""
    return np.tril_indices(k, -1)


def _penalty(chart: Chart, A: np.ndarray) -> tuple[float, np.ndarray]:
    """Within the orthant, and its gradient."""
    beta = np.where(np.isfinite(chart.beta), chart.beta, 0.0)
    if chart.axis is None:
        return float((beta * chart.signs * A).sum()), beta * chart.signs
    norms = np.sqrt((A * A).sum(chart.axis, keepdims=True))
    return float((beta * norms).sum()), beta * A / np.where(norms > 0, norms, 1.0)
