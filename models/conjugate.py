"""Priors of C, Q, R, π1 and V1 that keep the M-step in closed form: inverse-Wishart and normal distributions.

NUTS reads them as NumPyro distributions. MAP-EM reads the same objects as pseudo-observations:

    S ~ InverseWishart(ν, Ψ), k x k:   log p(S) = const - ½ (ν + k + 1) log |S| - ½ tr Ψ S⁻¹
    x ~ Normal(m, s²), entry by entry:  log p(x) = const - ½ Σ (x - m)² / s²

so that the M-step of S adds Ψ to the residuals' sum of squares and ν + k + 1 to their number.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Real
from scipy.special import multigammaln  # type: ignore[attr-defined]

from .cohort import Cohort
from .params import LDSParams, shapes_of
from .priors.input_groups import ColumnLaplace

COVARIANCES = ("Q", "R", "V1")
_NOISE = (
    0.1  # of a channel's variance: what weak priors expect of R, and of Q where states are levels
)


class Scatter(NamedTuple):
    """An inverse-Wishart prior as pseudo-observations: their sum of squares, and their number."""

    total: Real[Any, "k k"]  # Ψ
    count: Real[Any, ""]  # ν + k + 1

    def log_kernel(self, S: Any, xp: Any = jnp) -> Any:
        """Return log p(S) up to a constant, of the leading (k, k) block of S."""
        k = len(self.total)
        S = S[:k, :k]
        _, logdet = xp.linalg.slogdet(S)
        return -0.5 * (self.count * logdet + xp.trace(xp.linalg.solve(S, self.total)))

    def log_constant(self) -> float:
        """Return the constant of log p: ν/2 log |Ψ| - ν k/2 log 2 - log Γ_k(ν/2)."""
        k = len(self.total)
        nu = float(self.count) - k - 1
        logdet = np.linalg.slogdet(self.total)[1]
        return float(nu / 2 * (logdet - k * np.log(2)) - multigammaln(nu / 2, k))

    def gradient(self, S: np.ndarray) -> np.ndarray:
        """Return the gradient of log p at S, 0 outside of the leading block, in numpy."""
        k, g = len(self.total), np.zeros_like(S)
        inverse = np.linalg.inv(S[:k, :k])
        g[:k, :k] = 0.5 * (inverse @ self.total @ inverse - self.count * inverse)
        return g


class Ridge(NamedTuple):
    """A normal prior of independent entries, of C or π1."""

    mean: Real[Any, "..."]
    precision: Real[Any, "..."]

    def log_kernel(self, x: Any, xp: Any = jnp) -> Any:
        """Return log p(x) up to a constant."""
        return -0.5 * xp.sum(self.precision * (x - self.mean) ** 2)

    def log_constant(self) -> float:
        """Return the constant of log p."""
        return float(0.5 * np.sum(np.log(self.precision / (2 * np.pi))))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of log p at x."""
        return -np.asarray(self.precision) * (x - np.asarray(self.mean))


