"""Coordinates for quasi-Newton steps, in which the information of the complete data is near the identity.

x = 0 is the point at which they are set up, but for A, which is x / scale: A stays within a piece on which the penalty
is smooth (an orthant, for a Laplace prior). All of it is in numpy: handing such small matrices to JAX costs more than
multiplying them.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ....models import ExpectedStatistics, LDSParams, Penalty, Piece, fisher_score
from ....models.conjugate import Conjugate, GroupLasso, Lasso
from ...constraints import Constraints
from ..mstep import Floors

_CLEAR = 2.0  # a covariance moves in directions in which it is above this many times its floor


class Chart(NamedTuple):
    """Coordinates around a point."""

    origin: LDSParams
    dtype: Any  # of the parameters; the coordinates have 64 bits
    constraints: Constraints
    moving: tuple[str, ...]  # parameters that have coordinates, in their order
    piece: Piece  # of the penalty, around the A of the moving states
    priors: Conjugate  # of the other parameters
    scales: dict[str, np.ndarray]  # of A, B, C, D: square roots of the complete data's information
    # of V1, lower Cholesky, for pi1; of what is clear of the floors of moving covariances, and what stays as it is
    factors: dict[str, np.ndarray]
    floors: dict[str, np.ndarray]
    counts: dict[str, float]  # how many terms each covariance is the mean of
    signs: np.ndarray | None = (
        None  # of B about the mean of its Laplace prior, 0 for an entry that stays there
    )

    @property
    def lasso(self) -> Any:
        """The Laplace prior of B, where there is one."""
        return self.priors.terms["B"]

    def point(self, x: np.ndarray) -> "Point":
        """Return the point at coordinates x."""
        found = {name: _at(self, name, part) for name, part in self.parts(x)}
        new = {name: value for name, (value, _) in found.items()}
        known = {name: known for name, (_, known) in found.items()}
        return Point(self.origin._replace(**new), known)

    def slope(self, point: "Point", stats: ExpectedStatistics) -> tuple[float, np.ndarray]:
        """Return penalty less log-likelihood, and its gradient in x, from the sums of the E-step at the point."""
        score = fisher_score(point.params, stats)
        k = self.constraints.n_moving(self.origin)
        penalty, by_A = self.piece.evaluate(point.params.A[:k, :k])
        down = {name: -g for name, g in score._asdict().items()}
        down["A"][:k, :k] += by_A
        for name, g in self.priors.gradient(point.params).items():
            down[name] = down[name] - g
        if self.signs is not None:  # at its mean, too, the slope is that of the orthant
            k = len(self.signs)
            there = point.params.B[:k] == self.lasso.mean[:k]
            down["B"][:k] += np.where(there, self.lasso.weight[:k] * self.signs, 0.0)
        value = penalty - self.priors.kernel(point.params) - float(stats.log_likelihood)
        g = [_pull(self, name, point, down[name]) for name in self.moving]
        return value, np.concatenate(g)

    def sizes(self) -> dict[str, int]:
        """Return the number of coordinates of each moving parameter."""
        size = self.constraints.sizes(self.origin)
        for name in self.floors:  # fewer where directions are at the floor
            shape = self.constraints.covariance(name, self.origin)
            size[name] = shape.n_coordinates(self.factors[name])
        return {name: size[name] for name in self.moving}

    def parts(self, x: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Return the name and the coordinates of each moving parameter."""
        ends = np.cumsum(list(self.sizes().values()))
        return list(zip(self.moving, np.split(x, ends[:-1]), strict=True))

    def start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return x of the origin, and bounds that keep A in its piece; both are 0 for an entry that stays zero."""
        sizes = self.sizes()
        x = {name: np.zeros(n) for name, n in sizes.items()}
        low = {name: np.full(n, -np.inf) for name, n in sizes.items()}
        high = {name: np.full(n, np.inf) for name, n in sizes.items()}
        if "A" in x:
            x["A"] = (self.constraints.moving(self.origin).A * self.scales["A"]).ravel()
            low["A"] = (self.piece.lower * self.scales["A"]).ravel()
            high["A"] = (self.piece.upper * self.scales["A"]).ravel()
        for name in ("B", "D"):  # columns that are not there stay 0
            if name in x:
                there = np.zeros_like(self.scales[name])
                there[:, self.constraints.columns(name, self.origin.n_inputs)] = np.inf
                low[name], high[name] = -there.ravel(), there.ravel()
        if "B" in x:
            B = self.constraints.moving(self.origin).B
            x["B"] = (B * self.scales["B"]).ravel()
            if isinstance(
                self.priors.terms.get("B"), GroupLasso
            ):  # a zero column stays: EM opens it
                stays = np.broadcast_to(~B.any(0), B.shape).ravel()
                low["B"], high["B"] = (np.where(stays, 0.0, side["B"]) for side in (low, high))
            if self.signs is not None:  # the orthant about the mean of a Laplace prior
                centre = (self.lasso.mean[: len(self.signs)] * self.scales["B"]).ravel()
                signs = self.signs.ravel()
                low["B"] = np.where(signs >= 0, np.maximum(low["B"], centre), low["B"])
                high["B"] = np.where(signs <= 0, np.minimum(high["B"], centre), high["B"])
        x, low, high = (np.concatenate(list(part.values())) for part in (x, low, high))
        return x, low, high


class Point(NamedTuple):
    """The parameters at some x, and matrices that `_pull` needs again."""

    params: LDSParams  # in 64 bits
    known: dict[str, Any]

    def cast(self, dtype) -> LDSParams:
        """Return the parameters as numpy arrays, which a compiled program takes faster than jax's."""
        return LDSParams(*(np.asarray(value, dtype) for value in self.params))


