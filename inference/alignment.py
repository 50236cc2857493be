"""Relabelling of states: draws that differ in the order and signs of the states are brought to one labelling."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..models import LDSParams
from ..models.priors.base import Symmetry


def relabelling(
    params: LDSParams, free: Sequence[str], prior: Symmetry = "signed permutations"
) -> Symmetry:
    """Return which relabellings of the states leave the posterior unchanged; `prior` says which leave the prior so.

    Signs can change where nothing held tells a state from its negative, order where nothing held tells
    two states apart.
    """
    held = {k: np.asarray(v, float) for k, v in params._asdict().items() if k not in free}
    driven = any(np.any(held.get(name, 0.0)) for name in ("pi1", "B"))
    if prior == "none" or held.keys() & {"A", "C"} or driven:
        return "none"
    covariances = [held[k] for k in ("Q", "V1") if k in held]
    if any(np.any(S != np.diag(np.diagonal(S))) for S in covariances):
        return "none"
    alike = all(np.ptp(np.diagonal(S)) == 0 for S in covariances)
    return prior if alike else "signs"


def align(A: np.ndarray, C: np.ndarray, params: LDSParams, kind: Symmetry) -> np.ndarray:
    """Return for each draw (n, l, l), (n, d, l) the signed permutation W (l, l) that brings it nearest to `params`.

    Nearest is ‖CW' - C*‖² / ‖C*‖² + ‖WAW' - A*‖² / ‖A*‖². The first is a linear assignment; the second is
    linearised around the last W, and the best W met is taken.
    """
    target_A, target_C = np.asarray(params.A, float), np.asarray(params.C, float)
    a, c = (1 / max(float((x**2).sum()), 1e-300) for x in (target_A, target_C))
    l = len(target_A)

    def fit(W, A, C):  # minus half the distance, without the terms that W does not change
        return c * np.sum((C @ W.T) * target_C) + a * np.sum((W @ A @ W.T) * target_A)

    def best(G):
        """Return the signed permutation with the largest Σ W G."""
        if kind == "signs":
            rows = columns = np.arange(l)
        else:
            rows, columns = linear_sum_assignment(-np.abs(G))
        W = np.zeros((l, l))
        W[rows, columns] = np.where(G[rows, columns] < 0, -1.0, 1.0)
        return W

    found = np.empty((len(A), l, l))
    for n, (A_n, C_n) in enumerate(zip(A, C, strict=True)):
        linear = c * target_C.T @ C_n
        W, seen = np.eye(l), []
        for start in (np.eye(l), best(linear)):
            W = start
            for _ in range(10):
                seen.append(W)
                new = best(linear + a * (target_A @ W @ A_n.T + target_A.T @ W @ A_n))
                if (new == W).all():
                    break
                W = new
        found[n] = max(seen, key=lambda W, A=A_n, C=C_n: fit(W, A, C))
    return found
