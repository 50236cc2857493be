"""Sequences that keep a level of their own: for each channel a state that never changes, beside the states that move.

    z = (x, u):  x_t = A x_{t-1} + e_t,  u_t = u_{t-1},  y_t = C x_t + u_t + v_t

u ~ N(mean, cov) is drawn once a sequence: the random intercept of longitudinal models. As an LDS it has a transition
diag(A, I), an emission (C, I) and a noise diag(Q, 0), which is singular: the static states, the last d, have none.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import block_diag

from .cohort import Cohort
from .params import LDSParams


def with_own_levels(core: LDSParams, mean: Any, cov: Any) -> LDSParams:
    """Return a model in which sequences have levels of their own, of this mean (d,) and covariance (d, d)."""
    A, C, Q, R, pi1, V1, B, D = jax.tree.map(np.asarray, core).eight
    d = len(C)
    return LDSParams(
        A=np.asarray(block_diag(A, np.eye(d))),
        C=np.hstack([C, np.eye(d)]),
        Q=np.asarray(block_diag(Q, np.zeros((d, d)))),
        R=R,
        pi1=np.append(pi1, mean),
        V1=np.asarray(block_diag(V1, cov)),
        B=None if B is None else np.pad(B, [(0, d), (0, 0)]),  # inputs do not act on static states
        D=D,
    )


def leading_states(params: LDSParams, k: int) -> LDSParams:
    """Return the part of a model that its first k states make up."""
    if k == params.n_states:
        return params
    A, C, Q, R, pi1, V1, B, D = params.eight
    inputs = None if B is None else B[:k], D
    return LDSParams(A[:k, :k], C[:, :k], Q[:k, :k], R, pi1[:k], V1[:k, :k], *inputs)


class VarianceParts(NamedTuple):
    """Where the variance of each channel comes from, in the cohort's units: three arrays (d,)."""

    between: np.ndarray  # the sequences' own levels
    within: np.ndarray  # what moves, on average over the cohort's steps
    error: np.ndarray  # R


def variance_parts(params: LDSParams, k: int, cohort: Cohort) -> VarianceParts:
    """Return the variance of each channel by source, for a model whose first k states move and whose others are static.

    What moves need not be stationary: its variance is that of C x_t, averaged over the steps that the cohort has.
    """
    A, C, Q, R, _, V1, *_ = jax.tree.map(lambda x: np.asarray(x, float), params)
    n_t = (np.arange(cohort.n_steps)[:, None] < np.asarray(cohort.lengths)).sum(1)
    P, within = V1[:k, :k], np.zeros(len(C))
    for n in n_t:
        within += n * np.diagonal(C[:, :k] @ P @ C[:, :k].T)
        P = A[:k, :k] @ P @ A[:k, :k].T + Q[:k, :k]
    between = np.diagonal(C[:, k:] @ V1[k:, k:] @ C[:, k:].T)
    return VarianceParts(between.copy(), within / n_t.sum(), np.diagonal(R).copy())