def chart_at(
    params: LDSParams,
    stats: ExpectedStatistics,
    prior: Penalty,
    priors: Conjugate,
    floors: Floors,
    constraints: Constraints,
) -> Chart | None:
    """Return coordinates around a point; None if no parameter may move."""
    dtype = params.A.dtype
    params = LDSParams(*(np.asarray(x, float) for x in params))
    core, u = constraints.moving(params), stats.inputs
    k = core.n_states
    below = {name: np.asarray(F, float) for name, F in floors._asdict().items()}

    # only EM moves what is within twice its floor
    above = {
        name: constraints.covariance(name, params).above(getattr(params, name), F, _CLEAR)
        for name, F in below.items()
        if constraints.free(name)
    }
    fixed = [name for name, found in above.items() if found is None]
    moving = tuple(n for n in params._fields if constraints.free(n) and n not in fixed)
    if not moving:
        return None

    def information(S, M) -> np.ndarray:
        # a scale must be positive; moments of an explosive A may not be, but for rounding
        return np.sqrt(np.abs(np.outer(np.diagonal(np.linalg.inv(S)), np.diagonal(M))))

    S00, S10, Szz = (np.asarray(x, float)[:k, :k] for x in (stats.S00, stats.S10, stats.Szz))
    scales = {"A": information(core.Q, S00), "C": information(params.R, Szz)}
    if u is not None:
        S10 = S10 - core.B @ np.asarray(u.S0u, float)[:k].T
        U11, Suu = np.asarray(u.U11, float), np.asarray(u.Suu, float)
        of_B = information(core.Q, Suu - U11), information(core.V1, U11)
        scales |= {"B": np.hypot(*of_B), "D": information(params.R, Suu)}
    parts = {name: found for name, found in above.items() if found is not None}
    counts = dict(Q=stats.n_transitions, R=stats.n_emissions, V1=stats.n_sequences)
    return Chart(
        origin=params,
        dtype=dtype,
        constraints=constraints,
        moving=moving,
        piece=prior.piece(core.A, np.linalg.solve(core.Q, S10 - core.A @ S00)),
        priors=jax.tree.map(lambda x: np.asarray(x, float), priors),  # on the host
        scales=scales,
        factors={n: L for n, (_, L) in parts.items()} | {"pi1": np.linalg.cholesky(params.V1)},
        floors={name: base for name, (base, _) in parts.items()},
        counts={name: float(n) for name, n in counts.items()},
        signs=_signs_of_B(params, stats, priors, k),
    )


def _signs_of_B(
    params: LDSParams, stats: ExpectedStatistics, priors: Conjugate, k: int
) -> np.ndarray | None:
    """Return the orthant of B (k, p) in which a Laplace prior is smooth; None without one.

    An entry at the mean goes where the likelihood draws it more than the prior holds it back, or stays.
    """
    term = priors.terms.get("B")
    if not isinstance(term, Lasso):
        return None
    away = params.B[:k] - np.asarray(term.mean)[:k]
    pull = fisher_score(params, stats).B[:k]
    free = np.where(np.abs(pull) > np.asarray(term.weight)[:k], np.sign(pull), 0.0)
    return np.where(away != 0, np.sign(away), free)


def _at(chart: Chart, name: str, x: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return a parameter at x, and matrices that `_pull` needs again."""
    now = getattr(chart.origin, name)
    if name in ("A", "B", "C", "D"):  # the entries of the moving states
        scale, new = chart.scales[name], now.copy()
        rows, columns = scale.shape
        at = x.reshape(scale.shape) / scale
        new[:rows, :columns] = at if name in ("A", "B") else new[:rows, :columns] + at
        return new, None
    if name == "pi1":
        return now + chart.factors[name] @ x / np.sqrt(chart.counts["V1"]), None
    shape = chart.constraints.covariance(name, chart.origin)
    return shape.at(x, chart.factors[name], chart.floors[name], chart.counts[name])


def _pull(chart: Chart, name: str, point: Point, g: np.ndarray) -> np.ndarray:
    """Return the gradient in x from the gradient in the parameter."""
    if name in ("A", "B", "C", "D"):
        scale = chart.scales[name]
        return (g[: scale.shape[0], : scale.shape[1]] / scale).ravel()
    if name == "pi1":
        return chart.factors[name].T @ g / np.sqrt(chart.counts["V1"])
    S, known = getattr(point.params, name), point.known[name]
    shape = chart.constraints.covariance(name, chart.origin)
    return shape.pull(g, S, known, chart.factors[name], chart.counts[name])
