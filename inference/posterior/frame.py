"""Rotations of the states, drawn apart from the rest where the likelihood does not tell them (Q = I, C free).

With z → Wz, W orthogonal, the likelihood and all priors but that on A stay as they are: a posterior in such a basis is
a curved ridge, along which NUTS would creep. So a draw is written x = W · x0, with x0 in the frame of the fit: among
all rotations of x0 none nearby is closer to the fit. Distances are ‖A - A*‖² + tr (C - C*)' R*⁻¹ (C - C*), of which
rotations keep every length, so that frames are the *linear* space of the x0 that are orthogonal to Ω · x* for every
antisymmetric Ω. In coordinates of that space NUTS meets no ridge. The volume of x is that of x0 times Haar's of W,
times

    det J(x0),  J_ab = <Ω_a · x0, Ω_b · x*>,

which is symmetric there, and positive definite where x0 is a closest rotation and not a farthest one. Given x0, W has
the density p_A(W A0 W'), which costs no likelihood: it is drawn by turns in planes, each by slice sampling on the
circle. What is sampled is the same posterior.
"""

from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.scipy.linalg import solve_triangular

from ...models import LDSParams, Prior

SITE = "frame"  # the coordinates of A and C, and the name of W among what is given
SWEEPS = 3  # over all planes, before each step of NUTS
_LEAST = 1e-3  # of the eigenvalues of J at the fit to the largest: else two states cannot be told from each other
_SHRINKS = 100


class Frame(NamedTuple):
    """The frame of a fit, for l states and d channels; n = l (l - 1) / 2."""

    generators: Array  # (n, l, l): Ω_a
    orbit: Array  # (n, l l + d l): Ω_b · x*
    basis: Array  # (l l + d l - n, l l + d l): orthonormal, all that is orthogonal to the orbit
    root: Array  # (d, d): R* = root root'


def frame_of(params: LDSParams) -> Frame | None:
    """Return the frame of a fit; None if a rotation hardly moves it."""
    l = params.n_states
    generators = np.zeros((l * (l - 1) // 2, l, l))
    for a, (i, j) in enumerate(combinations(range(l), 2)):
        generators[a, i, j], generators[a, j, i] = -1.0, 1.0
    root = np.linalg.cholesky(np.asarray(params.R, float))
    A, C = np.asarray(params.A, float), np.linalg.solve(root, np.asarray(params.C, float))
    orbit = np.asarray(_moves(generators, A, C))
    values = np.linalg.eigvalsh(orbit @ orbit.T)
    if l < 2 or values[0] < _LEAST * values[-1]:
        return None
    basis = np.linalg.svd(orbit)[2][len(orbit) :]
    return Frame(*(jnp.asarray(x, params.A.dtype) for x in (generators, orbit, basis, root)))


def into_frame(frame: Frame, z: dict[str, Array]) -> dict[str, Array]:
    """Return coordinates z with A and C, which are in the frame, as coordinates of the frame."""
    x = _packed(z["A"], solve_triangular(frame.root, z["C"], lower=True))
    return {**_others(z, "A", "C"), SITE: frame.basis @ x}


def out_of_frame(frame: Frame, z: dict[str, Array]) -> dict[str, Array]:
    """Return coordinates z with A and C in place of the coordinates of the frame."""
    l = frame.generators.shape[-1]
    A, C = jnp.split(frame.basis.T @ z[SITE], [l * l])
    return {**_others(z, SITE), "A": A.reshape(l, l), "C": frame.root @ C.reshape(-1, l)}


def log_volume(frame: Frame, A: Array, C: Array) -> Array:
    """Return log det J at A and C in the frame; NaN where they are not a closest rotation."""
    J = _moves(frame.generators, A, solve_triangular(frame.root, C, lower=True)) @ frame.orbit.T
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky((J + J.T) / 2))))


def tilt(z: dict[str, Array], W: Array, frame: Frame, prior: Prior) -> Array:
    """Return -log p_A(W A0 W') at coordinates z of the frame."""
    return -prior.log_prob(W @ out_of_frame(frame, z)["A"] @ W.T)


def turned(key: Array, A: Array, W: Array, prior: Prior) -> Array:
    """Return W after sweeps of turns, which leave the density p_A(W A W') as it is."""
    l = len(A)
    planes = np.tile(np.array(list(combinations(range(l), 2))), (SWEEPS, 1))
    sides = jnp.asarray(np.eye(l)[planes], A.dtype)  # (turns, 2, l)

    def turn(carry, given):
        X, W = carry
        (e, f), key = given
        level, first, rest = random.split(key, 3)

        def by(angle):
            cos, sin = jnp.cos(angle) - 1, jnp.sin(angle)
            plane = cos * (jnp.outer(e, e) + jnp.outer(f, f))
            return jnp.eye(l, dtype=A.dtype) + plane + sin * (jnp.outer(f, e) - jnp.outer(e, f))

        def density(angle):
            G = by(angle)
            return prior.log_prob(G @ X @ G.T)

        floor = prior.log_prob(X) + jnp.log(random.uniform(level, dtype=A.dtype))
        angle = random.uniform(first, dtype=A.dtype, maxval=2 * np.pi)

        def outside(state):
            n, angle, *_ = state
            return (density(angle) <= floor) & (n < _SHRINKS)

        def shrunk(state):
            n, angle, low, high = state
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            key = random.fold_in(rest, n)
            return n + 1, random.uniform(key, (), A.dtype, low, high), low, high

        n, angle, *_ = lax.while_loop(outside, shrunk, (0, angle, angle - 2 * np.pi, angle))
        G = by(jnp.where(n < _SHRINKS, angle, 0.0))
        return (G @ X @ G.T, G @ W), None

    start = W @ A @ W.T, W
    (_, W), _ = lax.scan(turn, start, (sides, random.split(key, len(sides))))
    return 1.5 * W - 0.5 * W @ W.T @ W  # orthogonal again, to rounding


def _moves(generators, A, C) -> Array:
    """Return Ω · (A, C) for each generator, packed."""
    dA, dC = generators @ A - A @ generators, -C @ generators
    return jax.vmap(_packed)(jnp.asarray(dA), jnp.asarray(dC))


def _packed(A: Array, C: Array) -> Array:
    """Return A and C as one vector."""
    return jnp.concatenate([A.ravel(), C.ravel()])


def _others(z: dict[str, Array], *names: str) -> dict[str, Array]:
    """Return z without some of its names."""
    return {name: x for name, x in z.items() if name not in names}
