"""Starting values: what they recover, how good they are, and that they are always usable."""

import jax
import numpy as np
import oracles
import pytest
from scipy import linalg

from sparse_lds.inference.map import starting_values as initial
from sparse_lds.inference.map import window_moments as windows
from sparse_lds.inference.map.starting_values import initial_params
from sparse_lds.models import (
    Cohort,
    LDSParams,
    check_params,
    log_likelihood,
    spectral_radius,
)

METHODS = ["subspace", "pca", "random"]


def system(seed, eigenvalues, d, stationary=False):
    """An LDS whose A has the given eigenvalues (a complex one stands for its pair)."""
    rng = np.random.default_rng(seed)
    A = linalg.block_diag(
        *([[x.real, -x.imag], [x.imag, x.real]] if np.iscomplex(x) else [[x]] for x in eigenvalues)
    )
    l = len(A)
    W = np.linalg.qr(rng.normal(size=(l, l)))[0] * rng.uniform(0.7, 1.4, l)
    A = W @ A @ np.linalg.inv(W)
    C, Q, R = rng.normal(size=(d, l)), oracles.covariance(rng, l), oracles.covariance(rng, d)
    if stationary:
        return LDSParams(A, C, Q, R, np.zeros(l), linalg.solve_discrete_lyapunov(A, Q))
    return LDSParams(A, C, Q, R, 2 * rng.normal(size=l), oracles.covariance(rng, l))


def drawn(seed, params, N, T, shortest=None, gaps=0.0):
    """A cohort from the model, lengths from `shortest` (T if None) to T, cells missing at random."""
    rng = np.random.default_rng(seed)
    lengths = np.full(N, T) if shortest is None else rng.integers(shortest, T + 1, N)
    lengths[0] = T
    A, C, Q, R, pi1, V1 = params
    z = rng.multivariate_normal(pi1, V1, N)
    steps = []
    for _ in range(T):
        steps.append(z @ C.T + rng.multivariate_normal(np.zeros(len(C)), R, N))
        z = z @ A.T + rng.multivariate_normal(np.zeros(len(A)), Q, N)
    y = np.stack(steps, axis=1)
    return with_gaps(
        Cohort.from_sequences([x[:n] for x, n in zip(y, lengths, strict=True)]), seed, gaps
    )


def with_gaps(cohort, seed, share):
    rng = np.random.default_rng(seed)
    sequences = [np.where(rng.random(y.shape) < share, np.nan, y) for y in cohort.sequences()]
    return Cohort.from_sequences(sequences) if share else cohort


def total(params, cohort):
    """Log-likelihood, from the joint Gaussian of all cells of the longest sequence."""
    T, l = cohort.n_steps, params.n_states
    mean, cov = oracles.joint(params, T)
    mean, cov, out = mean[T * l :], cov[T * l :, T * l :], 0.0
    for y in cohort.sequences():
        cells = np.flatnonzero(np.isfinite(y))
        F = np.linalg.cholesky(cov[np.ix_(cells, cells)])
        e = linalg.solve_triangular(F, y.ravel()[cells] - mean[cells], lower=True)
        out -= 0.5 * (e @ e + len(e) * np.log(2 * np.pi)) + np.log(np.diagonal(F)).sum()
    return out


def white_noise(cohort):
    """The largest log-likelihood of independent cells, a mean and a variance for each channel."""
    cells = np.concatenate(cohort.sequences())
    n, variance = np.isfinite(cells).sum(0), np.nanvar(cells, 0)
    return float(-0.5 * (n * (np.log(2 * np.pi * variance) + 1)).sum())


def eigenvalues(params):
    return np.sort_complex(np.linalg.eigvals(np.asarray(params.A)))


def autocovariances(params, P, n_lags):
    """C A^k P C' (+ R at lag 0), (n_lags, d, d)."""
    A, C, R = (np.asarray(x) for x in (params.A, params.C, params.R))
    gamma = np.array([C @ np.linalg.matrix_power(A, k) @ P @ C.T for k in range(n_lags)])
    gamma[0] += R
    return gamma