class Lasso(NamedTuple):
    """A Laplace prior of independent entries of B: exact zeros, as a penalty."""

    mean: Real[Any, "l p"]
    weight: Real[Any, "l p"]  # β

    def part(self, k: int, at: Any) -> "Lasso":
        """Return the prior of k states and some columns."""
        return Lasso(self.mean[:k, at], self.weight[:k, at])

    def common(self, scale: Any) -> Any:
        """Return the curvature of each entry as it is: each may have a step of its own."""
        return scale

    def prox(self, x: Any, step: Any) -> Any:
        """Return x (k, p) with its entries drawn to their means by step · β."""
        x = x - self.mean
        return self.mean + jnp.sign(x) * jnp.maximum(jnp.abs(x) - step * self.weight, 0.0)

    def log_kernel(self, x: Any, xp: Any = jnp) -> Any:
        """Return log p(x) up to a constant."""
        return -xp.sum(self.weight * xp.abs(x - self.mean))

    def log_constant(self) -> float:
        """Return the constant of log p."""
        return float(np.sum(np.log(np.asarray(self.weight) / 2)))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of log p at x, 0 for an entry at its mean."""
        return -np.asarray(self.weight) * np.sign(x - np.asarray(self.mean))


class GroupLasso(NamedTuple):
    """A prior of B whose columns vanish as a whole: p(B) ∝ exp(-Σ_j β_j ‖B_j‖₂)."""

    weight: Real[Any, " p"]  # β
    n_states: Real[Any, ""]

    def part(self, k: int, at: Any) -> "GroupLasso":
        """Return the prior of k states and some columns; the rows of the other states are zero."""
        return self._replace(weight=self.weight[at])

    def common(self, scale: Any) -> Any:
        """Return a curvature for each column, (k, p), from one for each entry: a step within a column is one."""
        return jnp.broadcast_to(scale.max(0), scale.shape)

    def prox(self, x: Any, step: Any) -> Any:
        """Return x (k, p) with its columns shrunk by step · β; steps are the same within a column."""
        norm = jnp.sqrt((x * x).sum(0))
        left = jnp.maximum(norm - step[0] * self.weight, 0.0)
        return x * jnp.where(left > 0, left / jnp.where(norm > 0, norm, 1.0), 0.0)

    def log_kernel(self, x: Any, xp: Any = jnp) -> Any:
        """Return log p(x) up to a constant."""
        return -xp.sum(self.weight * xp.sqrt((x * x).sum(0)))

    def log_constant(self) -> float:
        """Return the constant of log p, that of `ColumnLaplace`."""
        zero = np.zeros((int(self.n_states), len(self.weight)))
        return float(ColumnLaplace(1 / np.asarray(self.weight), len(zero)).log_prob(zero))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of log p at x, 0 for a column that is zero."""
        norm = np.sqrt((x * x).sum(0))
        return -np.asarray(self.weight) * x / np.where(norm > 0, norm, 1.0)


class Conjugate(NamedTuple):
    """The priors of a fit, by the name of the parameter, as an M-step takes them: a pytree of arrays."""

    terms: dict[str, Scatter | Ridge | Lasso | GroupLasso]
    constant: Real[Any, ""]  # of the sum of all log densities

    def log_prob(self, params: LDSParams) -> Any:
        """Return the sum of the log densities of all parameters that have a prior here."""
        return self.constant + self.kernel(params, jnp)

    def kernel(self, params: LDSParams, xp: Any = np) -> Any:
        """Return `log_prob` without its constant, in numpy or jax.numpy."""
        return sum(term.log_kernel(getattr(params, name), xp) for name, term in self.terms.items())

    def gradient(self, params: LDSParams) -> dict[str, np.ndarray]:
        """Return the gradients of `log_prob` by the name of the parameter, in numpy."""
        return {name: term.gradient(getattr(params, name)) for name, term in self.terms.items()}

    def pooled(self, name: str, total: Any, n: Any) -> tuple[Any, Any]:
        """Return a sum of squares and its count with the pseudo-observations of a covariance added."""
        term = self.terms.get(name)
        if not isinstance(term, Scatter):
            return total, n
        k = len(term.total)
        more = jnp.pad(jnp.asarray(term.total, total.dtype), (0, len(total) - k))
        return total + more, n + term.count


def as_conjugate(
    priors: Mapping[str, Any],
    n_states: int,
    n_channels: int,
    dtype: Any,
    n_moving: int | None = None,
    n_inputs: int = 0,
) -> Conjugate:
    """Return priors as an M-step takes them; raise for one that has no closed form, or another shape.

    `n_moving` is the number of states that have noise, all by default: a prior of Q is one of theirs.
    """
    shapes, terms, constant = shapes_of(n_states, n_channels, n_inputs), {}, 0.0
    shapes["Q"] = (n_moving or n_states,) * 2
    for name, prior in priors.items():
        if name not in shapes or name == "A":
            raise ValueError(
                f"priors names {name!r}; it may name C, Q, R, pi1 and V1 (A has `prior`), and B and D with inputs"
            )
        read = _scatter if name in COVARIANCES else _ridge
        term = read(name, prior, shapes[name])
        constant += term.log_constant()
        terms[name] = type(term)(*(np.asarray(x, dtype) for x in term))
    return Conjugate(terms, np.asarray(constant, dtype))


