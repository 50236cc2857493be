"""Starting values for EM, from the pooled second moments of a ragged and gappy cohort.

Everything is read off *windows*, the m consecutive steps w = (y_{t+1}, …, y_{t+m}) of any sequence from any
t on. Their second moment M = mean of w w' is pooled entry by entry, over the windows that show both
cells. It is not centred: E y_{t+k} y_t' = C A^k E[z_t z_t'] C' holds whether or not the states are
stationary, but about zero only. M is as small as a window, so the work after pooling does not grow with N.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import linalg

from ..models import Cohort, LDSParams, canonical_scaling

_STEPS = 10  # of a window; more where l states need them
_RADIUS = 0.999  # bound on the eigenvalues of A
_ITERATIONS = 50
_LEAST_R = 1e-3  # R is at least this share of the channels' variances, in every direction
_LEAST_Q = 1e-4  # Q and V1 are at least this share of the states' second moment, in every direction


class _Moments(NamedTuple):
    """Pooled moments, channels in units of `scale`."""

    scale: np.ndarray  # (d,) root mean square of a channel
    variance: np.ndarray  # (d,) about the channel's mean
    second: np.ndarray  # (m d, m d) M of all windows
    lags: np.ndarray  # (m, d, d) Γ_k, mean of y_{t+k} y_t'
    shown: np.ndarray  # (m d,) which cells of a first window (t = 0) some sequence shows
    first_mean: np.ndarray  # of the shown cells
    first_cov: np.ndarray
    n_sequences: int


def initial_params(
    cohort: Cohort, n_states: int, method: str = "subspace", *, key: Any = None
) -> LDSParams:
    l = _check(cohort, n_states)
    rng = np.random.default_rng(0) if key is None else _generator(key)
    match method:
        case "subspace":
            moments = _pool(cohort, _window(cohort, l))
            params = _start(_fit(_ho_kalman(moments, l, rng), moments), moments)
        case "hk":
            moments = _pool(cohort, _window(cohort, l))
            params = _start((_ho_kalman(moments, l, rng)), moments)
        case "hkq":
            moments = _pool(cohort, _window(cohort, l))
            params = _start((_fit(_ho_kalman(moments, l, rng), moments, free=False)), moments)
        case "pca":
            moments = _pool(cohort, _window(cohort, l))
            params = _start(_pca(moments, l, rng), moments)
        case "pcaem":
            moments = _pool(cohort, _window(cohort, l))
            params = _start(_fit(_pca(moments, l, rng), moments), moments)
        case "randem":
            moments = _pool(cohort, _window(cohort, l))
            params = _start(_fit(_random(moments, l, rng), moments), moments)
        case "random":
            moments = _pool(cohort, 1)
            params = _random(moments, l, rng)
        case _:
            raise ValueError(f"method is {method!r}; give 'subspace', 'pca' or 'random'")
    return _finish(params, moments)


def _check(cohort, n_states):
    return n_states


def _generator(key):
    key = jax.random.key(key) if isinstance(key, int | np.integer) else key
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


def _window(cohort: Cohort, l: int) -> int:
    """Steps of a window: as many as l states ask for, while half of the pairs of steps stay in."""
    lengths, d = np.asarray(cohort.lengths), cohort.n_channels
    windows = [np.maximum(lengths - m + 1, 0).sum() for m in range(cohort.n_steps + 1)]
    wanted = max(_STEPS, 2 * -(-l // d) + 2)
    return max(m for m in range(2, min(wanted, cohort.n_steps) + 1) if 2 * windows[m] >= windows[2])


def _pool(cohort: Cohort, m: int) -> _Moments:
    mask, lengths = np.asarray(cohort.mask), np.asarray(cohort.lengths)
    y, d = np.asarray(cohort.y, np.float64), cohort.n_channels
    n = mask.sum((0, 1))
    mean, rms = y.sum((0, 1)) / n, np.sqrt((y * y).sum((0, 1)) / n)
    scale = np.where(rms > 0, rms, rms[rms > 0].mean() if rms.any() else 1.0)
    variance = (np.where(mask, y - mean, 0.0) ** 2).sum((0, 1)) / n / scale**2
    # A constant channel has noise too, or R would be singular: a thousandth of its level.
    variance = np.maximum(variance, 1e-6)
    y = y / scale

    total, count, n_windows = np.zeros((m * d, m * d)), np.zeros((m * d, m * d)), 0
    for block in range(0, len(y), 256):  # of sequences: bounds the memory
        rows = slice(block, block + 256)
        whole = np.arange(y.shape[1] - m + 1) <= lengths[rows, None] - m
        w, seen = (
            sliding_window_view(x[rows], m, axis=1)[whole].swapaxes(1, 2).reshape(-1, m * d)
            for x in (y, mask)
        )
        total += w.T @ w
        n_windows += len(w)
        if not cohort.complete:
            seen = seen.astype(float)
            count += seen.T @ seen
    if cohort.complete:
        count[:] = n_windows
    lags = _lags(total, count, m, d)
    toeplitz = _toeplitz(lags)
    second = (total + toeplitz) / (count + 1)
    second += np.diag(np.tile(variance, m)) / (n_windows + 1)

    w, seen = (x[:, :m].reshape(len(y), m * d) for x in (y, mask))
    count = seen.sum(0)
    shown = count > 0
    w, seen = w[:, shown], seen[:, shown]
    first_mean = w.sum(0) / count[shown]
    w = np.where(seen, w - first_mean, 0.0)
    seen = seen.astype(float)
    cov = (w.T @ w + np.diag(np.tile(variance, m)[shown])) / (seen.T @ seen + 1)
    return _Moments(
        scale, variance, _positive(second), lags, shown, first_mean, _positive(cov), len(y)
    )


def _lags(total, count, m, d):
    """Γ_k (m, d, d); a lag at which two channels are never seen is interpolated from its neighbours."""
    total, count = total.reshape(m, d, m, d), count.reshape(m, d, m, d)
    k = np.arange(1 - m, m)
    sums, seen = (
        np.array([np.trace(x, offset=-i, axis1=0, axis2=2) for i in k]) for x in (total, count)
    )  # (2m - 1, d, d)
    series = sums / np.maximum(seen, 1)
    for a, b in np.argwhere((seen == 0).any(0)):
        known = seen[:, a, b] > 0
        if known.any():
            series[:, a, b] = np.interp(k, k[known], series[known, a, b])
    return series[m - 1 :]


def _toeplitz(lags):
    """Second moment of a window with E y_{t+k} y_t' = Γ_k for all t."""
    m, d, _ = lags.shape
    both = np.concatenate([lags[:0:-1].transpose(0, 2, 1), lags])  # Γ_{1-m}, …, Γ_{m-1}
    i = np.arange(m)
    return both[i[:, None] - i + m - 1].swapaxes(1, 2).reshape(m * d, m * d)