def window_moment(params, m):
    """Second moment of m steps after a first state with second moment V1, (m d, m d)."""
    observed = slice(m * params.n_states, None)
    return oracles.joint(params, m)[1][observed, observed]


def moments(M, m):
    nothing = np.zeros(0)
    variance = np.ones(len(M) // m)
    return windows.Moments(m, variance, M, 1e12, None, nothing, nothing, nothing)


# --- what is recovered ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "roots, d, m", [([0.9, 0.5], 1, 6), ([0.8 + 0.4j, 0.95], 2, 8), ([0.9, 0.6, -0.3, 0.1], 2, 8)]
)
def test_exact_moments_give_the_exact_system(roots, d, m):
    """From the M of the model itself: by shift invariance up to rounding, states not stationary."""
    params = system(0, roots, d)
    exact = moments(window_moment(params, m), m)
    found = initial._subspace(exact, len(params.A), np.random.default_rng(0))
    np.testing.assert_allclose(eigenvalues(found), eigenvalues(params), atol=1e-6)
    ahead, wanted = (
        np.concatenate([x.C @ np.linalg.matrix_power(x.A, k) for k in range(4)])
        for x in (found, params)
    )  # the same column space: C A^k are of one basis
    np.testing.assert_allclose(ahead @ np.linalg.lstsq(ahead, wanted)[0], wanted, atol=1e-6)


def test_truth_is_a_fixed_point_of_em_on_windows():
    params = system(1, [0.8 + 0.4j, 0.9], 2)
    found = initial._fit_windows(params, moments(window_moment(params, 8), 8))
    np.testing.assert_allclose(eigenvalues(found), eigenvalues(params), atol=1e-9)
    np.testing.assert_allclose(window_moment(found, 8), window_moment(params, 8), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_em_on_windows_never_falls(seed, monkeypatch):
    """The mean log-likelihood of windows, for a start far off. No bound on Ω binds here."""
    m, truth, start = 6, system(seed, [0.8, 0.5], 2), system(seed + 10, [0.6, 0.3], 2)
    M = window_moment(truth, m)

    def objective(params):
        S = window_moment(params, m)
        return -0.5 * (np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, M)))

    monkeypatch.setattr(initial, "_STEPS", 1)
    trace, params = [objective(start)], start
    for _ in range(30):
        params = initial._fit_windows(params, moments(M, m))
        trace.append(objective(params))
    assert np.diff(trace).min() > -1e-10
    assert trace[-1] < objective(truth) + 1e-10  # the largest value there is
    assert objective(truth) - trace[-1] < 0.1 * (objective(truth) - trace[0])


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_much_data_gives_the_system_back(gaps):
    """Ragged: N = 1000, mean length 30, so n = 30000 steps.

    The standard error of a lagged moment is about sqrt(2 (1+λ²)/(1-λ²) / n) ≈ 2% of Γ_0 for λ = 0.9, and
    more by about 1/0.7 with 30% of gaps; that of an eigenvalue sqrt((1-λ²)/n) ≤ 0.006 if the states were
    seen. The bounds are 4 to 5 of the first, and leave the noise a factor of 5 in the second.
    """
    params = system(2, [0.9, 0.7 + 0.4j], 3, stationary=True)
    found = initial_params(drawn(2, params, 1000, 40, 20, gaps), 3)
    np.testing.assert_allclose(eigenvalues(found), eigenvalues(params), atol=0.03)
    P = linalg.solve_discrete_lyapunov(np.asarray(found.A), np.asarray(found.Q))
    gamma, wanted = autocovariances(found, P, 8), autocovariances(params, params.V1, 8)
    sd = np.sqrt(np.diagonal(wanted[0]))
    assert np.abs((gamma - wanted) / sd[:, None] / sd).max() < 0.1


