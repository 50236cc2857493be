"""A sweep of spike and slab: every entry of A, or of B, is put in or out, by the exact posterior.

With the other parameters θ moving along with A, log p(y, θ | A) is nearly quadratic in A. On the quadratic model of it,
γ and A of two entries can be drawn together in closed form, with A integrated out of γ; two, so that one may take the
other's place. A row of A is drawn so, pair after pair there and back, which is reversible; then it is accepted or
rejected by the exact density against its model. What is sampled is exact: only its speed depends on the model.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.flatten_util import ravel_pytree

from ...models.priors import EmbeddedSites, InputSpikes, SpikeSlab
from .target import Free, Target, potential

SITES = ("A_slab", "B_slab")  # coordinates of spike and slab on A, and on B
GIVEN = {"A_slab": ("included", "omega"), "B_slab": ("included_B", "omega_B")}


class Model(NamedTuple):
    """The quadratic model of log p(y | A, θ) + log p(θ), with θ moving along with A as it does in the posterior.

    Entries are those of [A B] with a spike, counted by rows.
    """

    at: Array  # (n,), the centre, of the entries
    slope: Array  # (m, n): θ moves by slope · dA
    curvature: Array  # (n, n), in the entries


class Spikes(NamedTuple):
    """Spike and slab on one parameter: a matrix of k rows."""

    site: str
    prior: SpikeSlab
    width: Any  # of the slab: a number, or one for each entry
    always: Any  # (k, columns), the entries that are always included


def spikes_of(target: Target) -> list[Spikes]:
    """Return the spike and slab priors of a target, on A and on B."""
    found, k = [], target.params.n_states
    prior = spike_slab(target)
    if prior is not None:
        k -= getattr(target.prior, "n_static", 0)
        found.append(Spikes("A_slab", prior, prior.slab, prior._always(k)))
    inputs = target.priors.get("B")
    if isinstance(inputs, InputSpikes):
        none = np.zeros(jnp.shape(inputs.scale), bool)
        found.append(Spikes("B_slab", inputs.prior, inputs.widths, none))
    return found


def spike_slab(target: Target) -> SpikeSlab | None:
    """Return the spike and slab prior on A of a target, or None."""
    prior = target.prior.prior if isinstance(target.prior, EmbeddedSites) else target.prior
    return prior if isinstance(prior, SpikeSlab) and "A" not in target.priors else None


def all_included(target: Target) -> Target:
    """Return a target of spike and slab with every entry included: what NUTS samples before the first sweep."""
    given = dict(target.given)
    for spikes in spikes_of(target):
        given |= _given(spikes.site, jnp.ones(spikes.always.shape), jnp.asarray(0.5))
    return target._replace(given=given)


def quadratic_model(z: dict[str, Array], covariance: np.ndarray, target: Target) -> Model:
    """Return the model of a posterior with every entry included, from its mean and covariance, the slab taken off."""
    own = entries(z)
    rest = np.setdiff1d(np.arange(len(covariance)), own)
    among = np.linalg.inv(covariance[np.ix_(own, own)])
    values, vectors = np.linalg.eigh(among - np.diag(np.asarray(_widths(spikes_of(target))) ** -2))
    curvature = (vectors * np.maximum(values, 1e-6 * values.max())) @ vectors.T
    slope = covariance[np.ix_(rest, own)] @ among
    at = ravel_pytree(z)[0][own]
    return Model(*(jnp.asarray(x, at.dtype) for x in (at, slope, curvature)))


def entries(z: dict[str, Array]) -> np.ndarray:
    """Return where the entries with a spike, by the rows of [A B], are among all coordinates of z."""
    sizes = {k: int(np.prod(jnp.shape(x))) for k, x in sorted(z.items())}
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    parts = [first[k] + np.arange(sizes[k]).reshape(jnp.shape(z[k])) for k in SITES if k in z]
    return np.concatenate(parts, axis=1).ravel()


def widths(target: Target, z: dict[str, Array]) -> dict[str, Array]:
    """Return the widths of the slabs as coordinates like z have them, by site."""
    return {
        s.site: jnp.broadcast_to(jnp.asarray(s.width, z[s.site].dtype), z[s.site].shape)
        for s in spikes_of(target)
    }


def sweep(key: Array, z: dict[str, Array], target: Target, free: Free, model: Model):
    """Return z and the given γ and ω after a sweep over all rows of [A B]."""
    every = spikes_of(target)
    c, n = sum(s.always.shape[1] for s in every), sum(s.always.size for s in every)
    ends = np.cumsum([s.always.shape[1] for s in every])[:-1].tolist()
    omegas = [target.given[GIVEN[s.site][1]] for s in every]
    whole = target._replace(given=dict(target.given))
    for s, omega in zip(every, omegas, strict=True):
        whole.given.update(_given(s.site, jnp.ones(s.always.shape), omega))
    rest, unravel = ravel_pytree({name: x for name, x in z.items() if name not in SITES})
    always = np.concatenate([s.always for s in every], axis=1).ravel()
    slab = _widths(every).astype(rest.dtype)
    odds = _by_rows(every, [jnp.log(omega) - jnp.log1p(-omega) for omega in omegas])

    def parted(v):  # by site, (k, columns) each
        return jnp.split(v.reshape(-1, c), ends, axis=1)

    inside = [jnp.where(target.given[GIVEN[s.site][0]], z[s.site], 0.0) for s in every]
    first = jnp.concatenate(inside, axis=1).ravel()
    origin = model.at

    def moved(v):
        own = {s.site: x for s, x in zip(every, parted(v), strict=True)}
        return {**unravel(rest + model.slope @ (v - first)), **own}

    def log_likelihood(v):  # and log p(θ); the slab of all entries is taken off again
        return 0.5 * jnp.sum((v / slab) ** 2) - potential(moved(v), whole, free)

    gradient = jax.grad(log_likelihood)(origin)

    def excess(v):  # the likelihood over its model
        E = v - origin
        return log_likelihood(v) - (gradient @ E - 0.5 * E @ model.curvature @ E)

    def row(i, carry):
        key, v, here = carry
        key, order, *draws, coin = random.split(key, 5)
        pairs = i * c + _pairs(random.permutation(order, c))
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
        mine = odds[at], slab[at], jnp.asarray(always)[at]
        if c == 1:  # beside a second entry of no consequence
            linear, own = jnp.append(linear, 0.0), jnp.diag(jnp.append(own.ravel(), 1.0))
            mine = *(jnp.append(x, 1.0) for x in mine[:2]), jnp.append(mine[2], False)
        drawn = _two_entries(choice, noise, linear, own, *mine)
        return v.at[at].set(drawn[:c]), None

    key, unused_key, omega_key = random.split(key, 3)
    _, v, _ = lax.fori_loop(0, n // c, row, (key, first, excess(first)))
    unused = slab * random.normal(unused_key, (n,), slab.dtype)
    inside = (v != 0) | always
    z, given = {**moved(v)}, {}
    parts = zip(every, parted(inside), parted(jnp.where(inside, v, unused)), strict=True)
    for i, (s, included, u) in enumerate(parts):
        count = jnp.sum(included & ~s.always)
        others = s.prior.b + (s.always.size - s.always.sum()) - count
        key = omega_key if i == 0 else random.fold_in(omega_key, i)
        omega = random.beta(key, s.prior.a + count, others)
        z[s.site] = u.astype(z[s.site].dtype)
        given |= _given(s.site, included, omega)
    return z, given


def _by_rows(every: list[Spikes], values: list) -> Array:
    """Return values of the parameters, a number or a matrix each, for all entries by the rows of [A B]."""
    full = [
        jnp.broadcast_to(jnp.asarray(x), s.always.shape) for s, x in zip(every, values, strict=True)
    ]
    return jnp.concatenate(full, axis=1).ravel()


def _widths(every: list[Spikes]) -> Array:
    """Return the widths of the slabs of all entries, by the rows of [A B]."""
    return _by_rows(every, [s.width for s in every])


def _pairs(order: Array) -> Array:
    """Return neighbours in an order of the k entries of a row, there and back, (2 (k - 1), 2); (1, 1) for k = 1."""
    if len(order) == 1:
        return order[None]
    there = jnp.stack([order[:-1], order[1:]], axis=1)
    return jnp.concatenate([there, there[::-1]])


def _two_entries(choice, noise, linear, curvature, odds, slab, always) -> Array:
    """Draw two entries under exp(linear · v - ½ v' curvature v), each 0 or from the slab; (2,).

    `choice` (4,) is Gumbel noise that chooses which of them are included, `noise` (2,) is normal; log `odds` and widths
    of the `slab` are (2,).
    """
    s = jnp.asarray([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
    # an entry left out has precision 1 and mean 0, and is set to 0 in the end
    p1, p2 = (jnp.where(s[:, i] > 0, curvature[i, i] + slab[i] ** -2, 1.0) for i in (0, 1))
    p12, b = curvature[0, 1] * s[:, 0] * s[:, 1], linear * s
    det = p1 * p2 - p12**2
    mean = jnp.stack([p2 * b[:, 0] - p12 * b[:, 1], p1 * b[:, 1] - p12 * b[:, 0]], 1) / det[:, None]
    weight = 0.5 * (b * mean).sum(1) - 0.5 * jnp.log(det) + s @ (odds - jnp.log(slab))
    weight = jnp.where(((s == 0) & always).any(1), -jnp.inf, weight)
    c = jnp.argmax(weight + choice)
    second = noise[1] * jnp.sqrt(p1[c] / det[c])
    first = (noise[0] - p12[c] / jnp.sqrt(p1[c]) * second) / jnp.sqrt(p1[c])
    return s[c] * (mean[c] + jnp.stack([first, second]))


def _given(site: str, included: Array, omega: Array) -> dict[str, Array]:
    """Return γ and ω as values of their sites."""
    tiny = 1e-6  # ω = 0 or 1 would have infinite log odds
    values = included.astype(jnp.int32), jnp.clip(omega, tiny, 1 - tiny)
    return dict(zip(GIVEN[site], values, strict=True))
