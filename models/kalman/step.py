"""One step of the Kalman filter for one sequence: to read, to teach, and to build on.

The fast kernels (`complete`, `gappy`) do the same arithmetic for many sequences at once; tests compare them with these
two functions, and these with dense Gaussian conditioning.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Real

from ..linalg import sym_last, whitener


class Gaussian(NamedTuple):
    """A state's distribution: z ~ N(mean, cov)."""

    mean: Real[Any, " l"]
    cov: Real[Any, "l l"]


class Update(NamedTuple):
    """A state's distribution after an observation, and the log density of that observation."""

    state: Gaussian
    log_likelihood: Real[Array, ""]  # log p(y_t | y_{1:t-1})


def predict(
    state: Gaussian,
    A: ArrayLike,
    Q: ArrayLike,
    B: ArrayLike | None = None,
    u: ArrayLike | None = None,
) -> Gaussian:
    """Return the distribution of the next state, z_{t+1} = A z_t + B u_{t+1} + e with e ~ N(0, Q); without B, no input.

    m → A m + B u,  P → A P A' + Q. `state` is z_t | y_{1:t} as (mean (l,), cov (l, l)), the result z_{t+1} | y_{1:t}.
    """
    m, P = map(jnp.asarray, state)
    A = jnp.asarray(A)
    m = A @ m if B is None else A @ m + jnp.asarray(B) @ jnp.asarray(u)
    return Gaussian(m, sym_last(A @ P @ A.T) + jnp.asarray(Q))


def update(
    state: Gaussian, y: ArrayLike, C: ArrayLike, R: ArrayLike, observed: ArrayLike | None = None
) -> Update:
    """Return z_t | y_{1:t} from z_t | y_{1:t-1} and y_t = C z_t + v with v ~ N(0, R), and log p(y_t | y_{1:t-1}).

    With inputs give y - D u for y.
    S = C P C' + R,  K = P C' S⁻¹,  m → m + K (y - C m),  P → (I - K C) P (I - K C)' + K R K'. A channel that is NaN in
    y (d,), or False in `observed` (d,), is missing; the others are used in full. Works under jit and vmap.

    >>> z, _ = update(Gaussian(jnp.zeros(1), jnp.eye(1)), y=[3.0], C=[[1.0]], R=[[0.5]])
    >>> round(float(z.mean[0]), 4), round(float(z.cov[0, 0]), 4)
    (2.0, 0.3333)
    """
    m, P = map(jnp.asarray, state)
    y, C, R = map(jnp.asarray, (y, C, R))
    seen = ~jnp.isnan(y) if observed is None else jnp.asarray(observed, bool)
    # a missing channel has a row of C of zeros, and a unit noise of its own
    C = jnp.where(seen[:, None], C, 0.0)
    R = jnp.where(seen[:, None] & seen, R, jnp.eye(len(y), dtype=R.dtype))
    innovation = jnp.where(seen, y, 0.0) - C @ m
    S = C @ P @ C.T + R
    W, logdet = whitener(sym_last(S))
    K = (W @ C @ P).T @ W
    rest = jnp.eye(len(m), dtype=P.dtype) - K @ C
    size = ((W @ innovation) ** 2).sum() + logdet + seen.sum() * jnp.log(2 * jnp.pi)
    return Update(
        Gaussian(m + K @ innovation, sym_last(rest @ P @ rest.T + K @ R @ K.T)), -size / 2
    )
