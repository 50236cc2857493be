"""Oracles: one dense Gaussian over all states and observations of a sequence, conditioned in NumPy.

No recursion over time, and no code of the package but its data types. A sequence is an array (T, d)
with NaN where a cell is missing.
"""

from typing import NamedTuple

import jax
import numpy as np

from sparse_lds.models import Cohort, ExpectedStatistics, LDSParams
from sparse_lds.models.kalman.statistics import InputStatistics


class Shape(NamedTuple):
    l: int  # states
    d: int  # channels
    N: int  # sequences
    T: int  # steps of the longest sequence


def covariance(rng, n, low=0.3, high=2.0):
    """A random covariance with eigenvalues between low and high."""
    U = np.linalg.qr(rng.normal(size=(n, n)))[0]
    S = U * rng.uniform(low, high, n) @ U.T
    return (S + S.T) / 2


def random_params(rng, l, d, radius=None, p=0) -> LDSParams:
    """Random parameters; A has the given spectral radius, by default between 0.1 and 1.1; with p inputs, B and D."""
    A = rng.normal(size=(l, l))
    radius = rng.uniform(0.1, 1.1) if radius is None else radius
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    C, pi1 = rng.normal(size=(d, l)), rng.normal(size=l)
    params = LDSParams(A, C, covariance(rng, l), covariance(rng, d), pi1, covariance(rng, l))
    if p == 0:
        return params
    return params._replace(B=rng.normal(size=(l, p)), D=rng.normal(size=(d, p)))


def random_lengths(rng, N, T, ragged):
    """Lengths up to T; one sequence has length T, so that the shape is the same for all seeds."""
    lengths = rng.integers(1, T + 1, N) if ragged else np.full(N, T)
    lengths[rng.integers(N)] = T
    return lengths


def punch(rng, sequences):
    """Gaps of every kind, by chance: cells, whole steps, the start, the end, a whole sequence."""
    for y in sequences:
        T = len(y)
        kinds = rng.random(5) < [0.7, 0.6, 0.25, 0.25, 0.1]
        if kinds[0]:
            y[rng.random(y.shape) < rng.uniform(0.05, 0.6)] = np.nan
        if kinds[1]:
            y[rng.random(T) < 0.4] = np.nan
        if kinds[2]:
            y[: rng.integers(1, T + 1)] = np.nan
        if kinds[3]:
            y[T - rng.integers(1, T + 1) :] = np.nan
        if kinds[4]:
            y[:] = np.nan


def random_problem(seed, shape, *, gaps=False, ragged=False, radius=None, p=0, ahead=0):
    """Parameters and a cohort, everything drawn from the seed; with p inputs, which go on for `ahead` steps."""
    l, d, N, T = shape
    rng = np.random.default_rng([seed, *shape, gaps, ragged] + [p] * (p > 0))
    params = random_params(rng, l, d, radius, p)
    # the data is not drawn from the model: the identities hold for any data
    sequences = [2 * rng.normal(size=(t, d)) + 1 for t in random_lengths(rng, N, T, ragged)]
    if gaps:
        punch(rng, sequences)
        sequences[rng.integers(N)][0, rng.integers(d)] = np.nan  # at least one cell is missing
    if p == 0:
        return params, Cohort.from_sequences(sequences)
    inputs = [rng.normal(size=(len(y) + ahead, p)) + 0.5 for y in sequences]
    return params, Cohort.from_sequences(sequences, inputs=inputs)


def joint(params, T, u=None):
    """Mean and covariance of (z_1, …, z_T, y_1, …, y_T) stacked into one vector, for inputs u (T, p)."""
    A, C, Q, R, pi1, V1 = (np.asarray(x, float) for x in params[:6])
    l, zero = len(A), np.zeros_like(A)
    # z = G (z_1, e_2, …, e_T)
    power = [np.linalg.matrix_power(A, k) for k in range(T)]
    G = np.block([[power[t - s] if t >= s else zero for s in range(T)] for t in range(T)])
    noise = np.kron(np.eye(T), Q)
    noise[:l, :l] = V1
    z_mean, z_cov = G[:, :l] @ pi1, G @ noise @ G.T
    H = np.vstack([np.eye(T * l), np.kron(np.eye(T), C)])  # (z, y) = H z + (0, v)
    cov = H @ z_cov @ H.T
    cov[T * l :, T * l :] += np.kron(np.eye(T), R)
    if u is None:
        return H @ z_mean, (cov + cov.T) / 2
    z_mean = z_mean + G @ (u @ np.asarray(params.B).T).ravel()
    mean = H @ z_mean + np.append(np.zeros(T * l), (u @ np.asarray(params.D).T).ravel())
    return mean, (cov + cov.T) / 2


def inputs_of(cohort, n_steps=None):
    """The inputs (n_steps, p) of each sequence, by default of its own steps; None for each without inputs."""
    if cohort.u is None:
        return [None] * len(cohort)
    found = []
    for n, T in enumerate(cohort.lengths):
        u = cohort.u[n, :T]
        if cohort.ahead is not None:
            u = np.vstack([u, cohort.ahead[n]])
        found.append(u[: T if n_steps is None else n_steps])
    return found


class Posterior(NamedTuple):
    """Moments of all states and cells of one sequence given some of the cells."""

    z: np.ndarray  # (T, l)
    y: np.ndarray  # (T, d), the observed value where there is one
    zz: np.ndarray  # (T, l, T, l) covariances
    yz: np.ndarray  # (T, d, T, l)
    yy: np.ndarray  # (T, d, T, d)
    log_density: float  # of the cells conditioned on


