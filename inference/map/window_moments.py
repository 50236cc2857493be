"""Pooled second moments of a cohort with gaps and unequal lengths, from which starting values are computed.

*Windows* are m consecutive steps w = (y_{t+1}, …, y_{t+m}) of any sequence, from any t on. Their second moment
M = mean of w w' is pooled entry by entry, over the windows that show both cells. M is not centred:
E y_{t+k} y_t' = C A^k E[z_t z_t'] C' holds even where states are not stationary, as in short sequences, but only for
moments about zero.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...models import Cohort

_SAMPLE = 500  # windows whose gaps are filled in


class Moments(NamedTuple):
    """Pooled moments, channels in units of their root mean square."""

    m: int  # steps of a window
    variance: np.ndarray  # (d,) of a channel about its mean
    M: np.ndarray  # (m d, m d)
    n: float  # windows behind an entry of M, on average
    sample: tuple[np.ndarray, np.ndarray] | None  # windows (n, m d) with gaps, and their seen cells
    shown: np.ndarray  # (m d,) the k cells of a sequence's first m steps that are ever seen
    first_mean: np.ndarray  # (k,)
    first_cov: np.ndarray  # (k, k)


def channels(cohort: Cohort) -> tuple[np.ndarray, np.ndarray]:
    """Return the root mean square of each channel, and its variance in those units, (d,)."""
    y, mask = np.asarray(cohort.y, np.float64), np.asarray(cohort.mask)
    n = mask.sum((0, 1))
    rms = np.sqrt((y * y).sum((0, 1)) / n)
    scale = np.where(rms > 0, rms, rms[rms > 0].mean() if rms.any() else 1.0)
    centred = np.where(mask, y - y.sum((0, 1)) / n, 0.0) / scale
    variance = (centred * centred).sum((0, 1)) / n
    # A constant channel is given noise of 1% of its level, or R would be singular.
    return scale, np.where(variance > 1e-9, variance, 1e-4)


def window_length(cohort: Cohort, l: int) -> int:
    """Return the steps of a window: as many as l states need, while at least half as many windows as pairs remain."""
    lengths, d = np.asarray(cohort.lengths), cohort.n_channels
    wanted = max(2 * -(-l // d) + 2, min(10, 100 // d))
    steps = range(2, min(wanted, cohort.n_steps) + 1)
    windows = [np.maximum(lengths - m + 1, 0).sum() for m in steps]
    return max(m for m, n in zip(steps, windows, strict=True) if 2 * n >= windows[0])


def pool(cohort: Cohort, scale, variance, m: int) -> Moments:
    """Return the moments of all windows within the sequences, and of the sequences' first m steps."""
    y, mask = np.asarray(cohort.y) / scale, np.asarray(cohort.mask)
    lengths, noise = np.asarray(cohort.lengths), white(variance, m)
    total, count, n = np.zeros_like(noise), np.zeros_like(noise), 0
    for start in range(0, len(y), 256):  # in blocks, since windows need m times the memory
        rows = slice(start, start + 256)
        inside = np.arange(y.shape[1] - m + 1) <= lengths[rows, None] - m
        w = _windows(y[rows], m)[inside].reshape(-1, len(noise))
        total += w.T @ w
        n += len(w)
        if not cohort.complete:
            seen = _windows(mask[rows], m)[inside].reshape(w.shape).astype(float)
            count += seen.T @ seen
    if cohort.complete:
        count[:] = n
    # One pseudo-window that is stationary for entries never seen, and one of white noise.
    M = (total + _stationary(total, count, m)) / (count + 1) + noise / n

    w, seen = y[:, :m].reshape(len(y), -1), mask[:, :m].reshape(len(y), -1)
    shown = np.any(seen, axis=0)
    w, seen = w[:, shown], seen[:, shown].astype(float)
    mean = w.sum(0) / seen.sum(0)
    w = w - seen * mean
    cov = (w.T @ w + noise[np.ix_(shown, shown)]) / (seen.T @ seen + 1)
    few = not cohort.complete and count.mean() < _SAMPLE * m  # windows overlap m times
    sample = _sample(y, mask, lengths, m) if few else None
    return Moments(m, variance, _positive(M), count.mean(), sample, shown, mean, _positive(cov))


def _sample(y, mask, lengths, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the windows with the most seen cells, among those that overlap by half."""
    starts = slice(None, None, max(1, m // 2))
    inside = (np.arange(y.shape[1] - m + 1) <= lengths[:, None] - m)[:, starts]
    w, seen = (_windows(x, m)[:, starts][inside].reshape(inside.sum(), -1) for x in (y, mask))
    # Ties go by the last digits: chance that does not depend on the order of the sequences.
    best = np.lexsort((np.modf(1e6 * w.sum(1))[0], -seen.sum(1)))[:_SAMPLE]
    return w[best], seen[best]


def _windows(x: np.ndarray, m: int) -> np.ndarray:
    """Return all m consecutive steps of x (N, T, d), as a view (N, T - m + 1, m, d)."""
    return sliding_window_view(x, m, axis=1).swapaxes(2, 3)


def white(variance: np.ndarray, m: int) -> np.ndarray:
    """Return the second moment of windows of white noise, (m d, m d)."""
    return np.diag(np.tile(variance, m))


def _stationary(total, count, m: int) -> np.ndarray:
    """Return the stationary M, with the same Γ_k in all blocks (t + k, t).

    A lag at which two channels are never seen is interpolated between its neighbours, with 0 at lag m.
    """
    lags = list(range(1 - m, m))
    sums, counts = (
        np.array([blocks(x, m, k).sum(0) for k in lags]) for x in (total, count)
    )  # (2m - 1, d, d)
    gamma = sums / np.maximum(counts, 1)
    d = gamma.shape[-1]
    gamma[m - 1, range(d), range(d)] = counts[m - 1, range(d), range(d)] = 1  # by the units
    for a, b in np.argwhere((counts == 0).any(0)):
        known = np.flatnonzero(counts[:, a, b])
        at, value = np.pad(known + 1 - m, 1, constant_values=(-m, m)), gamma[known, a, b]
        gamma[:, a, b] = np.interp(lags, at, np.pad(value, 1))
    t = np.arange(m)
    return gamma[t[:, None] - t + m - 1].swapaxes(1, 2).reshape(total.shape)


def blocks(X: np.ndarray, m: int, lag: int = 0) -> np.ndarray:
    """Return the blocks (t + lag, t) of a matrix of m x m blocks, stacked over t."""
    t = np.arange(max(0, -lag), m - max(0, lag))
    return X.reshape(m, X.shape[0] // m, m, X.shape[1] // m)[t + lag, :, t]


def _positive(S: np.ndarray) -> np.ndarray:
    """Return S with its correlation matrix made positive definite, which pairwise moments need not be.

    How far the smallest eigenvalue lies below 0 shows how uncertain eigenvalues near 0 are.
    """
    sd = np.sqrt(np.diagonal(S))
    values, vectors = np.linalg.eigh(S / sd[:, None] / sd)
    least = np.clip(-values.min(initial=0.0), 1e-9, 0.1)
    if values.min(initial=1.0) >= least:
        return S
    X = vectors * np.maximum(values, least) @ vectors.T
    sd = sd / np.sqrt(np.diagonal(X))
    return X * sd[:, None] * sd