def test_start_of_the_sequences_is_found():
    """Mean C A^k pi1 and covariance C V1 C' of the signal, N = 1000: to 4 standard errors."""
    params, N = system(3, [0.9, 0.5], 3), 1000
    found = initial_params(drawn(3, params, N, 20), 2)
    start = params.C @ params.V1 @ params.C.T + params.R
    sd = np.sqrt(np.diagonal(start))
    for k in range(3):
        mean, wanted = (
            np.asarray(x.C) @ np.linalg.matrix_power(np.asarray(x.A), k) @ np.asarray(x.pi1)
            for x in (found, params)
        )
        assert (np.abs(mean - wanted) < 4 * sd / np.sqrt(N)).all()
    C = np.asarray(found.C)
    difference = C @ np.asarray(found.V1) @ C.T - params.C @ params.V1 @ params.C.T
    assert (np.abs(difference) < 4 * np.sqrt(2 / N) * np.outer(sd, sd)).all()


def test_moments_are_pooled_over_the_pairs_that_are_seen():
    """Against loops over windows and cells; pseudo-windows weigh 2 against the pairs seen."""
    cohort, m = drawn(4, system(4, [0.9, 0.5], 2), 300, 9, 2, gaps=0.3), 4
    scale, variance = windows.channels(cohort)
    sums, counts = np.zeros((m * 2, m * 2)), np.zeros((m * 2, m * 2))
    for y in cohort.sequences():
        for t in range(len(y) - m + 1):
            w = (y[t : t + m] / scale).ravel()
            product = np.outer(w, w)
            sums += np.nan_to_num(product)
            counts += np.isfinite(product)
    found = windows.pool(cohort, scale, variance, m)
    # both means of the product of two channels of mean square 1 are of order 1
    assert np.abs(found.M - sums / counts).max() < 4 / counts.min()
    np.testing.assert_allclose(found.n, counts.mean())
    first = np.array([np.pad(y[:m], ((0, max(0, m - len(y))), (0, 0)), constant_values=np.nan)
                      for y in cohort.sequences()]).reshape(-1, 2 * m) / np.tile(scale, m)  # fmt: skip
    np.testing.assert_allclose(found.first_mean, np.nanmean(first, 0))


# --- how good a start is -------------------------------------------------------------------------

CASES = {  # the truth's eigenvalues, d, N, T, shortest, gaps
    "complete": ([0.9, 0.7 + 0.3j], 3, 200, 30, None, 0.0),
    "ragged": ([0.9, 0.8 + 0.3j, 0.4, 0.2], 3, 60, 30, 10, 0.0),
    "gappy": ([0.9, 0.8 + 0.3j, 0.4, 0.2], 3, 60, 30, 10, 0.3),
    "mostly missing": ([0.9, 0.7 + 0.3j], 3, 100, 30, 10, 0.7),
    "two steps": ([0.9, 0.5], 3, 500, 2, None, 0.0),
    "one sequence": ([0.9, 0.5], 2, 1, 400, None, 0.0),
    "many channels": ([0.9, 0.7 + 0.3j], 8, 60, 20, 5, 0.1),
}


def test_a_lag_that_is_never_seen_is_bridged():
    """Every other step is missing, as for daily values on a grid of 12 hours."""
    truth = system(9, [0.95, 0.9], 2)
    sequences = drawn(9, truth, 100, 30).sequences()
    for n, y in enumerate(sequences):
        y[n % 2 :: 2] = np.nan
    cohort = Cohort.from_sequences(sequences)
    top, floor = total(truth, cohort), white_noise(cohort)
    assert total(initial_params(cohort, 2), cohort) - floor > 0.9 * (top - floor)


def test_a_mean_far_from_zero_takes_a_state():
    """A level of 90 with sd 5 is a state that stays; noise about the mean is what it must beat."""
    truth = system(10, [0.8, 0.4], 3)
    raw = [90 + 2.5 * y for y in drawn(10, truth, 100, 25, 15).sequences()]
    cohort = Cohort.from_sequences(raw)
    start = initial_params(cohort, 3)
    assert 0.99 < spectral_radius(start) < 1
    assert total(start, cohort) > white_noise(cohort) + 1000


