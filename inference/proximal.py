"""The M-step of A: a convex quadratic plus the prior's penalty, by proximal gradient steps.

    minimise f(A) = g(A) + h(A),   g(A) = ½ tr Q^-1 (A S00 A' - S10 A' - A S10'),   h = -log prior + const

which is equation 4 of the paper up to a constant, with gradient ∇g(A) = Q^-1 (A S00 - S10).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Real

from ..models import Laplace, Penalty
from ..models.linalg import sym


class Quadratic(NamedTuple):
    """The smooth part of the M-step of A: g(A) = ½ tr Λ (A S00 A' - S10 A' - A S10') with Λ = Q^-1."""

    precision: Real[Any, "l l"]  # Q^-1
    S00: Real[Any, "l l"]
    S10: Real[Any, "l l"]

    def value(self, A: Array) -> Array:
        """Return g(A)."""
        return 0.5 * jnp.sum(A * (self.precision @ (A @ self.S00 - 2 * self.S10)))

    def gradient(self, A: Array) -> Array:
        """Return ∇g(A)."""
        return self.precision @ (A @ self.S00 - self.S10)


class ProximalResult(NamedTuple):
    """The A that a proximal solver reached, after how many steps, and how far from optimal."""

    A: Real[Array, "l l"]
    n_iter: Real[Array, ""]
    kkt_residual: Real[Array, ""]  # relative, see `kkt_residual`


def quadratic(Q: Array, S00: Array, S10: Array) -> Quadratic:
    """Return g for the sums of an E-step."""
    eye = jnp.eye(Q.shape[0], dtype=Q.dtype)
    return Quadratic(sym(jnp.linalg.solve(Q, eye)), S00, S10)


def theorem1_step(g: Quadratic) -> Array:
    """Return the paper's step 1 / (‖Q^-1‖_F ‖S00‖_F): valid, and small."""
    return 1 / (jnp.linalg.norm(g.precision) * jnp.linalg.norm(g.S00))


def tight_step(g: Quadratic) -> Array:
    """Return 1 / (‖Q^-1‖₂ ‖S00‖₂), the inverse of the Lipschitz constant of ∇g."""
    return 1 / (_largest(g.precision) * _largest(g.S00))


def scaled_step(g: Quadratic, prior: Penalty) -> Array:
    """Return one step a block of A, (l, l), (l, 1), (1, l) or (): the tight step after scaling of the states.

    With D = diag(M) ‖diag(M)^-½ M diag(M)^-½‖₂ we have M ⪯ D, for M = Q^-1 and S00 alike, so that the Hessian
    S00 ⊗ Q^-1 is below a diagonal one: the step is valid, and insensitive to the units of single states. The step must
    not vary within a block of the prior.
    """
    rows, columns = _largest(g.precision), _largest(g.S00)
    if prior.blocks in ("entries", "rows"):
        rows = _diagonal_bound(g.precision)[:, None]
    if prior.blocks in ("entries", "columns"):
        columns = _diagonal_bound(g.S00)[None]
    return 1 / (rows * columns)


def _largest(M: Array) -> Array:
    """Return the largest eigenvalue."""
    return jnp.linalg.eigvalsh(M)[-1]


def _diagonal_bound(M: Array) -> Array:
    """Return the diagonal of the D ⪰ M in `scaled_step`, (l,)."""
    diagonal = jnp.maximum(jnp.diagonal(M), jnp.finfo(M.dtype).tiny)
    scale = jnp.sqrt(diagonal)
    return diagonal * _largest(M / (scale[:, None] * scale))


def prox_step(g: Quadratic, prior: Penalty, A: Array, step: Array) -> Array:
    """Return the prior's prox of A - step ∇g(A): line 6 of Algorithm 1."""
    return prior.prox(A - step * g.gradient(A), step)


def kkt_residual(g: Quadratic, prior: Penalty, A: Array, step: Array | None = None) -> Array:
    """Return how far A is from optimal, relative to A = 0 without a penalty; 0 if and only if A minimises f.

    The largest entry of the gradient mapping (A - prox(A - α ∇g, α)) / √α against that of √α ∇g(0): with the scaled
    step, which is the default, the units of the states do not matter.
    """
    step = scaled_step(g, prior) if step is None else step
    scale = jnp.abs(g.precision @ g.S10 * jnp.sqrt(step)).max()
    residual = jnp.abs((A - prox_step(g, prior, A, step)) / jnp.sqrt(step)).max()
    return residual / jnp.where(scale > 0, scale, 1.0)


def proximal_gradient(
    g: Quadratic,
    prior: Penalty,
    A: Array,
    step: Array,
    *,
    tol: float = 1e-10,
    max_iter: int = 10_000,
) -> ProximalResult:
    """Take plain steps of fixed size until the KKT residual is below tol: lines 3 to 7 of Algorithm 1."""

    def unfinished(state):
        _, k, residual = state
        return (residual > tol) & (k < max_iter)

    def body(state):
        A, k, _ = state
        A = prox_step(g, prior, A, step)
        return A, k + 1, kkt_residual(g, prior, A, step)

    start = A, jnp.asarray(0), kkt_residual(g, prior, A, step)
    return ProximalResult(*lax.while_loop(unfinished, body, start))


def solve(
    g: Quadratic, prior: Penalty, A: Array, *, tol: float = 1e-10, max_iter: int = 10_000
) -> ProximalResult:
    """Return the minimiser of f, by accelerated steps with restart (FISTA; O'Donoghue and Candès), from A.

    The momentum is dropped where it points uphill. Under a flat prior the answer is S10 S00^-1 at once.
    """
    if prior.is_flat:
        A = jnp.linalg.solve(g.S00, g.S10.T).T
        return ProximalResult(A, jnp.asarray(1), kkt_residual(g, prior, A))
    step = scaled_step(g, prior)

    def unfinished(state):
        *_, k, residual = state
        return (residual > tol) & (k < max_iter)

    def body(state):
        A, B, t, k, _ = state
        new = prox_step(g, prior, B, step)
        uphill = jnp.sum((B - new) / step * (new - A)) > 0
        t = jnp.where(uphill, 1.0, t)
        t_next = 0.5 * (1 + jnp.sqrt(1 + 4 * t**2))
        B = new + jnp.where(uphill, 0.0, (t - 1) / t_next) * (new - A)
        return new, B, t_next, k + 1, kkt_residual(g, prior, new, step)

    A = prior.prox(A, jnp.zeros((), A.dtype))  # forced entries are zero from the start
    start = A, A, jnp.ones((), A.dtype), jnp.asarray(0), kkt_residual(g, prior, A, step)
    A, _, _, k, residual = lax.while_loop(unfinished, body, start)
    return ProximalResult(A, k, residual)


def beta_max(
    Q: Array,
    S10: Array,
    prior: Penalty | None = None,
    S00: Array | None = None,
    A: Array | None = None,
) -> Array:
    """Return the smallest factor of the prior's β for which A at its centre M (0) is optimal in the M-step.

    That is the dual norm of ∇g(A) = Q^-1 (A S00 - S10): for `Laplace(1.0)`, the default, its largest entry, for groups
    the largest norm of a row or column. `A` is M by default; where entries are free, give it with their values. S00 is
    needed where A is not 0.
    """
    prior = Laplace(1.0) if prior is None else prior
    start = prior.center_of(len(Q)) if A is None else np.asarray(A)
    if start.any() and S00 is None:
        raise ValueError(f"the prior {prior!r} pulls A to another matrix than 0: give S00 too")
    toward = S10 - start @ S00 if start.any() else S10
    return prior.beta_max(jnp.linalg.solve(Q, toward))
