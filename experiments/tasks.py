"""The paper's prediction tasks (ψ, φ), drawn at random, and the type of a forecaster.

ψ is the last step that is seen, φ the one to predict, 1 ≤ ψ < φ ≤ n, where n is the length of the sequence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..models import Cohort

Forecaster = Callable[[Cohort, "Tasks"], np.ndarray]  # -> (M, d), in the cohort's units


class Tasks(NamedTuple):
    """M prediction tasks: predict step φ from the first ψ steps."""

    patient: np.ndarray  # (M,), index of the sequence
    psi: np.ndarray  # (M,), how many steps are seen
    phi: np.ndarray  # (M,), the step to predict, counted from 1


def make_tasks(cohort: Cohort, seed: int, n_pairs: int = 5) -> Tasks:
    """Draw `n_pairs` distinct pairs (ψ, φ) for every patient, or all pairs where a sequence has fewer.

    Step φ has a value in at least one channel. All pairs of a sequence are equally likely, and they depend on `seed`,
    the lengths and the missing steps only, so that all methods face the same tasks.
    """
    rng = np.random.default_rng(seed)
    patient, psi, phi = [], [], []
    seen: Any = np.asarray(cohort.mask).any(2)
    for n, length in enumerate(np.asarray(cohort.lengths)):
        targets = np.flatnonzero(seen[n, :length]) + 1
        targets = targets[targets >= 2]
        # A pair is drawn by its place in the list of all pairs, where each φ has φ - 1 neighbouring places.
        ends = np.cumsum(targets - 1)
        total = int(ends[-1]) if len(ends) else 0
        chosen = rng.choice(total, min(n_pairs, total), replace=False)
        which = np.searchsorted(ends, chosen, side="right")
        start = ends[which] - (targets[which] - 1)
        patient.append(np.full(len(chosen), n))
        psi.append(chosen - start + 1)
        phi.append(targets[which])
    return Tasks(*(np.concatenate(x).astype(int) for x in (patient, psi, phi)))


def every_task(cohort: Cohort) -> Tasks:
    """Return all pairs (ψ, φ) of every patient, where step φ has a value in at least one channel."""
    seen: Any = np.asarray(cohort.mask).any(2)
    found = [np.zeros((0, 3), int)]
    for n, length in enumerate(np.asarray(cohort.lengths)):
        psi, phi = np.triu_indices(int(length), 1)
        pairs = np.stack([np.full(len(psi), n), psi + 1, phi + 1], axis=1)
        found.append(pairs[seen[n][phi]])
    return Tasks(*np.concatenate(found).T)


def matrix_powers(A: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Raise A (l, l) to every power in k (M,), as the steps ahead of M tasks need: (M, l, l)."""
    powers = [np.eye(len(A))]
    for _ in range(int(k.max(initial=0))):
        powers.append(A @ powers[-1])
    return np.stack(powers)[k]
