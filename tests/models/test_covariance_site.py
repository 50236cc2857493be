"""Covariances as NumPyro sites: restricted inverse-Wishart densities, and the coordinates of their factors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to

from sparse_lds.models.covariance_site import BlockInverseWishart

SHAPES = {
    "full": ((3,), 3),
    "diagonal": ((1, 1, 1), 3),
    "two blocks": ((2, 1), 3),
    "without noise": ((3,), 5),
    "diagonal, without noise": ((1, 1, 1), 5),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def site(request):
    blocks, size = request.param
    psi = np.diag([0.4, 1.5, 3.0]) + 0.1
    return BlockInverseWishart(5.0, psi, blocks, size)


def test_coordinates_go_there_and_back_with_their_jacobian(site):
    S = site.sample(jax.random.key(0))
    assert bool(site.support(S)) and not bool(site.support(S - 10 * jnp.eye(len(S))))
    chart = biject_to(site.support)
    x = chart._inverse(S)
    assert x.shape == chart.inverse_shape(S.shape) and chart.forward_shape(x.shape) == S.shape
    np.testing.assert_allclose(chart(x), S, rtol=1e-10, atol=1e-12)
    J = np.asarray(jax.jacobian(chart)(x))
    rows = [at for at in zip(*np.tril_indices(len(S)), strict=True) if np.abs(J[at]).max() > 0]
    determinant = np.linalg.slogdet(np.array([J[at] for at in rows]))[1]
    assert float(chart.log_abs_det_jacobian(x, S)) == pytest.approx(determinant, abs=1e-8)


def test_the_density_is_the_restricted_one(site):
    """Differences of log densities are those of the whole inverse-Wishart distribution."""
    whole = dist.InverseWishart(5.0, scale_matrix=site.scale_matrix)
    draws = site.sample(jax.random.key(1), (4,))
    ours = np.array([float(site.log_prob(S)) for S in draws])
    theirs = np.array([float(whole.log_prob(S[:3, :3])) for S in draws])
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-8)


def test_draws_have_the_density():
    """One block of one dimension is an inverse gamma distribution, whose mean is known."""
    site = BlockInverseWishart(6.0, np.diag([2.0, 5.0]), (1, 1))
    draws = np.asarray(site.sample(jax.random.key(0), (20_000,)))
    # InverseGamma((6 + 1) / 2, Ψ / 2) has mean (Ψ / 2) / (3.5 - 1)
    np.testing.assert_allclose(
        draws[:, [0, 1], [0, 1]].mean(0), np.array([1.0, 2.5]) / 2.5, rtol=0.05
    )
    assert (draws[:, 0, 1] == 0).all()
    with pytest.raises(ValueError, match="do not make up"):
        BlockInverseWishart(6.0, np.eye(3), (1, 1))
