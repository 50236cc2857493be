"""What never moves among the draws, and what of that has to stand still: forced entries, exact zeros, static states."""

import json
from typing import Any

import numpy as np

from ...models import Prior
from ..constraints import COVARIANCES


def prior_of(attrs: Any) -> Prior | None:
    """Return the prior on A that a posterior was sampled with, from its attributes; None if it is unknown."""
    text = attrs.get("prior_json", "")
    try:
        return Prior.from_dict(json.loads(text)) if text else None
    except ValueError:  # a user's own, whose file has not been imported
        return None


def still_problems(data: Any, frozen: list[int], n_channels: int) -> list[str]:
    """Return in words what chains (`frozen`) and entries that never move say against the draws."""
    problems = []
    if frozen:
        numbers = ", ".join(map(str, frozen))
        problems.append(
            f"{len(frozen)} of {data.sizes['chain']} chains never moved (number {numbers}), and longer ones would not "
            "either. Try target_accept=0.95, or another key."
        )
    stuck = stuck_entries(data, n_channels)
    if stuck:
        named = ", ".join(stuck[:5]) + (", …" if len(stuck) > 5 else "")
        problems.append(
            f"Entries of free parameters that never moved, though nothing forces them: {len(stuck)} ({named}). The "
            "sampler is stuck there. Try target_accept=0.95, or another key."
        )
    return problems


def stuck_entries(data: Any, n_channels: int) -> list[str]:
    """Return the entries of free parameters that are the same in all draws, though nothing forces them to be."""
    found = []
    k = _n_moving(data, n_channels)
    for name in str(data.attrs.get("free", "")).split():
        if name not in data:
            continue
        x = data[name].values
        still = np.ptp(x, axis=(0, 1)) == 0
        value = x[0, 0]
        if name == "A":
            still &= ~_of_the_prior(data, value, k)
        elif name in COVARIANCES:
            still &= ~_of_the_shape(name, value, k)
        elif name in ("B", "D"):
            still &= value != 0  # columns that are not there, and rows of static states
        found += [f"{name}[{', '.join(map(str, at))}]" for at in np.argwhere(still)]
    return found


def frozen_chains(data: Any) -> list[int]:
    """Return the numbers of the chains in which no quantity ever changes."""
    n_chains, n_draws = data.sizes["chain"], data.sizes["draw"]
    moved = np.zeros(n_chains, bool)
    for name, variable in data.data_vars.items():
        if name == "beta":  # drawn afterwards, given A
            continue
        x = variable.transpose("chain", "draw", ...).values.reshape(n_chains, n_draws, -1)
        moved |= (x != x[:, :1]).any((1, 2))
    return np.flatnonzero(~moved).tolist()


def _n_moving(data: Any, n_channels: int) -> int:
    """Return how many states move: all, unless the last, one a channel, are own levels, where A is the identity."""
    if "A" not in data:
        return int(data.attrs.get("n_states", 0))
    A = data["A"].values
    l = A.shape[-1]
    k = l - n_channels
    if not 0 < k < l:
        return l
    static = (A[..., k:, :] == np.eye(l)[k:]).all() and (A[..., :k, k:] == 0).all()
    return k if static else l


def _of_the_prior(data: Any, A: np.ndarray, k: int) -> np.ndarray:
    """Tell which entries of A (l, l), none of which moves, the prior keeps where they are; k states move.

    Where the prior is not known, an exact zero is taken for one that it forces.
    """
    kept = np.ones(A.shape, bool)  # static states
    prior, block = prior_of(data.attrs), A[:k, :k]
    if prior is None:
        kept[:k, :k] = block == 0
    else:
        kept[:k, :k] = prior.forced(k)
        if "included" in data:
            kept[:k, :k] |= prior.at_center(block)
    return kept


def _of_the_shape(name: str, S: np.ndarray, k: int) -> np.ndarray:
    """Tell which entries of a covariance are zero by its shape: off the diagonal, and in Q those of static states."""
    kept = (S == 0) & ~np.eye(len(S), dtype=bool)
    if name == "Q":
        kept[k:, k:] |= S[k:, k:] == 0
    return kept