def _positive(S, least=1e-6):
    """Clip the correlation matrix: moments pooled pairwise need not be positive definite."""
    sd = np.sqrt(np.diagonal(S))
    values, vectors = np.linalg.eigh(S / sd[:, None] / sd)
    if len(S) == 0 or values[0] >= least:
        return S
    X = vectors * np.maximum(values, least) @ vectors.T
    sd = sd / np.sqrt(np.diagonal(X))
    return X * sd[:, None] * sd


def _at_least(S, base):
    """The nearest S ⪰ base, in the metric of base."""
    F = np.linalg.cholesky(base)
    X = linalg.solve_triangular(F, linalg.solve_triangular(F, S, lower=True).T, lower=True)
    values, vectors = np.linalg.eigh((X + X.T) / 2)
    F = F @ vectors
    return F * np.maximum(values, 1.0) @ F.T


def _stable(A):
    """Eigenvalues beyond the radius are moved onto it; conjugate pairs stay pairs."""
    values, vectors = np.linalg.eig(A)
    size = np.abs(values)
    if size.max() <= _RADIUS:
        return A
    if np.linalg.cond(vectors) > 1e6:  # nearly defective
        return A * (_RADIUS / size.max())
    return (vectors * (values * _RADIUS / np.maximum(size, _RADIUS)) @ np.linalg.inv(vectors)).real


def _ho_kalman(mo: _Moments, l: int, rng) -> LDSParams:
    m, d, _ = mo.lags.shape
    i, j = m - m // 2, m // 2
    T = _positive(_toeplitz(mo.lags) + 0 * mo.second)
    if m == 2:
        return _pca(mo, l, rng)
    lag = np.arange(i)[:, None] + np.arange(j) + 1
    H = mo.lags[lag].swapaxes(1, 2).reshape(i * d, j * d)
    F = linalg.cholesky(T[: i * d, : i * d], lower=True)
    # past is stacked backwards in time
    back = np.arange(j * d).reshape(j, d)[::-1].ravel()
    G = linalg.cholesky(T[np.ix_(back, back)], lower=True)
    X = linalg.solve_triangular(F, linalg.solve_triangular(G, H.T, lower=True).T, lower=True)
    U, s, _ = np.linalg.svd(X)
    q = min(l, (i - 1) * d, j * d, int((s > 1e-6).sum()))
    s = np.minimum(s[:q], 0.999)
    O = F @ U[:, :q] * np.sqrt(s)
    A = _stable(np.linalg.lstsq(O[:-d], O[d:], rcond=1e-6)[0])
    return _noise(A, O[:d], np.diag(s), mo, l, rng)


def _noise(A, C, P, mo, l, rng):
    q, d = len(A), len(C)
    a = np.linspace(0.9, 0.1, l - q)
    small = 0.1 * np.sqrt(mo.variance)[:, None] * rng.normal(size=(d, l - q))
    A, P = linalg.block_diag(A, np.diag(a)), linalg.block_diag(P, np.eye(l - q))
    C = np.concatenate([C, small], axis=1)
    R = _at_least(mo.lags[0] - C @ P @ C.T, _LEAST_R * np.diag(mo.variance))
    Q = _at_least(P - A @ P @ A.T, _LEAST_Q * P)
    return LDSParams(A, C, Q, R, np.zeros(l), P)


