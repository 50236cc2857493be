"""Identifiability: the changes of basis z → Wz that neither the likelihood nor a constraint rules out.

The likelihood is the same after A → WAW⁻¹, C → CW⁻¹, Q → WQW', π1 → Wπ1, V1 → WV1W'. Near the identity W = exp(tX):
a parameter that is held allows those X that do not change the parameter, to first order in t. The X that all
parameters held allow are the directions in which the posterior is flat but for its prior.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import null_space

from ..models import LDSParams
from ..models.basis import moved
from ..models.linalg import definite
from ..models.params import PARAMETERS
from .alignment import align as align
from .constraints import Constraints

_TOLERANCE = 1e-8  # relative, on singular values and on distances from the null space


class Identifiability(NamedTuple):
    """The continuous changes of basis that are left open; `print` shows them in words."""

    held: tuple[str, ...]
    n_directions: int  # 0: the likelihood fixes the basis, locally
    generators: np.ndarray  # (n_directions, l, l), of norm 1: W = exp(tX) keeps all that is held
    named: tuple[str, ...]  # names of the elementary directions among them
    n_translations: int = (
        0  # constants by which states can be moved, as an intercept in B and D allows
    )

    def __str__(self) -> str:
        moved = "" if self.n_translations == 0 else "\n" + self._translations()
        return self._directions() + moved

    def _translations(self) -> str:
        many = "constant" if self.n_translations == 1 else f"{self.n_translations} constants"
        return (
            f"The intercept acts on states and channels: states can be moved by {many} of any size, and pi1 and the "
            "intercept's columns of B and D with them, without any change of the likelihood. A does not change."
        )

    def _directions(self) -> str:
        held = ", ".join(self.held) or "nothing"
        if self.n_directions == 0:
            return f"With {held} held, no continuous change of basis is left: entries of A have a meaning."
        l = self.generators.shape[-1]
        many = "direction" if self.n_directions == 1 else "directions"
        lines = [
            f"With {held} held, {self.n_directions} {many} of {l * l} are left in which the states can be changed "
            "without any change of the likelihood:"
        ]
        if self.n_directions == l * l:
            lines.append("  - every invertible change of basis")
        else:
            lines += [f"  - {name}" for name in self.named]
            rest = self.n_directions - len(self.named)
            if rest > 0:
                lines.append(
                    f"  - {rest} more, each mixing several states (see `generators`)"
                    if self.named
                    else f"  - {rest}, each mixing several states (see `generators`)"
                )
        lines.append(
            "Entries of A, zeros among them, then follow from the prior and not from the data. Eigenvalues, Markov "
            "parameters and forecasts do not depend on the basis. Holding C fixes it where rank C = l."
        )
        return "\n".join(lines)


def identifiability_report(
    params: LDSParams, held: Sequence[str] | Constraints = (), intercept: int | None = None
) -> Identifiability:
    """Count and name the directions of change of basis that constraints leave open.

    `held` names the parameters that are held, or is the `constraints` of a fit. `intercept` is the input that is always
    1 (`cohort.intercept`): where it acts on states and channels, translations of the states are counted too.
    """
    constraints = held if isinstance(held, Constraints) else _holding(held)
    held = constraints.held
    host = LDSParams(*(np.asarray(x, float) for x in params))
    l = host.A.shape[0]
    # in units in which the states' noise is alike, so that a small effect is not taken for none
    scale = np.sqrt(np.diagonal(definite(host.Q)))
    host = moved(host, np.diag(1 / scale))
    units = np.eye(l * l).reshape(-1, l, l)
    free = np.eye(l * l)
    columns = [[c.ravel() for c in constraints.changes(host, X)] for X in units]
    if columns[0]:
        stacked = np.stack([np.concatenate(c) for c in columns], axis=1)
        free = null_space(stacked, rcond=_TOLERANCE).T
    names = _names(free, host, held)
    back = free.reshape(-1, l, l) * scale[:, None] / scale
    size = np.linalg.norm(back, axis=(1, 2), keepdims=True)
    moves = 0 if intercept is None else _translations(host, constraints, intercept)
    return Identifiability(held, len(free), back / np.where(size > 0, size, 1.0), names, moves)


def _translations(p: LDSParams, constraints: Constraints, intercept: int) -> int:
    """Return the number of independent c for which z → z + c is open, of the states that move.

    The intercept's columns become B + (I - A) c and D - C c, and π1 becomes π1 + A c: what is held must not change.
    """
    core, k = constraints.moving(p), constraints.n_moving(p)
    changes = {"B": np.eye(k) - core.A, "D": core.C, "pi1": core.A}
    ruled_out = [np.zeros((0, k))]
    for name, change in changes.items():
        there = name == "pi1" or intercept in constraints.columns(name, p.n_inputs)
        if not (constraints.free(name) and there):
            ruled_out.append(change)
    return null_space(np.vstack(ruled_out), rcond=_TOLERANCE).shape[1] if ruled_out[1:] else k


def _holding(names: Sequence[str]) -> Constraints:
    """Return constraints that hold the named parameters; raise if a name is unknown."""
    names = (names,) if isinstance(names, str) else tuple(names)
    unknown = [name for name in names if name not in PARAMETERS]
    if unknown:
        raise ValueError(f"held names {unknown[0]!r}; it may name {', '.join(PARAMETERS)}")
    return Constraints(hold=names)


def _names(free: np.ndarray, p: LDSParams, held: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of elementary directions in the span of `free` (k, l²), independent of each other."""
    l = p.A.shape[0]
    if len(free) in (0, l * l):
        return ()
    candidates = [(f"the scale of state {i}", _unit(l, i, i)) for i in range(l)]
    metrics = {"": np.eye(l)}
    metrics |= {
        f", in the metric of {k}": definite(getattr(p, k)) for k in ("Q", "V1") if k in held
    }
    for where, metric in metrics.items():
        inverse = np.linalg.inv(metric)
        for i in range(l):
            for j in range(i):
                rotation = (_unit(l, i, j) - _unit(l, j, i)) @ inverse
                candidates.append((f"rotation of states {j} and {i}{where}", rotation))
    candidates += [
        (f"state {j} added to state {i}", _unit(l, i, j))
        for i in range(l)
        for j in range(l)
        if i != j
    ]
    names, span = [], np.zeros((0, l * l))
    for name, X in candidates:
        x = X.ravel() / np.linalg.norm(X)
        inside = np.linalg.norm(x - free.T @ (free @ x)) < 1e-6
        more = np.vstack([span, x])
        if inside and np.linalg.matrix_rank(more, tol=1e-6) > len(span):
            names.append(name)
            span = more
    return tuple(names)


def _unit(l: int, i: int, j: int) -> np.ndarray:
    """Return the matrix (l, l) with a 1 at (i, j) and zeros elsewhere."""
    E = np.zeros((l, l))
    E[i, j] = 1.0
    return E