def _check_shape(name: str, prior: Any, shape: tuple[int, ...]) -> None:
    """Raise unless a draw of the prior has the shape of the parameter."""
    if prior.shape() != shape:
        raise ValueError(f"priors[{name!r}] has shape {prior.shape()}; it must be {shape}")


def _scatter(name: str, prior: Any, shape: tuple[int, ...]) -> Scatter:
    """Return an inverse-Wishart distribution as pseudo-observations."""
    if not isinstance(prior, dist.InverseWishart):
        raise ValueError(
            f"priors[{name!r}] is a {type(prior).__name__}, which has no M-step in closed form; give "
            "numpyro's InverseWishart to a fit (NUTS takes any distribution)"
        )
    _check_shape(name, prior, shape)
    total = np.asarray(prior.scale_matrix, float)
    return Scatter(total, np.asarray(float(np.asarray(prior.concentration)) + len(total) + 1))


def _ridge(name: str, prior: Any, shape: tuple[int, ...]) -> Ridge | Lasso | GroupLasso:
    """Return a normal distribution of independent entries as mean and precision; of B, Laplace ones too."""
    if name == "B" and isinstance(prior, ColumnLaplace):
        _check_shape(name, prior, shape)
        return GroupLasso(1 / np.asarray(prior.scale, float), np.asarray(prior.n_states))
    base = prior.base_dist if isinstance(prior, dist.Independent) else prior
    if name == "B" and isinstance(base, dist.Laplace) and len(prior.event_shape) == 2:
        _check_shape(name, prior, shape)
        loc, scale = (np.broadcast_to(np.asarray(x, float), shape) for x in (base.loc, base.scale))
        return Lasso(loc, 1 / scale)
    if not isinstance(base, dist.Normal) or len(prior.event_shape) != len(shape):
        raise ValueError(
            f"priors[{name!r}] is a {type(base).__name__}, which has no M-step in closed form; give numpyro's "
            f"Normal(...).to_event({len(shape)}) to a fit (NUTS takes any distribution)"
        )
    _check_shape(name, prior, shape)
    loc, scale = (np.broadcast_to(np.asarray(x, float), shape) for x in (base.loc, base.scale))
    return Ridge(loc, 1 / scale**2)


class VarianceGuess(NamedTuple):
    """Where the variance of each channel seems to come from, by moments: arrays (d,)."""

    variance: np.ndarray
    between: np.ndarray  # of the sequences' means, less what chance adds to it
    moving: np.ndarray  # within sequences, and still there one step later: no error of measurement

    @classmethod
    def of(cls, cohort: Cohort) -> "VarianceGuess":
        """Return the moments of a cohort; each is at least a fiftieth of the channel's variance."""
        y, mask = np.asarray(cohort.y, float), np.asarray(cohort.mask)
        n, each = np.maximum(mask.sum((0, 1)), 1), mask.sum(1)
        mean, square = y.sum((0, 1)) / n, (y * y).sum((0, 1)) / n
        variance = np.where(square > mean**2 * (1 + 1e-9), square - mean**2, square)
        variance = np.where(variance > 0, variance, 1.0)
        seen = each > 0
        own = np.where(seen, y.sum(1) / np.maximum(each, 1), 0.0)
        rest = np.where(mask, y - own[:, None], 0.0)
        within = (rest**2).sum((0, 1)) / np.maximum((each - seen).sum(0), 1)
        many = np.maximum(seen.sum(0), 1)
        spread = (np.where(seen, own - mean, 0.0) ** 2).sum(0) / many
        between = spread - within * (seen / np.maximum(each, 1)).sum(0) / many
        pairs = mask[:, 1:] & mask[:, :-1]
        lagged = (rest[:, 1:] * rest[:, :-1] * pairs).sum((0, 1)) / np.maximum(pairs.sum((0, 1)), 1)
        least = 0.02 * variance
        return cls(variance, *(np.clip(x, least, variance) for x in (between, lagged)))


