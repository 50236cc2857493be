"""Sequences without gaps, ready for the E-step: their covariances are shared, and one recursion serves them all."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Real

from ..linalg import sym
from ..params import LDSParams
from .derivative import fisher_rule
from .shared_passes import Forward, forward, moments, score
from .statistics import DataSums, ExpectedStatistics, data_sums, with_inputs


class Complete(NamedTuple):
    """Sequences without gaps, ready for the E-step. Padding holds 0 and is left out of every sum by `inside`.

    `unit` is 1 for a sequence; the pseudo-sequences of `compression` start at unit · π1, and have a meaning only in
    sums.
    """

    y: Real[Any, "T d N"]
    inside: Real[Any, "T N"]  # 1 up to the sequence's length, 0 after
    unit: Real[Any, " N"]
    # how much each sequence counts in a sum; None: once. Matrices, for pseudo-sequences in L parts of n: how much each
    # pair of a part counts in sums of products
    weights: Real[Any, " N"] | Real[Any, "L n n"] | None
    n_t: Real[Any, " T"]  # how many sequences reach step t, with their weights
    u: Real[Any, "T p M"] | None = (
        None  # inputs of the first M sequences, 0 past the end; the others have none
    )
    sums: DataSums | None = None  # taken once, where y does not change

    def weighted(self, x: Any) -> Any:
        """Return x (..., N), or of the first sequences alone, with the weight of each sequence."""
        w = self.weights
        if w is None:
            return x
        if w.ndim == 1:
            return x * w[: x.shape[-1]]
        parts = x.reshape(*x.shape[:-1], *w.shape[:2])
        return jnp.einsum("...pi,pij->...pj", parts, w).reshape(x.shape)

    def sequences(self, params: LDSParams, rule: bool = True) -> Array:
        """Return log p(y_n | Ω) of each sequence, (N,); with rule=False JAX differentiates through the scan."""
        found = terms(params, self) if rule else filter_terms(self, forward(params, self))
        return -0.5 * (found.squares + found.constants @ self.inside)

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        found = terms(params, self)
        return -0.5 * (self.weighted(found.squares).sum() + found.constants @ self.n_t)

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return jax.grad(self.log_likelihood)(params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        return statistics(params, self, forward(params, self))


def statistics(params: LDSParams, data: Complete, fwd: Forward) -> ExpectedStatistics:
    """Return the sums that EM needs, from the filter's result."""
    n_t = data.n_t
    (z1, M1, S00, S10, Szz, Syz), with_u = moments(params, data, fwd)
    sums = data.sums
    if sums is None:
        sums = data_sums(data.y, data.weighted(jnp.ones_like(data.unit)), data.unit, data.u)
    return ExpectedStatistics(
        n_sequences=n_t[0],
        n_transitions=n_t[1:].sum(),
        n_emissions=n_t.sum(),
        z1=z1,
        M1=sym(M1),
        S00=sym(S00),
        S10=S10,
        S11=sym(Szz - M1),
        Szz=sym(Szz),
        Syz=Syz,
        Syy=sums.Syy,
        log_likelihood=total(data, fwd),
        inputs=None if with_u is None else with_inputs(sums, with_u),
    )


class Terms(NamedTuple):
    """Terms of the log-likelihoods: log p(y_n) = -½ (squares_n + Σ_t constants_t over the steps of n)."""

    squares: Real[Array, " N"]  # Σ e'e of the whitened innovations
    constants: Real[Array, " T"]  # log |S_t| + d log 2π


def filter_terms(data: Complete, fwd: Forward) -> Terms:
    """Return the terms of the log-likelihoods."""
    return Terms((fwd.e**2).sum((0, 1)), _constants(data, fwd))


def total(data: Complete, fwd: Forward) -> Array:
    """Return Σ_n w_n log p(y_n) from the filter's result."""
    return -0.5 * (jnp.vdot(data.weighted(fwd.e), fwd.e) + _constants(data, fwd) @ data.n_t)


def _constants(data: Complete, fwd: Forward) -> Array:
    T, d, _ = data.y.shape
    return fwd.logdet.reshape(-1)[:T] + d * jnp.log(2 * jnp.pi)


terms = fisher_rule(forward, filter_terms, score)
