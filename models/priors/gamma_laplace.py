"""The Laplace prior on A with β unknown, and integrated out in closed form.

With β ~ Gamma(a, b) over the n entries that a penalty v(A) = Σ |A_ij| pulls,

    p(A) = ∫ p(A | β) p(β) dβ = (1/2)ⁿ Γ(a + n) / Γ(a) · bᵃ · (b + v(A))^-(a + n),     β | A ~ Gamma(a + n, b + v(A)),

so that β is neither chosen nor sampled, and there is no funnel between a small A and a large β.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from ..draws import gamma
from .base import Penalty, Piece, Symmetry
from .blocks import BlockPenalty
from .fields import positive
from .laplace import Laplace


@dataclass(frozen=True, eq=False)
class GammaLaplace(Penalty):
    """The prior β ~ Gamma(shape, rate), A | β ~ `base` with its beta multiplied by β: how sparse A is, is learned.

    `base` is `Laplace(1.0)`, the paper's, if none is given; its centre and its free or forced entries are kept, and
    `GroupLaplace` is as good. By default β has mean 10, and its 95 % interval is 0.25 to 37.

    A fit takes it too. The penalty (a + n) log(b + v(A)) is not convex, and a fit of it is a local one: each M-step has
    the Laplace penalty whose β is the mean of β | A, which never raises the true one (reweighted ℓ1).
    """

    shape: Any = 1.0
    rate: Any = 0.1
    base: Any = Laplace(1.0)  # noqa: RUF009, it is immutable

    def __post_init__(self):
        positive(self, "shape", "rate")
        if not isinstance(self.base, BlockPenalty) or self.base.is_flat:
            raise TypeError(
                f"base is {self.base!r}; give Laplace(1.0), GroupLaplace(1.0, by) or one with a centre"
            )

    @classmethod
    def like(cls, prior: Any, shape: float = 1.0, rate: float = 0.1) -> "GammaLaplace":
        """Return the prior that pulls A to where another one pulls it, with β unknown; the paper's for a flat one."""
        if not isinstance(prior, BlockPenalty) or prior.is_flat:
            return prior if isinstance(prior, cls) else cls(shape, rate)
        beta = np.asarray(prior.beta, float)
        known = beta[(beta > 0) & (beta < np.inf)]
        typical = float(np.exp(np.log(known).mean())) if known.size else 1.0
        base = prior.scaled(1 / typical)
        if getattr(base, "beta_B", None) is not None:  # a prior of B, with a β that is known
            base = replace(base, beta_B=None)  # type: ignore[call-arg]
        return cls(shape, rate, base)

    def value(self, A) -> Array:
        """Return (a + n) log(1 + v(A) / b), 0 at the centre."""
        A = jnp.asarray(A)
        return (self.shape + self._n(A.shape[-1])) * jnp.log1p(self.base.value(A) / self.rate)

    def log_constant(self, n_states: int) -> Array:
        """Return the logarithm of the density at the centre."""
        n = self._n(n_states)
        scale = gammaln(self.shape + n) - gammaln(self.shape) - n * jnp.log(self.rate)
        return self.base.log_constant(n_states) + scale

    def mean_beta(self, A) -> Array:
        """Return E[β | A]."""
        A = jnp.asarray(A)
        return (self.shape + self._n(A.shape[-1])) / (self.rate + self.base.value(A))

    def mean_scale(self, A) -> Array:
        """Return E[1/β | A] for draws of A (..., l, l)."""
        A = jnp.asarray(A)
        return (self.rate + self.base.value(A)) / (self.shape + self._n(A.shape[-1]) - 1)

    def majorant(self, A) -> Penalty:
        """Return the penalty with β = E[β | A]: a constant apart, it touches this one at A and is nowhere below it."""
        return self.base.scaled(self.mean_beta(A))

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return a local solution of argmin_X ½‖X - A‖²_F + step · value(X), by proximal maps of the majorant."""

        def body(_, X):
            return self.majorant(X).prox(A, step)

        return jax.lax.fori_loop(0, 50, body, jnp.asarray(A, jnp.result_type(A, float)))

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the smooth piece of the base around A, with this penalty on it."""
        under, n = self.base.piece(A, pull), float(self._n(len(A)))

        def evaluate(A):
            v, slope = under.evaluate(A)
            return (self.shape + n) * np.log1p(v / self.rate), (self.shape + n) / (
                self.rate + v
            ) * slope

        return Piece(under.lower, under.upper, evaluate)

    def scaled(self, factor: float) -> "Penalty":
        """Raise: β is learned, and there is nothing to scale."""
        raise TypeError(
            f"{self!r} learns β; a path over values of β needs a prior such as Laplace(1.0)"
        )

    def beta_max(self, gradient: Array) -> Array:
        """Raise, as `scaled` does."""
        raise TypeError(f"{self!r} learns β; there is no path of it")

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw β, then A given β, sample_shape + (l, l)."""
        scale, entries = jax.random.split(key)
        X = self.base.sample(entries, n_states, sample_shape)
        M = self.base._center(X)
        beta = gamma(scale, self.shape, (*sample_shape, 1, 1), X.dtype) / self.rate
        return jnp.where(X == M, X, M + (X - M) / beta)

    def drawn_after(self, key: Any, A) -> dict[str, Array]:
        """Draw β | A for draws of A (..., l, l)."""
        A = jnp.asarray(A)
        count = self.shape + self._n(A.shape[-1])
        total = self.rate + self.base.value(A)
        return {"beta": gamma(key, count, total.shape, A.dtype) / total}

    def density_at_center(self, n_states: int) -> np.ndarray:
        """Return the density of each entry at its centre: that of the base, times E[β]."""
        return self.base.density_at_center(n_states) * float(self.shape / self.rate)

    def expanded(self, n_states: int, dtype: Any) -> "Penalty":
        """Return the same prior with the base's fields of full size."""
        return replace(self, base=self.base.expanded(n_states, dtype))

    def proper(self, n_states: int) -> "Penalty":
        """Return the prior with a penalty on free entries too, to draw from."""
        return replace(self, base=self.base.proper(n_states))

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the centre of the base."""
        return self.base.center_of(n_states)

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries the base forces."""
        return self.base.forced(n_states)

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries the base pulls."""
        return self.base.penalised(n_states)

    @property
    def is_proper(self) -> bool:
        """Whether the base leaves no entry free."""
        return self.base.is_proper

    @property
    def symmetry(self) -> Symmetry:
        """The relabellings that leave the base as it is."""
        return self.base.symmetry

    def _n(self, n_states: int) -> Array:
        """Return n, the number of entries that are pulled and not forced."""
        return self.base.n_pulled(n_states)

    def __str__(self) -> str:
        given = str(self.base).replace("(β = 1", "(β unknown", 1)
        return f"{given}, β ~ Gamma({self.shape:g}, {self.rate:g}) integrated out"
