"""The M-step of A: Theorem 1, optimality, and indifference to the units of the states."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import beta_max
from sparse_lds.inference.proximal import (
    kkt_residual,
    prox_step,
    proximal_gradient,
    quadratic,
    solve,
    theorem1_step,
    tight_step,
)
from sparse_lds.models import GroupLaplace, Laplace

L = 10
PRIORS = [Laplace(3.0), GroupLaplace(50.0, "rows"), GroupLaplace(50.0, "columns")]
every_prior = pytest.mark.parametrize("prior", PRIORS, ids=lambda p: p.blocks)


def problem(seed, l=L, n=200):
    """An M-step as it comes from an E-step: moments of states that follow a sparse A."""
    rng = np.random.default_rng(seed)
    A = np.where(rng.random((l, l)) < 0.3, rng.normal(size=(l, l)), 0.0)
    A *= 0.9 / max(0.5, np.abs(np.linalg.eigvals(A)).max())
    F = 0.3 * rng.normal(size=(l, l)) / np.sqrt(l) + np.eye(l)
    Q = F @ F.T
    z = [rng.normal(size=l)]
    for _ in range(n):
        z.append(A @ z[-1] + F @ rng.normal(size=l))
    z = np.array(z)
    return quadratic(Q, z[:-1].T @ z[:-1], z[1:].T @ z[:-1]), Q


value = jax.jit(lambda g, prior, A: g.value(A) + prior.value(A))
step_once = jax.jit(prox_step)
minimise, plainly = jax.jit(solve), jax.jit(proximal_gradient)


@every_prior
def test_theorem_1_bound_holds_at_every_iteration(prior):
    """f(A_k) - f(A*) <= ‖A_0 - A*‖² / (2 α k)."""
    for seed in range(3):
        g, _ = problem(seed)
        best = minimise(g, prior, np.zeros((L, L)), tol=1e-13).A
        start = np.linalg.solve(g.S00, g.S10.T).T  # line 2 of Algorithm 1
        alpha = float(theorem1_step(g))
        distance = np.sum((start - best) ** 2)
        A = start
        for k in range(1, 200):
            A = step_once(g, prior, A, alpha)
            assert value(g, prior, A) - value(g, prior, best) <= distance / (2 * alpha * k) + 1e-9


@every_prior
def test_solution_is_optimal_by_subgradients(prior, close):
    """Not by the residual that the solver stops on: each block's subgradient condition."""
    for seed in range(3):
        g, Q = problem(seed)
        axis = {"entries": None, "rows": 1, "columns": 0}[prior.blocks]
        share = 0.02 if axis is None else 0.3
        prior = prior.scaled(share * float(beta_max(Q, g.S10, prior)))
        A = np.asarray(minimise(g, prior, np.zeros((L, L)), tol=1e-13).A)
        gradient = np.asarray(g.gradient(A))
        if axis is None:
            size, slope = np.abs(A), np.abs(gradient)
            direction = np.sign(A)
        else:
            size = np.linalg.norm(A, axis=axis, keepdims=True)
            slope = np.linalg.norm(gradient, axis=axis, keepdims=True)
            direction = A / np.where(size > 0, size, 1.0)
        off = size == 0
        assert off.any() and not off.all()
        assert (slope[off] <= prior.beta * (1 + 1e-6)).all()
        on = np.broadcast_to(~off, A.shape)
        close("subgradient", gradient[on], -prior.beta * direction[on], rtol=1e-6)


@every_prior
def test_default_solver_needs_ten_times_fewer_iterations(prior):
    """To a relative gap of 1e-8, from the same start: Theorem-1 steps are not there after ten times as many."""
    for seed in range(3):
        g, _ = problem(seed)
        best = float(value(g, prior, minimise(g, prior, np.zeros((L, L)), tol=1e-13).A))
        start = np.linalg.solve(g.S00, g.S10.T).T
        gap = 1e-8 * abs(best)

        def left(solver, k, g=g, start=start, best=best, **more):
            return value(g, prior, solver(g, prior, start, tol=0.0, max_iter=k, **more).A) - best

        fast = next(k for k in range(1, 2000) if left(minimise, k) <= gap)
        assert left(plainly, 10 * fast, step=theorem1_step(g)) > gap, fast


@every_prior
def test_beta_max_is_where_the_last_block_vanishes(prior):
    g, Q = problem(0)
    largest = float(beta_max(Q, g.S10, prior))
    assert not np.any(minimise(g, prior.scaled(1.0001 * largest), np.zeros((L, L))).A)
    assert np.any(minimise(g, prior.scaled(0.9999 * largest), np.zeros((L, L))).A)


def test_steps_are_ordered_and_all_reach_the_minimum(close):
    g, _ = problem(1, l=4)
    prior = Laplace(5.0)
    best = minimise(g, prior, np.zeros((4, 4)), tol=1e-12).A
    assert theorem1_step(g) <= tight_step(g)
    for step in (theorem1_step(g), tight_step(g)):
        plain = proximal_gradient(g, prior, np.zeros((4, 4)), step, tol=1e-12, max_iter=50_000)
        close("steps", plain.A, best, rtol=1e-8)


def test_units_of_the_states_do_not_matter(close):
    """Without a scalar penalty to tie them: β_ij follows the units of A_ij."""
    g, Q = problem(2, l=5)
    d = np.array([1e-3, 1.0, 50.0, 1e3, 0.2])
    scaled = quadratic(Q * np.outer(d, d), g.S00 * np.outer(d, d), g.S10 * np.outer(d, d))
    beta = np.full((5, 5), 4.0)
    one = minimise(g, Laplace(beta), np.zeros((5, 5)))
    other = minimise(scaled, Laplace(beta * d / d[:, None]), np.zeros((5, 5)))
    close("units", np.asarray(other.A) * d / d[:, None], one.A, rtol=1e-8)
    assert abs(int(one.n_iter) - int(other.n_iter)) <= 2
    A = np.ones((5, 5)) / 5
    close(
        "units",
        kkt_residual(scaled, Laplace(beta * d / d[:, None]), A * d[:, None] / d),
        kkt_residual(g, Laplace(beta), A),
        rtol=1e-9,
    )