def test_states_without_evidence_do_no_harm():
    """A truth of two states, started with 2 to 20: d · m is 20, so some of them are filled in."""
    cohort = drawn(11, system(11, [0.9, 0.6], 2), 100, 20)
    few = total(initial_params(cohort, 2), cohort)
    for l in (3, 8, 20):
        start = initial_params(cohort, l)
        assert total(start, cohort) > few - 0.01 * int(cohort.n_observed)
        assert (np.abs(start.C).max(0) > 1e-8).all()  # from 0, EM would never move them


# --- always usable -------------------------------------------------------------------------------


def awkward(kind, rng):
    """A small ragged cohort of three channels, often with gaps, with what is awkward about it."""
    N, T = int(rng.choice([1, 2, 3, 20])), int(rng.choice([2, 3, 4, 7, 20]))
    lengths = rng.integers(1, T + 1, N)
    lengths[rng.integers(N)] = T
    sequences = [rng.normal(size=(T, 3)).cumsum(0) for T in lengths]
    share = rng.choice([0.0, 0.2, 0.6])
    for y in sequences:
        match kind:
            case "constant channel":
                y[:, 2] = 7.0
            case "channel of zeros":
                y[:, 2] = 0.0
            case "all constant":
                y[:] = 3.0
            case "collinear":
                y[:, 2] = 2 * y[:, 0]
            case "level":
                y[:] = 90 + 5 * y
            case "units":
                y *= [1e-9, 1.0, 1e9]
            case "explosive":
                y *= 1.2 ** np.arange(len(y))[:, None]
        y[rng.random(y.shape) < share] = np.nan
    cells = np.concatenate(sequences)
    steps = max(int(np.isfinite(y).any(1).sum()) for y in sequences)
    if np.isfinite(cells).any(0).all() and steps >= 2:
        return Cohort.from_sequences(sequences)
    return awkward(kind, rng)


KINDS = ["plain", "constant channel", "channel of zeros", "all constant", "collinear", "level",
         "units", "explosive"]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_start_is_always_usable(kind, method):
    """l below, at, and far above d and d · m; R stays away from 0 in every direction."""
    rng = np.random.default_rng(KINDS.index(kind))
    for seed, l in enumerate([1, 3, 3, 5, 5, 5, 40, 40]):
        cohort = awkward(kind, rng)
        start = check_params(initial_params(cohort, l, method, key=seed), 3, l)
        assert {x.dtype for x in start} == {np.dtype("float64")}
        assert spectral_radius(start) < 0.99991
        np.testing.assert_allclose(np.trace(start.Q) / l, 1)
        assert np.linalg.eigvalsh(start.Q)[0] > 1e-7
        assert np.linalg.eigvalsh(start.V1)[0] > 1e-7
        cells = np.concatenate(cohort.sequences())
        rms, sd = np.sqrt(np.nanmean(cells**2, 0)), np.nanstd(cells, 0)
        level = np.where(rms > 0, rms, rms[rms > 0].mean())
        unit = np.where(sd > 1e-4 * rms, sd, 0.01 * level)  # noise that a constant channel is given
        assert np.linalg.eigvalsh(np.asarray(start.R) / unit / unit[:, None])[0] > 0.99e-3


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_at_the_start_is_finite(kind):
    cohort = awkward(kind, np.random.default_rng(99))
    assert np.isfinite(log_likelihood(initial_params(cohort, 5), cohort)).all()


def test_single_precision_is_enough_for_the_result():
    cohort = awkward("level", np.random.default_rng(3))
    with jax.enable_x64(False):
        for method in METHODS:
            start = initial_params(cohort, 5, method, key=0)
            assert {x.dtype for x in start} == {np.dtype("float32")}
            check_params(start)


