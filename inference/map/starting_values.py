"""Starting values for EM, from the second moments of windows (see window_moments.py).

The work after pooling is on matrices as small as a window and does not grow with the number of sequences.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from ...models import Cohort, LDSParams, canonical_scaling
from ...models.arguments import whole
from ...models.basis import whitened
from ...models.inputs import INTERCEPT
from ...models.linalg import sym
from .window_moments import Moments, blocks, channels, pool, white, window_length

_RADIUS = 0.9999  # bound on the eigenvalues of A: a mean far from 0 needs a state that stays
_LEAST_R = 1e-3  # R is at least this share of the channels' variances, in every direction
_LEAST_Q = 1e-5  # Q and V1 are at least this share of the states' second moment, likewise
_STEPS = 50  # steps of EM on M
_ROUNDS = 10  # rounds of filling in the gaps, with _STEPS steps of EM in all
_FIRST_STEPS = 20  # steps of EM on pi1 and V1


def initial_params(
    cohort: Cohort, n_states: int, method: str = "subspace", *, key: Any = None, D: Any = None
) -> LDSParams:
    """Return Ω to start EM from: finite, covariances positive definite, A stable, Q of mean diagonal 1.

    - "subspace": canonical correlations of past and future halves of windows give C and A; then
      EM on the windows' second moment makes all parameters fit together.
    - "pca": C from the principal components of y_t, A from lag one. Cheaper and cruder.
    - "random": A and C drawn by `key`, a jax key or an integer; only their scale is the data's.

    States for which the data have no evidence are small and independent AR(1) processes, drawn by
    `key` too (the same ones without a `key`): EM can grow such states, but not states of size zero. The units of a
    channel do not matter: C's row and R follow them. A is bounded by a spectral radius of 0.9999. With inputs B is 0,
    and D, unless it is given, a regression of y on them; the rest is of what that leaves.
    """
    if cohort.u is not None:
        D = regression_on_inputs(cohort) if D is None else np.asarray(D, float)
        y = np.where(cohort.mask, cohort.y - cohort.u @ D.T, 0.0)
        rest = replace(cohort, y=y, u=None, ahead=None)
        found = initial_params(rest, n_states, method, key=key)
        B = jnp.zeros((found.n_states, cohort.n_inputs))
        return found._replace(B=B, D=jnp.asarray(D, dtype=float))
    l, mask = whole("n_states", n_states), np.asarray(cohort.mask)
    for j in np.flatnonzero(~mask.any((0, 1))):
        raise ValueError(
            f"cohort has no observed cell in channel {cohort.channels[j]!r}, of which nothing can "
            "be learned; leave the channel out"
        )
    rng = np.random.default_rng(0 if key is None else _seed(key))
    scale, variance = channels(cohort)
    match method:
        case "subspace" | "pca":
            if mask.any(2).sum(1).max() < 2:
                raise ValueError(
                    "cohort is too short to say anything on A: no sequence has observed cells at "
                    f"two steps (its longest length is {cohort.n_steps}); use method='random'"
                )
            moments = pool(cohort, scale, variance, window_length(cohort, l))
            if method == "pca":
                params = _pca(moments, l, rng)
            else:
                params = _fit_windows(_subspace(moments, l, rng), moments)
            params = _fit_first(params, moments)
        case "random":
            if key is None:
                raise ValueError("key is None; method='random' needs a jax key or an integer seed")
            params = _random(variance, l, rng)
        case _:
            raise ValueError(f"method is {method!r}; give 'subspace', 'pca' or 'random'")
    return _in_units(params, scale)


def regression_on_inputs(cohort: Cohort, used: list[int] | None = None) -> np.ndarray:
    """Return D (d, p) by least squares on the observed cells, with the inputs `used`: all, by default, but an intercept
    of the states.

    Where no input is an intercept there is one besides, which is not returned: it belongs to the states.
    """
    y, mask, u = np.asarray(cohort.y), np.asarray(cohort.mask), np.asarray(cohort.u)
    if used is None:
        of_states = INTERCEPT if cohort.labels.intercept == "state" else None
        used = [j for j, name in enumerate(cohort.inputs) if name != of_states]
    D = np.zeros((y.shape[2], u.shape[2]))
    u = u[..., used]
    if INTERCEPT not in [cohort.inputs[j] for j in used]:
        u = np.concatenate([u, np.ones((*u.shape[:2], 1))], axis=2)
    for i in range(len(D)):
        seen = mask[..., i]
        D[i, used] = np.linalg.lstsq(u[seen], y[..., i][seen], rcond=None)[0][: len(used)]
    return D


def _subspace(moments: Moments, l: int, rng) -> LDSParams:
    """Return Ω by Larimore's canonical variates: M cut into past and future, E[future past'] = O E[z past'].

    O = (C; CA; CA²; …) spans the part of the future that the past predicts, and its shift gives A. Beyond
    min(l, d) states, a canonical correlation counts only above the level that chance gives to
    independent past and future.
    """
    m, d, M = moments.m, len(moments.variance), moments.M
    if m == 2:  # a future of one step has no shift
        return _pca(moments, l, rng)
    past = m // 2 * d
    F, G = (
        linalg.cholesky(M[past:, past:], lower=True),
        linalg.cholesky(M[:past, :past], lower=True),
    )
    U, s, _ = np.linalg.svd(_whiten(M[past:, :past], F, G), full_matrices=False)
    chance = (np.sqrt(len(F)) + np.sqrt(len(G))) / np.sqrt(moments.n)
    q = min(l, len(F) - d, max((s > chance).sum(), min(l, d)))
    # In this basis the second moment of z lies between diag(s) and diag(1/s) (Faurre): the middle.
    O = F @ U[:, :q] * np.sqrt(s[:q])
    A = np.linalg.lstsq(O[:-d], O[d:], rcond=1e-8)[0]
    return _with_noise(_stable(A), O[:d], moments, l, rng)


def _pca(moments: Moments, l: int, rng) -> LDSParams:
    """Return Ω from Γ_0 = CC' + R by principal components, and Γ_1 = CAC' solved for A; states have E zz' = I."""
    gamma0, gamma1 = (blocks(moments.M, moments.m, k).mean(0) for k in (0, 1))
    power, U = np.linalg.eigh(gamma0)
    power, U = power[::-1], U[:, ::-1]
    q, d = min(l, len(U)), len(U)
    noise = power[q:].mean() if q < d else power[-1] / 2
    C = U[:, :q] * np.sqrt(np.maximum(power[:q] - noise, 0.01 * power[:q]))
    inverse = np.linalg.pinv(C)
    # I - AA' is the covariance Q, so A is a contraction.
    left, s, right = np.linalg.svd(inverse @ gamma1 @ inverse.T)
    return _with_noise(left * np.minimum(s, _RADIUS) @ right, C, moments, l, rng)


def _with_noise(A, C, moments: Moments, l: int, rng) -> LDSParams:
    """Return Ω with the Q and R that go with E zz' = I, and with weak AR(1) states up to l."""
    d, q = C.shape
    R = blocks(moments.M, moments.m).mean(0) - C @ C.T
    weak = 0.1 * np.sqrt(moments.variance)[:, None] * rng.normal(size=(d, l - q))
    A = np.asarray(linalg.block_diag(A, np.diag(np.linspace(0.9, 0.1, l - q))))
    return LDSParams(
        A=A,
        C=np.concatenate([C, weak], axis=1),
        Q=_at_least(np.eye(l) - A @ A.T, _LEAST_Q * np.eye(l)),
        R=_at_least(R, _LEAST_R * np.diag(moments.variance)),
        pi1=np.zeros(l),
        V1=np.eye(l),
    )


def _random(variance: np.ndarray, l: int, rng) -> LDSParams:
    """Draw A of spectral radius 0.9, and C; states give half of the mean square of a channel, R of its variance."""
    A = rng.normal(size=(l, l))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    V1 = linalg.solve_discrete_lyapunov(A, np.eye(l))  # stationary
    C = rng.normal(size=(len(variance), l))
    C /= np.sqrt(2 * np.diagonal(C @ V1 @ C.T))[:, None]
    return LDSParams(A, C, np.eye(l), np.diag(variance / 2), np.zeros(l), V1)


def _fit_windows(params: LDSParams, moments: Moments) -> LDSParams:
    """Run EM on the windows as if they were independent, with V1 for the E zz' of a window's first state.

    Few pairs make a poor M. Then EM goes on with the M of windows whose gaps are filled in.
    """
    m, variance = moments.m, moments.variance
    params = _em(params, moments.M, variance, _STEPS)
    if moments.sample is not None:
        for _ in range(_ROUNDS):
            M = _filled_in(params, *moments.sample) + white(variance, m) / len(moments.sample[0])
            params = _em(params, M, variance, _STEPS // _ROUNDS)
    # In the basis with E zz' = I no entry of A is far above 1, as it can be with Q = I.
    F = np.linalg.cholesky(blocks(_window_moments(params, m)[0], m).mean(0))
    return whitened(params, F)


def _em(params: LDSParams, M: np.ndarray, variance: np.ndarray, steps: int) -> LDSParams:
    """Take EM steps on the mean of log N(w; 0, S) = -½ (log|2πS| + tr S⁻¹M), which depends on the windows by M only.

    All covariances stay positive definite, as M is.
    """
    m = len(M) // len(variance)
    for _ in range(steps):
        Z, ZC, S = _window_moments(params, m)
        G = _divide(ZC, S)  # E[z | w] = Gw
        MG = M @ G.T
        E = Z - G @ (ZC.T - MG)
        now, S10, Syz = blocks(E, m), blocks(E, m, 1).sum(0), blocks(MG, m).sum(0)
        S00, S11, Szz = now[:-1].sum(0), now[1:].sum(0), now.sum(0)
        A, C = _stable(_divide(S10, S00)), _divide(Syz, Szz)
        Q = (S11 - A @ S10.T - S10 @ A.T + A @ S00 @ A.T) / (m - 1)
        R = blocks(M, m).mean(0) - (C @ Syz.T + Syz @ C.T - C @ Szz @ C.T) / m
        Q = _at_least(Q, _LEAST_Q * S00 / (m - 1))
        R = _at_least(R, _LEAST_R * np.diag(variance))
        params = LDSParams(A, C, Q, R, params.pi1, now[0])
    return params


def _filled_in(params: LDSParams, w: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the mean of E[ww' | cells seen] over windows w (n, m d), 0 where not seen.

    With S = E ww' under the model, u = S_oo⁻¹ w_o at the cells o seen and 0 elsewhere, the mean is
    S + S (mean of uu' - S_oo⁻¹) S.
    """
    S = _window_moments(params, w.shape[1] // len(params.C))[2]
    inverse = np.linalg.inv(np.where(seen[:, :, None] & seen[:, None], S, np.eye(len(S))))
    inverse *= seen[:, :, None] & seen[:, None]
    u = (inverse @ w[:, :, None])[:, :, 0]
    return S + S @ (u.T @ u / len(w) - inverse.mean(0)) @ S


def _fit_first(params: LDSParams, moments: Moments) -> LDSParams:
    """Run EM on pi1 and V1 alone, from the mean and covariance of the first m steps.

    y_{1:m} = O z_1 + noise, with O = (C; CA; CA²; …): a regression whose ridge is V1⁻¹.
    """
    A, C, _, _, pi1, P = params
    shown = moments.shown
    noise = _window_moments(params._replace(V1=np.zeros_like(P)), moments.m)[2]
    noise = noise[np.ix_(shown, shown)]
    O = (C @ _powers(A, moments.m)).reshape(-1, len(A))[shown]
    V1 = P
    for _ in range(_FIRST_STEPS):
        G = _divide(V1 @ O.T, O @ V1 @ O.T + noise)
        pi1 = pi1 + G @ (moments.first_mean - O @ pi1)
        V1 = V1 - G @ O @ V1 + G @ moments.first_cov @ G.T
    return params._replace(pi1=pi1, V1=_at_least(V1, _LEAST_Q * P))


def _window_moments(params: LDSParams, m: int):
    """Return E zz', E zw' and E ww' of the states z and the observations w of a window, under the model."""
    A, C, Q, R, _, P = params
    (d, l), powers = C.shape, _powers(A, m)
    Z = np.empty((m, l, m, l))
    for t in range(m):
        Z[t:, :, t] = powers[: m - t] @ P
        Z[t, :, t:] = Z[t:, :, t].transpose(2, 0, 1)
        P = A @ P @ A.T + Q
    ZC = (Z.reshape(-1, l) @ C.T).reshape(m * l, m * d)
    S = (C @ ZC.reshape(m, l, m * d)).reshape(m * d, m * d) + np.kron(np.eye(m), R)
    return Z.reshape(m * l, m * l), ZC, S


def _powers(A: np.ndarray, m: int) -> np.ndarray:
    """Return I, A, …, A^{m-1}, (m, l, l)."""
    powers = [np.eye(len(A))]
    for _ in range(m - 1):
        powers.append(A @ powers[-1])
    return np.array(powers)


def _divide(X: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return X S⁻¹ for a covariance S."""
    return linalg.cho_solve(linalg.cho_factor(S), X.T).T


def _whiten(X: np.ndarray, F: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Return F⁻¹ X G⁻ᵀ for lower triangular F and G."""
    half = linalg.solve_triangular(F, X, lower=True)
    return linalg.solve_triangular(G, half.T, lower=True).T


def _at_least(S: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return the X ⪰ base nearest to S, distances measured in units of base."""
    F = np.linalg.cholesky(base)
    X = _whiten(S, F, F)
    values, vectors = np.linalg.eigh(sym(X))
    F = F @ vectors
    return F * np.maximum(values, 1.0) @ F.T


def _stable(A: np.ndarray) -> np.ndarray:
    """Return A with the eigenvalues outside the radius moved onto the radius; conjugate pairs stay pairs."""
    values, vectors = np.linalg.eig(A)
    size = np.abs(values)
    if size.max() <= _RADIUS:
        return A
    if np.linalg.cond(vectors) > 1e6:  # hardly diagonalisable
        return A * (_RADIUS / size.max())
    values = values * _RADIUS / np.maximum(size, _RADIUS)
    return (vectors * values @ np.linalg.inv(vectors)).real


def _in_units(params: LDSParams, scale: np.ndarray) -> LDSParams:
    """Return Ω in the units of the cohort, as jax arrays in canonical scaling."""
    A, C, Q, R, pi1, V1 = params
    C, R = C * scale[:, None], R * scale[:, None] * scale
    arrays = LDSParams(A, C, sym(Q), sym(R), pi1, sym(V1))
    return canonical_scaling(LDSParams(*(jnp.asarray(x, dtype=float) for x in arrays)))


def _seed(key) -> np.ndarray:
    """Return the numbers of a jax key, as a seed for numpy."""
    try:
        key = jax.random.key(key) if isinstance(key, int | np.integer) else key
        return np.asarray(jax.random.key_data(key)).ravel()
    except TypeError as error:
        raise ValueError(f"key is {key!r}; give a jax key or an integer seed") from error