def _pca(mo, l, rng):
    d = len(mo.scale)
    values, U = np.linalg.eigh(_positive(mo.lags[0]))
    values, U = values[::-1], U[:, ::-1]
    q = min(l, d)
    r = values[q:].mean() if q < d else values[-1] / 2
    power = np.maximum(values[:q] - r, 0.01 * values[:q])
    C = U[:, :q] * np.sqrt(power)
    pinv = U[:, :q].T / np.sqrt(power)[:, None]
    left, s, right = np.linalg.svd(pinv @ mo.lags[1] @ pinv.T)
    A = left * np.minimum(s, _RADIUS) @ right
    return _noise(A, C, np.eye(q), mo, l, rng)


def _random(mo, l, rng):
    d = len(mo.scale)
    A = rng.normal(size=(l, l))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    P = linalg.solve_discrete_lyapunov(A, np.eye(l))
    C = rng.normal(size=(d, l))
    C /= np.sqrt(2 * np.diagonal(C @ P @ C.T))[:, None]
    return LDSParams(A, C, np.eye(l), np.diag(mo.variance) / 2, np.zeros(l), P)


def _states(A, Q, P, m):
    """Second moments of the states of a window, (m l, m l)."""
    l = len(A)
    Z = np.empty((m, l, m, l))
    for j in range(m):
        X = P
        for i in range(j, m):
            Z[i, :, j], Z[j, :, i] = X, X.T
            X = A @ X
        P = A @ P @ A.T + Q
    return Z.reshape(m * l, m * l)


def _fit(params, mo, free=True, iterations=None):
    A, C, Q, R, pi1, P = params
    (d, l), m = C.shape, len(mo.lags)
    i = np.arange(m)
    for _ in range(_ITERATIONS if iterations is None else iterations):
        Z = _states(A, Q, P, m)
        ZC = (Z.reshape(-1, l) @ C.T).reshape(m * l, m * d)
        S = (C @ ZC.reshape(m, l, -1)).reshape(m * d, -1) + np.kron(np.eye(m), R)
        G = linalg.cho_solve(linalg.cho_factor(S), ZC.T).T
        MG = mo.second @ G.T
        E = (Z - G @ (ZC.T - MG)).reshape(m, l, m, l)
        own, next = E[i, :, i], E[i[1:], :, i[:-1]]
        yz = MG.reshape(m, d, m, l)[i, :, i].sum(0)
        yy = mo.second.reshape(m, d, m, d)[i, :, i].sum(0)
        S00, S10, S11, Szz = own[:-1].sum(0), next.sum(0), own[1:].sum(0), own.sum(0)
        if free:
            A = _stable(linalg.solve(S00, S10.T, assume_a="pos").T)
            C = linalg.solve(Szz, yz.T, assume_a="pos").T
        Q = (S11 - A @ S10.T - S10 @ A.T + A @ S00 @ A.T) / (m - 1)
        R = (yy - C @ yz.T - yz @ C.T + C @ Szz @ C.T) / m
        Q = _at_least(Q, _LEAST_Q * S00 / (m - 1))
        R = _at_least(R, _LEAST_R * np.diag(mo.variance))
        P = (own[0] + own[0].T) / 2
    return LDSParams(A, C, Q, R, pi1, P)


def _start(params, mo):
    A, C, Q, R, pi1, P = params
    (d, l), m = C.shape, len(mo.lags)
    shown = mo.shown
    noise = _states(A, Q, np.zeros((l, l)), m).reshape(-1, l) @ C.T
    noise = (C @ noise.reshape(m, l, -1)).reshape(m * d, -1) + np.kron(np.eye(m), R)
    noise = noise[np.ix_(shown, shown)]
    O = [C]
    for _ in range(m - 1):
        O.append(O[-1] @ A)
    O = np.concatenate(O)[shown]
    V, N = P, mo.n_sequences
    for _ in range(20):
        G = linalg.solve(O @ V @ O.T + noise, O @ V, assume_a="pos").T
        pi1 = pi1 + G @ (mo.first_mean - O @ pi1)
        V = V - G @ O @ V + G @ mo.first_cov @ G.T
        V = (N * V + P) / (N + 1)
    return LDSParams(A, C, Q, R, pi1, _at_least(V, _LEAST_Q * P))


def _finish(params, mo):
    A, C, Q, R, pi1, V1 = params
    F = np.linalg.cholesky(Q)
    A = linalg.solve_triangular(F, A @ F, lower=True)
    pi1 = linalg.solve_triangular(F, pi1, lower=True)
    V1 = linalg.solve_triangular(F, linalg.solve_triangular(F, V1, lower=True).T, lower=True)
    R = R * mo.scale[:, None] * mo.scale
    C = C @ F * mo.scale[:, None]
    arrays = (A, C, np.eye(len(A)), (R + R.T) / 2, pi1, (V1 + V1.T) / 2)
    return canonical_scaling(LDSParams(*(jnp.asarray(x, dtype=float) for x in arrays)))