# --- invariance ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gappy():
    return drawn(12, system(12, [0.9, 0.6 + 0.3j], 3), 40, 15, 3, gaps=0.2)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_sequences_does_not_matter(gappy, method):
    shuffled = gappy.take(np.random.default_rng(0).permutation(len(gappy)))
    for x, y in zip(*(initial_params(c, 5, method, key=0) for c in (gappy, shuffled)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)


def test_blocks_of_sequences_do_not_matter():
    """A cohort taken ten times over says the same; 400 sequences are pooled in two blocks."""
    params = system(13, [0.9, 0.5], 2)
    sequences = drawn(13, params, 40, 15, 8, gaps=0.1).sequences()
    once, often = (Cohort.from_sequences(sequences * k) for k in (1, 10))
    scale, variance = windows.channels(once)
    np.testing.assert_allclose(windows.channels(often), (scale, variance))
    one, ten = (windows.pool(c, scale, variance, 5) for c in (once, often))
    np.testing.assert_allclose(10 * one.n, ten.n)
    np.testing.assert_allclose(one.M, ten.M, atol=4 / one.n)
    np.testing.assert_allclose(one.first_mean, ten.first_mean)


def test_key_decides_and_nothing_else(gappy):
    seed, key = (initial_params(gappy, 5, "random", key=k) for k in (3, jax.random.key(3)))
    other = initial_params(gappy, 5, "random", key=4)
    assert all((x == y).all() for x, y in zip(seed, key, strict=True))
    assert not np.allclose(seed.A, other.A)
    for method in ("subspace", "pca"):
        one, two = (initial_params(gappy, 5, method) for _ in range(2))
        assert all((x == y).all() for x, y in zip(one, two, strict=True))
        # l <= d: nothing is left to chance
        one, two = (initial_params(gappy, 3, method, key=k) for k in (3, 4))
        assert all((x == y).all() for x, y in zip(one, two, strict=True))
    assert not np.allclose(*(initial_params(gappy, 5, "pca", key=k).C for k in (3, 4)))


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_states", [0, -1, 2.5, "3", None, True])
def test_number_of_states_must_be_a_whole_number(gappy, n_states):
    with pytest.raises(ValueError, match=f"n_states is {n_states!r}; it must be a whole number"):
        initial_params(gappy, n_states)


def test_unknown_method_is_named(gappy):
    with pytest.raises(
        ValueError, match="method is 'spectral'; give 'subspace', 'pca' or 'random'"
    ):
        initial_params(gappy, 2, "spectral")


def test_random_needs_a_key(gappy):
    with pytest.raises(ValueError, match="key is None; method='random' needs a jax key or an int"):
        initial_params(gappy, 2, "random")
    with pytest.raises(ValueError, match="key is 1.5; give a jax key or an integer seed"):
        initial_params(gappy, 2, "random", key=1.5)


@pytest.mark.parametrize("method", METHODS)
def test_channel_without_a_cell_is_named(method):
    y = np.ones((4, 2))
    y[:, 1] = np.nan
    cohort = Cohort.from_sequences([y], channels=["mcv", "mch"])
    with pytest.raises(
        ValueError, match="no observed cell in channel 'mch'.*leave the channel out"
    ):
        initial_params(cohort, 2, method, key=0)


def test_sequences_of_one_step_say_nothing_on_A():
    one_step = Cohort.from_sequences([np.ones((1, 2)), np.zeros((1, 2))])
    one_seen = Cohort.from_sequences([np.array([[1.0], [np.nan]]), np.array([[np.nan], [2.0]])])
    for cohort, length in ((one_step, 1), (one_seen, 2)):
        for method in ("subspace", "pca"):
            with pytest.raises(
                ValueError, match=f"too short to say anything on A.*length is {length}"
            ):
                initial_params(cohort, 2, method)
        check_params(initial_params(cohort, 2, "random", key=0))