def posterior(params, y, n_steps=None, given=None, u=None) -> Posterior:
    """(z_1, …, y_1, …) of n_steps steps, conditioned on the observed cells of the first `given`; inputs u."""
    d, l = np.shape(params.C)
    T = len(y) if n_steps is None else n_steps
    seen = np.zeros((T, d), bool)
    given = len(y) if given is None else given
    seen[:given] = ~np.isnan(y[:given])
    o = T * l + np.flatnonzero(seen)
    mean, cov = joint(params, T, u)
    v = np.asarray(y)[:given][seen[:given]] - mean[o]
    S = cov[np.ix_(o, o)]
    gain = np.linalg.solve(S, cov[o]).T
    log_density = -0.5 * (
        v @ np.linalg.solve(S, v) + np.linalg.slogdet(S)[1] + len(o) * np.log(2 * np.pi)
    )
    mean, cov = mean + gain @ v, cov - gain @ cov[o]
    z, cells = slice(0, T * l), slice(T * l, None)
    return Posterior(
        mean[z].reshape(T, l),
        mean[cells].reshape(T, d),
        cov[z, z].reshape(T, l, T, l),
        cov[cells, z].reshape(T, d, T, l),
        cov[cells, cells].reshape(T, d, T, d),
        log_density,
    )


def log_likelihood(params, cohort):
    """(N,)"""
    each = zip(cohort.sequences(), inputs_of(cohort), strict=True)
    return np.array([posterior(params, y, u=u).log_density for y, u in each])


def diagonal(cov, lag=0):
    """Blocks (t + lag, t) of a covariance (T, a, T, b)."""
    return np.array([cov[t + lag, :, t] for t in range(cov.shape[0] - lag)]).reshape(
        -1, cov.shape[1], cov.shape[3]
    )


def smoothed(params, cohort):
    """mean (N, T, l), cov (N, T, l, l), lag-one cov (N, T - 1, l, l), past the end too."""
    each = zip(cohort.sequences(), inputs_of(cohort, cohort.n_steps), strict=True)
    all_n = [posterior(params, y, cohort.n_steps, u=u) for y, u in each]
    return tuple(
        np.array(x)
        for x in zip(*[(p.z, diagonal(p.zz), diagonal(p.zz, lag=1)) for p in all_n], strict=True)
    )


def filtered(params, cohort):
    """mean (N, T, l), cov (N, T, l, l), predicted mean (N, T + 1, l) and cov (N, T + 1, l, l)."""
    T = cohort.n_steps
    out = []
    for y, u in zip(cohort.sequences(), inputs_of(cohort, T + 1), strict=True):
        given = [posterior(params, y, T + 1, min(t, len(y)), u) for t in range(T + 1)]
        out.append(
            (
                [given[t + 1].z[t] for t in range(T)],
                [given[t + 1].zz[t, :, t] for t in range(T)],
                [given[t].z[t] for t in range(T + 1)],
                [given[t].zz[t, :, t] for t in range(T + 1)],
            )
        )
    return tuple(np.array(x) for x in zip(*out, strict=True))


def forecast(params, cohort, horizon, given):
    """mean (N, horizon, d) and cov (N, horizon, d, d) of y after `given` (N,) steps."""
    out = []
    us = inputs_of(cohort, cohort.n_steps + horizon)
    for y, psi, u in zip(cohort.sequences(), given, us, strict=True):
        p = posterior(params, y, psi + horizon, psi, None if u is None else u[: psi + horizon])
        out.append((p.y[psi:], diagonal(p.yy)[psi:]))
    return tuple(np.array(x) for x in zip(*out, strict=True))


def sequence_statistics(params, y, u=None) -> ExpectedStatistics:
    """The sums of one sequence, from the definition."""
    p = posterior(params, y, u=u)
    seen = ~np.isnan(y).all(1)  # steps with an observed cell
    M = diagonal(p.zz) + p.z[:, :, None] * p.z[:, None]
    M10 = diagonal(p.zz, lag=1) + p.z[1:, :, None] * p.z[:-1, None]
    yz = diagonal(p.yz) + p.y[:, :, None] * p.z[:, None]
    yy = diagonal(p.yy) + p.y[:, :, None] * p.y[:, None]
    yy[~seen] -= np.asarray(params.R)  # there y_t is C z_t + D u_t
    inputs = None
    if u is not None:
        inputs = InputStatistics(
            u1=u[0],
            U11=np.outer(u[0], u[0]),
            Suu=u.T @ u,
            z1u=np.outer(p.z[0], u[0]),
            S0u=p.z[:-1].T @ u[1:],
            Szu=p.z.T @ u,
            Syu=p.y.T @ u,
        )
    return ExpectedStatistics(
        n_sequences=np.float64(1.0),
        n_transitions=np.float64(len(y) - 1),
        n_emissions=np.float64(seen.sum()),
        z1=p.z[0],
        M1=M[0],
        S00=M[:-1].sum(0),
        S10=M10.sum(0),
        S11=M[1:].sum(0),
        Szz=M.sum(0),
        Syz=yz.sum(0),
        Syy=yy.sum(0),
        log_likelihood=p.log_density,
        inputs=inputs,
    )


def statistics(params, cohort, weights=None) -> ExpectedStatistics:
    """The weighted sum over the sequences."""
    weights = np.ones(len(cohort)) if weights is None else weights
    sequences = zip(cohort.sequences(), inputs_of(cohort), strict=True)
    each = [sequence_statistics(params, y, u) for y, u in sequences]
    return jax.tree.map(lambda *x: sum(w * x for w, x in zip(weights, x, strict=True)), *each)
