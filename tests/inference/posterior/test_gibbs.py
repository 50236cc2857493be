"""The full posterior against a Gibbs sampler that shares nothing with it: states drawn, every update conjugate.

States are drawn from their dense joint Gaussian, missing cells from theirs given the states, covariances from
inverse-Wishart distributions. Laplace entries are normal with variances of their own (Park and Casella, 2008); entries
of spike and slab are put in and out one by one. Many chains run at once, and the spread of their means is the error.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from sparse_lds.inference import fit_map, sample_posterior
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.free import site_priors
from sparse_lds.models import Cohort, GammaLaplace, Laplace, LDSParams, SpikeSlab, simulate

L, D, N, T = 2, 3, 8, 6
A = np.array([[0.7, 0.0], [0.3, 0.5]])
C = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, -0.5]])
WIDTH = 1.5  # of the entries of C, where they are sampled
SHAPES = {
    "Q": (L + 4.0, 2.0 * np.eye(L)),
    "R": (D + 4.0, 2.0 * np.eye(D)),
    "V1": (L + 4.0, 3.0 * np.eye(L)),
}


def gappy_cohort():
    """Return a cohort with a quarter of the cells missing, a whole step of one sequence among them."""
    truth = LDSParams(A, C, 0.4 * np.eye(L), 0.3 * np.eye(D), np.zeros(L), np.eye(L))
    y = np.array(simulate(jax.random.key(5), truth, [T] * N).cohort.y)
    y[np.random.default_rng(0).random(y.shape) < 0.25] = np.nan
    y[1, 3] = np.nan
    return truth, Cohort.from_sequences(list(y))


class Gibbs:
    """K chains side by side: every array has the chains as its first axis."""

    def __init__(self, y, prior, K, seed, free_basis=False, u=None, width=None):
        self.rng, self.prior, self.K = np.random.default_rng(seed), prior, K
        self.seen = np.isfinite(y)
        self.y = np.broadcast_to(np.where(self.seen, y, 0.0), (K, *y.shape)).copy()
        self.A = self.rng.normal(0, 0.3, (K, L, L))
        self.Q, self.R, self.V1 = (self.covariance(name, 0, 0.0) for name in ("Q", "R", "V1"))
        self.pi1 = self.rng.normal(0, 1, (K, L))
        self.u = np.zeros((N, T, 0)) if u is None else np.asarray(u)  # 0 at the first steps
        self.B, self.width = np.zeros((K, L, self.u.shape[-1])), width
        self.C, self.free_basis = np.broadcast_to(C, (K, D, L)), free_basis
        if free_basis:  # Q = I, and C is drawn
            self.Q = np.broadcast_to(np.eye(L), (K, L, L))

    def covariance(self, name, n, S):
        """Draw from the inverse-Wishart of a prior and n observations with the sum of squares S (Bartlett)."""
        nu, scale = SHAPES[name]
        k = len(scale)
        root = np.linalg.cholesky(np.linalg.inv(np.broadcast_to(scale + S, (self.K, k, k))))
        B = np.tril(self.rng.normal(size=root.shape), -1)
        B[:, range(k), range(k)] = np.sqrt(self.rng.chisquare(nu + n - np.arange(k), (self.K, k)))
        half = root @ B
        return np.linalg.inv(half @ np.swapaxes(half, 1, 2))

    def normal(self, precision, linear):
        """Draw from N(P⁻¹ b, P⁻¹), for P (..., n, n) and b (..., n)."""
        root = np.linalg.cholesky(precision)
        mean = np.linalg.solve(precision, linear[..., None])
        noise = np.linalg.solve(np.swapaxes(root, -1, -2), self.rng.normal(size=mean.shape))
        return (mean + noise)[..., 0]

    def step(self):
        self.cells()
        z = self.states()
        u = np.broadcast_to(self.u, (self.K, *self.u.shape))
        before = np.concatenate([z[:, :, :-1], u[:, :, 1:]], -1)
        before = before.reshape(self.K, -1, before.shape[-1])
        after = z[:, :, 1:].reshape(self.K, -1, L)
        S00, S10 = (np.swapaxes(x, 1, 2) @ before for x in (before, after))
        precision = np.linalg.inv(self.Q)
        (self.spikes if isinstance(self.prior, SpikeSlab) else self.laplace)(precision, S00, S10)
        e = after - before @ np.swapaxes(np.concatenate([self.A, self.B], 2), 1, 2)
        if self.free_basis:
            self.loadings(z.reshape(self.K, -1, L))
        else:
            self.Q = self.covariance("Q", e.shape[1], np.swapaxes(e, 1, 2) @ e)
        v = (self.y - self.seen_as(z)).reshape(self.K, -1, D)
        self.R = self.covariance("R", v.shape[1], np.swapaxes(v, 1, 2) @ v)
        P1 = np.linalg.inv(self.V1)
        self.pi1 = self.normal(N * P1 + np.eye(L), np.einsum("kij,kj->ki", P1, z[:, :, 0].sum(1)))
        f = z[:, :, 0] - self.pi1[:, None]
        self.V1 = self.covariance("V1", N, np.swapaxes(f, 1, 2) @ f)

    def seen_as(self, z):
        """Return C z, (K, N, T, d)."""
        return np.einsum("kdl,kntl->kntd", self.C, z)

    def loadings(self, z):
        """Draw C, whose entries are N(0, WIDTH²), given the states (K, N T, l)."""
        G = np.linalg.inv(self.R)
        Szz, Syz = (np.swapaxes(x, 1, 2) @ z for x in (z, self.y.reshape(self.K, -1, D)))
        J = np.einsum("kab,kij->kaibj", G, Szz).reshape(self.K, D * L, D * L)
        J = J + np.eye(D * L) / WIDTH**2
        self.C = self.normal(J, (G @ Syz).reshape(self.K, -1)).reshape(self.K, D, L)

    def states(self):
        """Draw all states, (K, N, T, l), given complete observations."""
        K, P, G, P1 = self.K, *(np.linalg.inv(x) for x in (self.Q, self.R, self.V1))
        J, At = np.zeros((K, T, L, T, L)), np.swapaxes(self.A, 1, 2)
        CGC = np.swapaxes(self.C, 1, 2) @ G @ self.C
        for t in range(T):
            J[:, t, :, t] += CGC + (P if t else P1) + (At @ P @ self.A if t < T - 1 else 0)
            if t:
                J[:, t, :, t - 1] = -P @ self.A
                J[:, t - 1, :, t] = -At @ P
        b = np.einsum("kdl,kde,knte->kntl", self.C, G, self.y, optimize=True)
        b[:, :, 0] += np.einsum("kij,kj->ki", P1, self.pi1)[:, None]
        PBu = np.einsum("kij,kjp,ntp->knti", P, self.B, self.u, optimize=True)
        b += PBu
        b[:, :, :-1] -= np.einsum("kij,kntj->knti", At, PBu[:, :, 1:])
        J = np.broadcast_to(J.reshape(K, 1, T * L, T * L), (K, N, T * L, T * L))
        self.z = self.normal(J, b.reshape(K, N, -1)).reshape(K, N, T, L)
        return self.z

    def cells(self):
        """Draw the missing cells given the states and the other cells of their step."""
        if not hasattr(self, "z"):
            return
        G, Cz = np.linalg.inv(self.R), self.seen_as(self.z)
        for n, t in np.argwhere(~self.seen.all(-1)):
            o, m = np.flatnonzero(self.seen[n, t]), np.flatnonzero(~self.seen[n, t])
            P, rest = G[:, m[:, None], m], self.y[:, n, t][:, o] - Cz[:, n, t][:, o]
            b = -np.einsum("kmo,ko->km", G[:, m[:, None], o], rest)
            self.y[:, n, t, m] = self.normal(P, b) + Cz[:, n, t][:, m]

    def laplace(self, P, S00, S10):
        """Draw β, the variances of the entries, and A."""
        a, b = float(self.prior.shape), float(self.prior.rate)
        size = np.abs(self.A)
        beta = self.rng.gamma(a + L * L, 1 / (b + size.sum((1, 2))))[:, None, None]
        weight = self.rng.wald(beta / size, np.broadcast_to(beta**2, size.shape))  # 1 / τ²
        # vec by rows: the log density is -½ Σ P_ii' A_ij S00_jj' A_i'j' + Σ (P S10)_ij A_ij
        J = np.einsum("kab,kij->kaibj", P, S00).reshape(self.K, L * L, L * L)
        J = J + np.eye(L * L) * weight.reshape(self.K, 1, L * L)
        self.A = self.normal(J, (P @ S10).reshape(self.K, -1)).reshape(self.K, L, L)

    def spikes(self, P, S00, S10):
        """Draw the entries of A and B one by one, each in or out, with ω of either integrated out."""
        a, b = self.prior.a, self.prior.b
        both = np.concatenate([self.A, self.B], 2)
        for i, j in np.ndindex(both.shape[1:]):
            own = both[:, :, :L] if j < L else both[:, :, L:]
            slab = self.prior.slab * (1.0 if j < L else self.width[i, j - L])
            both[:, i, j] = 0
            k, n = (own != 0).sum((1, 2)), own[0].size
            p = P[:, i, i] * S00[:, j, j] + slab**-2
            linear = (P @ (S10 - both @ S00))[:, i, j]
            log_odds = (
                np.log((a + k) / (b + n - 1 - k)) - np.log(slab * np.sqrt(p)) + linear**2 / p / 2
            )
            inside = self.rng.random(self.K) < 1 / (1 + np.exp(-log_odds))
            both[:, i, j] = inside * (linear / p + self.rng.normal(size=self.K) / np.sqrt(p))
        self.A, self.B = both[:, :, :L], both[:, :, L:]


def quantities(A, Q, R, V1, pi1):
    """Return what is compared, (..., n): first and second moments, logarithms of variances, zeros, correlations."""
    flat = [x.reshape(*x.shape[:-2], -1) for x in (A, A**2, np.exp(-20 * np.abs(A)), A == 0)]
    for S in (Q, R, V1):
        sd = np.sqrt(np.diagonal(S, axis1=-2, axis2=-1))
        correlation = S / sd[..., None] / sd[..., None, :]
        flat += [2 * np.log(sd), correlation[..., *np.tril_indices(S.shape[-1], -1)]]
    return np.concatenate([*flat, pi1], axis=-1)


def of_any_basis(A, C, R, V1, pi1):
    """Return what the order and signs of the states do not change; rotations change the first four alone."""
    size = np.abs(A)
    told = [size.sum((-2, -1)), np.exp(-20 * size).sum((-2, -1)), (size**4).sum((-2, -1))]
    told += [np.abs(np.diagonal(A, axis1=-2, axis2=-1)).sum(-1)]
    values = [*told, np.trace(A, axis1=-2, axis2=-1), np.linalg.det(A), (A**2).sum((-2, -1))]
    at = np.tril_indices(D)
    Ct = np.swapaxes(C, -1, -2)
    for X in (C @ Ct, C @ A @ Ct, C @ V1 @ Ct):
        values += list(np.moveaxis(np.arcsinh(X[..., *at]), -1, 0))
    values += list(np.moveaxis(np.arcsinh(np.einsum("...dl,...l->...d", C, pi1)), -1, 0))
    values += [np.linalg.slogdet(R)[1], np.linalg.slogdet(V1)[1]]
    return np.stack(values, axis=-1)


def near():
    """Return the priors of all parameters but A."""
    covariances = {
        k: dist.InverseWishart(nu, scale_matrix=jnp.asarray(S)) for k, (nu, S) in SHAPES.items()
    }
    pi1 = dist.Normal(jnp.zeros(L), 1.0).to_event(1)
    return {**covariances, "pi1": pi1, "C": dist.Normal(jnp.zeros((D, L)), WIDTH).to_event(2)}


def differences(ours, chains, theirs_of, n_kept):
    """Return the differences of our draws (chains, draws, n) from those of Gibbs chains, in Monte Carlo errors."""
    ess = np.array(
        [az.ess(az.dataset({"x": x}, {}), "mean")["x"].values for x in np.moveaxis(ours, -1, 0)]
    )
    ess = np.where(np.isfinite(ess), ess, 1.0)
    own = ours.std((0, 1)) / np.sqrt(ess)
    total = 0.0
    for i in range(n_kept // 4 + n_kept):
        chains.step()
        if i >= n_kept // 4:
            total = total + theirs_of(chains)
    means = total / n_kept
    theirs = means.std(0, ddof=1) / np.sqrt(len(means))
    z = (ours.mean((0, 1)) - means.mean(0)) / np.sqrt(own**2 + theirs**2 + 1e-12)
    print(f"largest difference {np.abs(z).max():.1f} Monte Carlo errors of {len(z)} quantities")
    print(f"errors of ours at most {own.max():.3f}, of Gibbs {theirs.max():.3f}")
    return z


def observed(cohort):
    """Return the observations, NaN where there is none."""
    return np.where(np.asarray(cohort.mask), np.asarray(cohort.y), np.nan)


@pytest.mark.parametrize(
    "prior", [GammaLaplace(2.0, 0.5), SpikeSlab(0.5)], ids=["β unknown", "spike and slab"]
)
def test_full_posterior_agrees_with_gibbs(prior):
    truth, cohort = gappy_cohort()
    priors = {name: own for name, own in near().items() if name != "C"}
    fit = fit_map(cohort, L, Laplace(3.0), init=truth, hold=("C",), priors=priors)
    options = {"num_samples": 600, "num_chains": 2, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, prior=prior, **options)
    data = az.group(posterior, "posterior")
    ours = quantities(*(data[name].values for name in ("A", "Q", "R", "V1", "pi1")))
    chains = Gibbs(observed(cohort), prior, K=50, seed=0)
    z = differences(ours, chains, lambda c: quantities(c.A, c.Q, c.R, c.V1, c.pi1), n_kept=400)
    assert np.abs(z).max() < 4, z.round(1)


def test_posterior_in_a_free_basis_agrees_with_gibbs():
    """Rotations, which the prior on A alone tells apart, are drawn apart from the rest by ours, and not by Gibbs."""
    truth, cohort = gappy_cohort()
    prior = GammaLaplace(2.0, 0.5)
    priors = {name: own for name, own in near().items() if name != "Q"}
    fit = fit_map(cohort, L, Laplace(3.0), Q="identity", priors=priors)
    options = {"num_samples": 1500, "num_chains": 2, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, prior=prior, **options)
    data = az.group(posterior, "posterior")
    assert data.attrs["free"] == "A C R pi1 V1"
    ours = of_any_basis(*(data[name].values for name in ("A", "C", "R", "V1", "pi1")))
    chains = Gibbs(observed(cohort), prior, K=100, seed=0, free_basis=True)
    z = differences(ours, chains, lambda c: of_any_basis(c.A, c.C, c.R, c.V1, c.pi1), n_kept=1600)
    assert np.abs(z).max() < 4, z.round(1)


def test_spikes_on_inputs_agree_with_gibbs():
    """Entries of A and B are put in and out together, with all other parameters sampled."""
    truth, cohort = gappy_cohort()
    rng = np.random.default_rng(3)
    u = rng.normal(size=(N, T, 2)) * np.array([1.0, 3.0])
    u[:, 0] = 0.0
    B = np.array([[0.5, 0.0], [0.0, 0.05]])
    truth = LDSParams(*truth, B=B, D=np.zeros((D, 2)))
    y = np.array(simulate(jax.random.key(7), truth, [T] * N, inputs=list(u)).cohort.y)
    y[~np.asarray(cohort.mask)] = np.nan
    cohort = Cohort.from_sequences(list(y), inputs=list(u))
    priors = {name: own for name, own in near().items() if name != "C"}
    fit = fit_map(cohort, L, Laplace(3.0), init=truth, hold=("C", "D"), priors=priors)
    spikes = {"prior": SpikeSlab(0.5), "priors": {"B": SpikeSlab(0.5)}}
    options = {"num_samples": 800, "num_chains": 2, "num_predictive": 0}
    posterior = sample_posterior(jax.random.key(0), cohort, fit, **spikes, **options)
    data = az.group(posterior, "posterior")
    width = site_priors(cohort, fit, ("B",), {"B": SpikeSlab(0.5)})["B"].scale
    names = ("A", "Q", "R", "V1", "pi1")
    of_B = [data["B"].values, data["B"].values == 0, data["B"].values ** 2]
    ours = np.concatenate(
        [
            quantities(*(data[name].values for name in names)),
            *(x.reshape(*x.shape[:2], -1) for x in of_B),
        ],
        -1,
    )
    np.testing.assert_array_equal(data["included_B"].values, data["B"].values != 0)
    chains = Gibbs(observed(cohort), SpikeSlab(0.5), K=50, seed=0, u=u, width=np.asarray(width))

    def theirs(c):
        own = [x.reshape(len(x), -1) for x in (c.B, c.B == 0, c.B**2)]
        return np.concatenate([quantities(c.A, c.Q, c.R, c.V1, c.pi1), *own], -1)

    z = differences(ours, chains, theirs, n_kept=400)
    assert np.ptp((data["B"].values == 0).mean((0, 1))) > 0.1  # some are in, and some are not
    assert np.abs(z).max() < 4, z.round(1)
