"""Data ready for the E-step that is made of other such data: parts that are added up, and a route with a spare one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Integer

from ..params import LDSParams
from .filled import Filled
from .gappy import Gappy
from .observed import Observed
from .shifted import Shifted
from .statistics import ExpectedStatistics


class Parts(NamedTuple):
    """Data ready for the E-step in several parts, whose sums are added."""

    parts: tuple[Any, ...]

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return sum(part.log_likelihood(params) for part in self.parts)  # type: ignore[return-value]

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return jax.tree.map(lambda *x: sum(x), *(part.score(params) for part in self.parts))

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        found = (part.expected_statistics(params) for part in self.parts)
        return jax.tree.map(lambda *x: sum(x), *found)


class Guarded(NamedTuple):
    """Sequences by the law of all their cells, and the same ones for the filter, which runs where that loses digits."""

    dense: Filled | Observed | Shifted
    spare: Gappy | Shifted
    place: Integer[Any, " N"]  # where the sequences are in `dense.sequences`

    def sequences(self, params: LDSParams) -> Array:
        """Return log p(y_n | Ω) of each sequence, (N,)."""
        N = self.place.shape[0]
        return self._either(
            params,
            lambda: self.dense.sequences(params)[self.place],
            lambda: self.spare.sequences(params)[:N],
        )

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return self._either(
            params,
            lambda: self.dense.log_likelihood(params),
            lambda: self.spare.log_likelihood(params),
        )

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return self._either(
            params, lambda: self.dense.score(params), lambda: self.spare.score(params)
        )

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        return self._either(
            params,
            lambda: self.dense.expected_statistics(params),
            lambda: self.spare.expected_statistics(params),
        )

    def _either(self, params, dense, spare) -> Any:
        T = getattr(self.dense, "route", self.dense).inside.shape[1]
        return lax.cond(stiffness(params, T) < safe_stiffness(params.A.dtype), dense, spare)


def stiffness(params: LDSParams, T: int) -> Array:
    """Return the largest variance of a cell in units of its own noise, max_t,i Var[y_ti] (R⁻¹)_ii.

    A missing cell is filled in from the precision that it would have had if it had been observed, and a covariance of
    observed cells is inverted whole. Where the noise of a cell given the other channels is far smaller than its
    variance this loses digits: about eps times the stiffness.
    """
    A, C, Q, R, _, V1, *_ = params

    def step(P, _):
        return A @ P @ A.T + Q, ((C @ P) * C).sum(1)

    _, signal = lax.scan(step, V1, length=T)
    precision = jnp.diagonal(jnp.linalg.inv(R))
    worst = ((signal + jnp.diagonal(R)) * precision).max()
    # a precision that is not positive belongs to an R that is not definite: the filter says so
    return jnp.where((precision > 0).all(), worst, jnp.inf)


def safe_stiffness(dtype: Any) -> float:
    """Return up to which stiffness the law of all cells is used: 160,000 in double precision, 200 in single."""
    return float(jnp.finfo(dtype).eps) ** (-1 / 3)
