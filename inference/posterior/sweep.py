"""A sweep of spike and slab: every entry of A is put in or out, by the exact posterior.

With the other parameters θ moving along with A, log p(y, θ | A) is nearly quadratic in A. On the quadratic model of it,
γ and A of two entries can be drawn together in closed form, with A integrated out of γ; two, so that one may take the
other's place. A row of A is drawn so, pair after pair there and back, which is reversible; then it is accepted or
rejected by the exact density against its model. What is sampled is exact: only its speed depends on the model.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.flatten_util import ravel_pytree

from ...models.priors import EmbeddedSites, SpikeSlab
from .target import Free, Target, potential

SITE = "A_slab"


class Model(NamedTuple):
    """The quadratic model of log p(y | A, θ) + log p(θ), with θ moving along with A as it does in the posterior."""

    at: Array  # (k,), the centre, of the entries of A
    slope: Array  # (m, k): θ moves by slope · dA
    curvature: Array  # (k, k), in A


def spike_slab(target: Target) -> SpikeSlab | None:
    """Return the spike and slab prior of a target, or None."""
    prior = target.prior.prior if isinstance(target.prior, EmbeddedSites) else target.prior
    return prior if isinstance(prior, SpikeSlab) and "A" not in target.priors else None


def all_included(target: Target) -> Target:
    """Return a target of spike and slab with every entry included: what NUTS samples before the first sweep."""
    prior = spike_slab(target)
    if prior is None:
        return target
    included = target.prior.start(target.params.A)["included"]
    return target._replace(given=_given(jnp.ones_like(included), jnp.asarray(0.5)))


def quadratic_model(z: dict[str, Array], covariance: np.ndarray, prior: SpikeSlab) -> Model:
    """Return the model of a posterior with every entry included, from its mean and covariance, the slab taken off."""
    own = entries_of_A(z)
    among = np.linalg.inv(covariance[np.ix_(own, own)])
    values, vectors = np.linalg.eigh(among - np.eye(len(among)) / float(prior.slab) ** 2)
    curvature = (vectors * np.maximum(values, 1e-6 * values.max())) @ vectors.T
    slope = covariance[np.ix_(~own, own)] @ among
    at = ravel_pytree(z)[0][own]
    return Model(*(jnp.asarray(x, at.dtype) for x in (at, slope, curvature)))


def entries_of_A(z: dict[str, Array]) -> np.ndarray:
    """Tell which of all coordinates of z are entries of A."""
    return np.asarray(
        ravel_pytree({k: jnp.full(jnp.shape(x), k == SITE) for k, x in z.items()})[0], bool
    )


def sweep(key: Array, z: dict[str, Array], target: Target, free: Free, model: Model):
    """Return z and the given γ and ω after a sweep over all rows of A."""
    prior = spike_slab(target)
    assert prior is not None
    included, omega = target.given["included"], target.given["omega"]
    k, n = included.shape[-1], included.size
    whole = target._replace(given=_given(jnp.ones_like(included), omega))
    rest, unravel = ravel_pytree({name: x for name, x in z.items() if name != SITE})
    always = jnp.asarray(prior._always(k).ravel())

    first = jnp.where(included, z[SITE], 0.0).ravel()
    origin = model.at

    def moved(v):
        return {**unravel(rest + model.slope @ (v - first)), SITE: v.reshape(k, k)}

    def log_likelihood(v):  # and log p(θ); the slab of all entries is taken off again
        return 0.5 * jnp.sum(v**2) / prior.slab**2 - potential(moved(v), whole, free)

    gradient = jax.grad(log_likelihood)(origin)
    odds = jnp.log(omega) - jnp.log1p(-omega)

    def excess(v):  # the likelihood over its model
        E = v - origin
        return log_likelihood(v) - (gradient @ E - 0.5 * E @ model.curvature @ E)

    def row(i, carry):
        key, v, here = carry
        key, order, *draws, coin = random.split(key, 5)
        pairs = i * k + _pairs(random.permutation(order, k))
        noise = random.gumbel(draws[0], (len(pairs), 4)), random.normal(draws[1], (len(pairs), 2))
        new, _ = lax.scan(pair, v, (pairs, *noise))
        there = excess(new)
        accept = jnp.log(random.uniform(coin)) < there - here
        v, here = jax.tree.map(partial(jnp.where, accept), (new, there), (v, here))
        return key, v, here

    def pair(v, x):
        at, choice, noise = x
        h = model.curvature[at]  # (2, n)
        own = h[:, at]
        linear = gradient[at] - h @ (v - origin) + own @ v[at]
        fixed = always[at]
        if k == 1:  # beside a second entry of no consequence
            linear, own = jnp.append(linear, 0.0), jnp.diag(jnp.append(own.ravel(), 1.0))
            fixed = jnp.append(fixed, False)
        drawn = _two_entries(choice, noise, linear, own, odds, prior.slab, fixed)
        return v.at[at].set(drawn[:k]), None

    key, slab, omega_key = random.split(key, 3)
    _, v, _ = lax.fori_loop(0, k, row, (key, first, excess(first)))
    inside = (v != 0) | always
    count = jnp.sum(inside & ~always)
    omega = random.beta(omega_key, prior.a + count, prior.b + (n - always.sum()) - count)
    unused = prior.slab * random.normal(slab, (n,))
    z = {**moved(v), SITE: jnp.where(inside, v, unused).reshape(k, k).astype(z[SITE].dtype)}
    return z, _given(inside.reshape(k, k), omega)


def _pairs(order: Array) -> Array:
    """Return neighbours in an order of the k entries of a row, there and back, (2 (k - 1), 2); (1, 1) for k = 1."""
    if len(order) == 1:
        return order[None]
    there = jnp.stack([order[:-1], order[1:]], axis=1)
    return jnp.concatenate([there, there[::-1]])


def _two_entries(choice, noise, linear, curvature, odds, slab, always) -> Array:
    """Draw two entries under exp(linear · v - ½ v' curvature v), each 0 or from the slab; (2,).

    `choice` (4,) is Gumbel noise that chooses which of them are included, `noise` (2,) is normal.
    """
    s = jnp.asarray([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
    # an entry left out has precision 1 and mean 0, and is set to 0 in the end
    p1, p2 = (jnp.where(s[:, i] > 0, curvature[i, i] + slab**-2, 1.0) for i in (0, 1))
    p12, b = curvature[0, 1] * s[:, 0] * s[:, 1], linear * s
    det = p1 * p2 - p12**2
    mean = jnp.stack([p2 * b[:, 0] - p12 * b[:, 1], p1 * b[:, 1] - p12 * b[:, 0]], 1) / det[:, None]
    count = s.sum(1)
    weight = 0.5 * (b * mean).sum(1) - 0.5 * jnp.log(det) + count * (odds - jnp.log(slab))
    weight = jnp.where(((s == 0) & always).any(1), -jnp.inf, weight)
    c = jnp.argmax(weight + choice)
    second = noise[1] * jnp.sqrt(p1[c] / det[c])
    first = (noise[0] - p12[c] / jnp.sqrt(p1[c]) * second) / jnp.sqrt(p1[c])
    return s[c] * (mean[c] + jnp.stack([first, second]))


def _given(included: Array, omega: Array) -> dict[str, Array]:
    """Return γ and ω as values of their sites."""
    tiny = 1e-6  # ω = 0 or 1 would have infinite log odds
    return {"included": included.astype(jnp.int32), "omega": jnp.clip(omega, tiny, 1 - tiny)}