def weak_priors(
    cohort: Cohort, n_states: int, *, levels: bool = False, own_levels: bool = False
) -> dict[str, dist.Distribution]:
    """Return weak priors of Q, R, π1 and V1, which keep a fit away from singular covariances.

    Each covariance of k dimensions is drawn to a guess as if by 2k + 1 more observations, the fewest of a proper
    inverse-Wishart. The guess of R is a tenth of the channels' variances; of V1 what moments show of the sequences' own
    levels and of what moves (`VarianceGuess`: next to nothing in white noise) where states are `levels`, else 10, which
    goes with Q = I; of Q a tenth of it. π1 is drawn to 0 as if by one patient more. With `own_levels` there are d
    static states besides, which Q leaves out.
    """
    found = VarianceGuess.of(cohort)
    hidden = np.full(n_states, 1 / _NOISE)
    moving = (found.moving if own_levels else found.between + found.moving) if levels else hidden
    first = np.append(moving, found.between) if own_levels else moving
    y, n = np.asarray(cohort.y, float), np.maximum(np.asarray(cohort.mask).sum((0, 1)), 1)
    square = np.maximum((y * y).sum((0, 1)) / n, found.variance)  # where data are not centred
    width = square if levels else hidden
    width = np.append(width, square) if own_levels else width

    def near(variances):
        k = len(variances)
        return dist.InverseWishart(float(k), scale_matrix=jnp.diag((2 * k + 1) * variances))

    return {
        "Q": near(_NOISE * moving),
        "R": near(_NOISE * found.variance),
        "pi1": dist.Normal(jnp.zeros(len(first)), jnp.sqrt(width)).to_event(1),
        "V1": near(first),
    }


def to_dict(priors: Mapping[str, Any]) -> dict[str, Any]:
    """Return inverse-Wishart and normal priors as numbers, for a JSON file."""
    found = {}
    for name, prior in priors.items():
        if isinstance(prior, dist.InverseWishart):
            numbers = {
                "concentration": float(np.asarray(prior.concentration)),
                "scale_matrix": np.asarray(prior.scale_matrix).tolist(),
            }
        elif isinstance(prior, ColumnLaplace):
            scale = np.asarray(prior.scale).tolist()
            numbers = {"kind": "ColumnLaplace", "scale": scale, "n_states": prior.n_states}
        else:
            base = prior.base_dist
            kind = {"kind": "Laplace"} if isinstance(base, dist.Laplace) else {}
            shape = np.broadcast_shapes(np.shape(base.loc), np.shape(base.scale))
            numbers = kind | {
                k: np.broadcast_to(np.asarray(getattr(base, k)), shape).tolist()
                for k in ("loc", "scale")
            }
        found[name] = numbers
    return found


def from_dict(found: Mapping[str, Any]) -> dict[str, dist.Distribution]:
    """Return the priors that `to_dict` described."""
    priors: dict[str, dist.Distribution] = {}
    for name, numbers in found.items():
        if numbers.get("kind") == "ColumnLaplace":
            scale = jnp.asarray(np.array(numbers["scale"], float))
            priors[name] = ColumnLaplace(scale, int(numbers["n_states"]))
            continue
        kind = dist.Laplace if numbers.get("kind") == "Laplace" else dist.Normal
        arrays = {k: jnp.asarray(np.array(v, float)) for k, v in numbers.items() if k != "kind"}
        if name in COVARIANCES:
            priors[name] = dist.InverseWishart(**arrays)
        else:
            priors[name] = kind(**arrays).to_event(jnp.ndim(arrays["loc"]))
    return priors
