"""Rotations drawn apart: the volume against differences, the density of W against quadrature and Haar draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import kstest, ortho_group

from sparse_lds.inference import fit_map, sample_posterior
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.frame import (
    frame_of,
    into_frame,
    log_volume,
    out_of_frame,
    turned,
)
from sparse_lds.models import GammaLaplace, Laplace, LDSParams, simulate

PRIOR = GammaLaplace(1.0, 0.1)


def system(l, d, seed=0):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(0, 0.4, (l, l)), rng.normal(size=(d, l))
    R = np.cov(rng.normal(size=(d, 3 * d)))
    return LDSParams(A, C, np.eye(l), R, np.zeros(l), np.eye(l))


@pytest.mark.parametrize("l, d", [(2, 3), (3, 2), (4, 4)])
def test_coordinates_go_there_and_back_and_no_rotation_is_closer(l, d):
    params = system(l, d)
    frame = frame_of(params)
    assert frame is not None
    z = {"A": jnp.asarray(params.A), "C": jnp.asarray(params.C), "R": jnp.ones(3)}
    back = out_of_frame(frame, into_frame(frame, z))
    np.testing.assert_allclose(back["A"], params.A, atol=1e-12)  # the fit is in its own frame
    np.testing.assert_allclose(back["C"], params.C, atol=1e-12)
    rng = np.random.default_rng(1)
    q = into_frame(frame, z)["frame"]
    x = out_of_frame(frame, {"frame": q + 0.02 * rng.normal(size=q.shape)})
    A, C = np.asarray(x["A"]), np.asarray(x["C"])
    assert np.isfinite(log_volume(frame, x["A"], x["C"]))

    def distance(W):
        dA, dC = W @ A @ W.T - params.A, C @ W.T - params.C
        return (dA**2).sum() + np.trace(dC.T @ np.linalg.inv(params.R) @ dC)

    for _ in range(50):
        X = 0.02 * rng.normal(size=(l, l))
        assert distance(np.eye(l)) < distance(expm(X - X.T))


@pytest.mark.parametrize("l, d", [(2, 3), (3, 2), (4, 4)])
def test_volume_is_that_of_finite_differences(l, d):
    params = system(l, d)
    frame = frame_of(params)
    assert frame is not None
    rng, n = np.random.default_rng(2), l * (l - 1) // 2
    centre = np.asarray(into_frame(frame, {"A": params.A, "C": params.C})["frame"])  # type: ignore[arg-type]

    def rotated(omega, q):  # W = exp(Ω), near I, where Haar's measure is that of Ω
        W = expm(np.einsum("a,aij->ij", omega, np.asarray(frame.generators)))
        x = out_of_frame(frame, {"frame": jnp.asarray(q)})
        return np.concatenate([(W @ x["A"] @ W.T).ravel(), (x["C"] @ W.T).ravel()])

    def by_differences(q, h=1e-5):
        point = np.concatenate([np.zeros(n), q])
        columns = []
        for i in range(len(point)):
            e = h * np.eye(len(point))[i]
            ends = [rotated(*np.split(point + s * e, [n])) for s in (1, -1)]
            columns.append((ends[0] - ends[1]) / (2 * h))
        return np.linalg.slogdet(np.array(columns))[1]

    def ours(q):
        x = out_of_frame(frame, {"frame": jnp.asarray(q)})
        return float(log_volume(frame, x["A"], x["C"]))

    points = [centre + 0.1 * rng.normal(size=centre.shape) for _ in range(4)]
    gaps = [by_differences(q) - ours(q) for q in points]
    assert np.ptp([ours(q) for q in points]) > 0.05
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-7)  # a constant is of no consequence


def many_turns(A, steps, chains):
    """Return W of chains that begin at Haar's distribution, (chains, l, l)."""
    start = jnp.asarray(ortho_group.rvs(len(A), chains, random_state=0))

    @jax.jit
    def run(key, W):
        return jax.lax.fori_loop(
            0, steps, lambda i, W: turned(jax.random.fold_in(key, i), jnp.asarray(A), W, PRIOR), W
        )

    return np.asarray(jax.vmap(run)(jax.random.split(jax.random.key(1), chains), start))


def test_angle_has_its_density():
    A = np.array([[0.9, 0.1], [0.0, 0.1]])
    W = many_turns(A, 4, 2000)
    np.testing.assert_allclose(W @ np.swapaxes(W, 1, 2), np.broadcast_to(np.eye(2), W.shape), atol=1e-12)  # fmt: skip
    proper = W[np.linalg.det(W) > 0]
    quarter = np.pi / 2  # after which the size of the entries is the same again
    angles = np.arctan2(proper[:, 1, 0], proper[:, 0, 0]) % quarter
    grid = np.linspace(0, quarter, 20001)
    G = np.array([[np.cos(grid), -np.sin(grid)], [np.sin(grid), np.cos(grid)]]).transpose(2, 0, 1)
    size = np.abs(G @ A @ np.swapaxes(G, 1, 2)).sum((1, 2))
    density = (0.1 + size) ** -(1.0 + 4)  # β integrated out, by hand
    below = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kstest(angles, lambda x: np.interp(x, grid, below / below[-1])).pvalue > 0.01
    assert kstest(angles, lambda x: x / quarter).pvalue < 1e-6  # which could fail


def test_three_states_have_the_density_of_weighted_haar_draws():
    A = np.array([[0.9, 0.4, 0.0], [-0.3, 0.2, 0.1], [0.0, 0.5, 0.6]])

    def size(W):
        return np.abs(W @ A @ np.swapaxes(W, 1, 2)).sum((1, 2))

    ours = size(many_turns(A, 6, 3000))
    haar = size(ortho_group.rvs(3, 200_000, random_state=1))
    weight = (0.1 + haar) ** -(1.0 + 9)
    mean = np.average(haar, weights=weight)
    error = np.hypot(
        ours.std() / np.sqrt(len(ours)),
        np.sqrt((weight**2 * (haar - mean) ** 2).sum()) / weight.sum(),
    )
    assert abs(ours.mean() - mean) < 4 * error
    assert abs(haar.mean() - mean) > 10 * error  # Haar's alone is another


def test_states_that_are_alike_have_no_frame():
    params = system(3, 3)
    A, C = np.zeros((3, 3)), np.array(params.C)
    C[:, 1:] = 0.0  # two states that nothing shows
    A[0, 0] = 0.9
    assert frame_of(params._replace(A=A, C=C)) is None


def test_a_free_basis_is_explored_in_few_gradients():
    C = np.eye(3) + 0.3 * np.roll(np.eye(3), 1, axis=1)
    truth = system(3, 3)._replace(A=np.diag([0.9, 0.6, 0.3]), C=2 * C, R=0.2 * np.eye(3))
    cohort = simulate(jax.random.key(0), truth, [30] * 30).cohort
    fit = fit_map(cohort, 3, Laplace(5.0), Q="identity", priors="weak")
    posterior = sample_posterior(
        jax.random.key(1), cohort, fit, num_samples=200, num_chains=2, num_predictive=0
    )
    stats, data = az.group(posterior, "sample_stats"), az.group(posterior, "posterior")
    assert "frame" not in data and data["A"].shape == (2, 200, 3, 3)
    assert float(stats["n_steps"].mean()) < 60  # some hundreds along the ridge
    assert int(stats["diverging"].sum()) <= 2
