"""Sequences with gaps and inputs, by any route for gaps: the route sees y less what the inputs add to its mean.

The likelihood is the route's on y - ȳ (see `input_means`), and its derivative goes through ȳ by the chain rule, with
α = -∂/∂y of the route. The sums of the E-step are the route's, of the deviations z - z̄, and terms in the means alone.
Those follow from α: with r_{t-1} = A'r_t + C'α_t, E[z_1 - z̄_1] = π1 + V1 r_0, and E[e_{t+1}] = Q r_t, E[v_t] = R α_t.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Integer, Real

from ..params import LDSParams
from .input_means import input_means, without_inputs
from .statistics import ExpectedStatistics, InputMoments, data_sums, with_inputs


class Shifted(NamedTuple):
    """Sequences with gaps and inputs, ready for the E-step by a route of their own."""

    route: Any  # Gappy, Skipping, Filled or Observed
    cells: tuple[Any, ...]  # for each y of the route, its place in (T, d, N), from 1 on; 0: none
    place: Integer[Any, " N"]  # where the sequences are in `route.sequences`
    u: Real[Any, "T p N"]
    inside: Real[Any, "T N"]  # 1 up to the sequence's length, 0 after
    weights: Real[Any, " N"]

    def sequences(self, params: LDSParams) -> Array:
        """Return log p(y_n | Ω) of each sequence, (N,)."""
        return self._of_deviations(without_inputs(params), input_means(params, self.u)[1])

    def log_likelihood(self, params: LDSParams) -> Array:
        """Return Σ_n w_n log p(y_n | Ω)."""
        return self.sequences(params) @ self.weights

    def score(self, params: LDSParams) -> LDSParams:
        """Return the gradient of `log_likelihood`."""
        return jax.grad(self.log_likelihood)(params)

    def expected_statistics(self, params: LDSParams) -> ExpectedStatistics:
        """Return the sums that EM needs."""
        bare = without_inputs(params)
        z_mean, y_mean = input_means(params, self.u)
        stats = self._less(y_mean).expected_statistics(bare)
        alpha = jax.grad(lambda mean: self._of_deviations(bare, mean).sum())(y_mean)
        z, y = expected_deviations(bare, alpha)
        return self._with_means(stats, (z, y), (z + z_mean, y + y_mean))

    def _of_deviations(self, bare: LDSParams, y_mean: Array) -> Array:
        return self._less(y_mean).sequences(bare)[self.place]

    def _less(self, y_mean: Array) -> Any:
        """Return the route's data, of y - ȳ for ȳ (T, d, N)."""
        mean = jnp.pad(y_mean.reshape(-1), (1, 0))
        ys = [y - mean[at] for y, at in zip(values_of(self.route), self.cells, strict=True)]
        return with_values(self.route, ys)

    def _with_means(
        self, s: ExpectedStatistics, before: tuple[Array, Array], after: tuple[Array, Array]
    ) -> ExpectedStatistics:
        """Return the sums after a change of the means of z (T, l, N) and y (T, d, N) that no covariance sees."""
        w = (self.inside * self.weights)[:, None]
        goes_on = jnp.concatenate([w[1:], jnp.zeros_like(w[:1])])

        def change(i, j, w, lag=0):  # Σ w_t x_{t+lag} y_t' over the steps of w
            n = w.shape[0] - lag

            def total(means):
                return jnp.einsum("tin,tjn->ij", means[i][lag : lag + n], w[:n] * means[j][:n])

            return total(after) - total(before)

        z, y = after
        Szu = jnp.einsum("tin,tjn->ij", z, w * self.u)
        S0u = jnp.einsum("tin,tjn->ij", z[:-1], (w * self.u)[1:])
        M1 = s.M1 + change(0, 0, w[:1])
        Szz = s.Szz + change(0, 0, w)
        sums = data_sums(y, self.weights, jnp.ones_like(self.weights), self.u)
        z1u = z[0] @ (w * self.u)[0].T
        return s._replace(
            z1=(z[0] * self.weights).sum(1),
            M1=M1,
            S00=s.S00 + change(0, 0, goes_on),
            S10=s.S10 + change(0, 0, goes_on, lag=1),
            S11=Szz - M1,
            Szz=Szz,
            Syz=s.Syz + change(1, 0, w),
            Syy=s.Syy + change(1, 1, w),
            inputs=with_inputs(sums, InputMoments(z1u, S0u, Szu)),
        )


def expected_deviations(params: LDSParams, alpha: Array) -> tuple[Array, Array]:
    """Return E[z] (T, l, N) and E[y] (T, d, N) of a model without inputs from α (T, d, N), 0 at missing cells.

    At steps without an observed cell E[y_t] is C E[z_t].
    """
    A, C, Q, R, pi1, V1, *_ = params

    def back(r, alpha):
        return A.T @ r + C.T @ alpha, r

    nothing = jnp.zeros((A.shape[0], alpha.shape[2]), alpha.dtype)
    r0, r = lax.scan(back, nothing, alpha, reverse=True)

    def forth(z, r):
        return A @ z + Q @ r, z

    _, z = lax.scan(forth, pi1[:, None] + V1 @ r0, r)
    return z, C @ z + R @ alpha


def values_of(route: Any) -> tuple[Any, ...]:
    """Return the arrays of observations of a route."""
    return tuple(group.y for group in route.groups) if hasattr(route, "groups") else (route.y,)


def with_values(route: Any, ys: Any) -> Any:
    """Return a route with other observations."""
    if hasattr(route, "groups"):
        groups = zip(route.groups, ys, strict=True)
        return route._replace(groups=tuple(group._replace(y=y) for group, y in groups))
    return route._replace(y=ys[0])
