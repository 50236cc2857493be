"""What the likelihood leaves open: changes of basis z → Wz that nothing held forbids, and how draws are aligned.

The likelihood is the same after A → WAW⁻¹, C → CW⁻¹, Q → WQW', π1 → Wπ1, V1 → WV1W'. Near the identity W = exp(tX):
a parameter that is held allows those X that do not change it, to first order in t. The X that all of
them allow are the directions in which the posterior is flat but for its prior.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linear_sum_assignment

from ..models import LDSParams
from .map.accelerate.basis_steps import level

_TOLERANCE = 1e-8  # relative, on singular values and on distances from the null space


class Identifiability(NamedTuple):
    """The continuous symmetries that are left; print it to read it."""

    held: tuple[str, ...]
    n_directions: int  # 0: the likelihood pins the basis, locally
    generators: np.ndarray  # (n_directions, l, l), of norm 1: W = exp(tX) leaves all that is held
    named: tuple[str, ...]  # elementary directions among them

    def __str__(self) -> str:
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


def identifiability_report(params: LDSParams, held: Sequence[str] = ()) -> Identifiability:
    """Count and name the directions of change of basis that the parameters named in `held` leave open."""
    held = (held,) if isinstance(held, str) else tuple(held)
    unknown = [name for name in held if name not in LDSParams._fields]
    if unknown:
        raise ValueError(f"held names {unknown[0]!r}; it may name {', '.join(LDSParams._fields)}")
    host = LDSParams(*(np.asarray(x, float) for x in params))
    l = host.A.shape[0]
    # in units in which the states' noise is alike: what is small is not what is flat
    scale = np.sqrt(np.diagonal(host.Q))
    host = LDSParams(*(np.asarray(x) for x in level(host)))
    units = np.eye(l * l).reshape(-1, l, l)
    free = np.eye(l * l)
    if held:
        columns = [np.concatenate([c.ravel() for c in _changes(host, X, held)]) for X in units]
        free = null_space(np.stack(columns, axis=1), rcond=_TOLERANCE).T
    names = _names(free, host, held)
    back = free.reshape(-1, l, l) * scale[:, None] / scale
    size = np.linalg.norm(back, axis=(1, 2), keepdims=True)
    return Identifiability(held, len(free), back / np.where(size > 0, size, 1.0), names)


def _changes(p: LDSParams, X: np.ndarray, held: Iterable[str]) -> Iterator[np.ndarray]:
    """The derivative of each held parameter along X, relative to its size."""
    change = {
        "A": lambda: X @ p.A - p.A @ X,
        "C": lambda: -p.C @ X,
        "Q": lambda: X @ p.Q + p.Q @ X.T,
        "R": lambda: np.zeros(1),
        "pi1": lambda: X @ p.pi1,
        "V1": lambda: X @ p.V1 + p.V1 @ X.T,
    }
    for name in held:
        size = np.abs(getattr(p, name)).max()
        yield change[name]() / (size if size > 0 else 1.0)


def _names(free: np.ndarray, p: LDSParams, held: tuple[str, ...]) -> tuple[str, ...]:
    """Elementary directions in the span of `free` (k, l²), independent of each other."""
    l = p.A.shape[0]
    if len(free) in (0, l * l):
        return ()
    candidates = [(f"the scale of state {i}", _unit(l, i, i)) for i in range(l)]
    metrics = {"": np.eye(l)}
    metrics |= {f", in the metric of {k}": getattr(p, k) for k in ("Q", "V1") if k in held}
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
    E = np.zeros((l, l))
    E[i, j] = 1.0
    return E


Relabelling = Literal["none", "signs", "signed permutations"]


def relabelling(params: LDSParams, free: Sequence[str], beta=0.0) -> Relabelling:
    """Which relabellings of the states leave the posterior as it is, for a prior with this beta.

    Signs can change where nothing held tells a state from its negative, order where nothing held tells
    two states apart.
    """
    held = {k: np.asarray(v, float) for k, v in params._asdict().items() if k not in free}
    if held.keys() & {"A", "C"} or np.any(held.get("pi1", 0.0)):
        return "none"
    covariances = [held[k] for k in ("Q", "V1") if k in held]
    if any(np.any(S != np.diag(np.diagonal(S))) for S in covariances):
        return "none"
    alike = all(np.ptp(np.diagonal(S)) == 0 for S in covariances)
    return "signed permutations" if alike and np.ndim(beta) == 0 else "signs"


def align(A: np.ndarray, C: np.ndarray, params: LDSParams, kind: Relabelling) -> np.ndarray:
    """For each draw (n, l, l), (n, d, l) the signed permutation W (l, l) that brings it nearest to `params`.

    Nearest is ‖CW' - C*‖² / ‖C*‖² + ‖WAW' - A*‖² / ‖A*‖². The first is a linear assignment; the second is
    linearised around the last W, and the best W met is taken.
    """
    target_A, target_C = np.asarray(params.A, float), np.asarray(params.C, float)
    a, c = (1 / max(float((x**2).sum()), 1e-300) for x in (target_A, target_C))
    l = len(target_A)

    def fit(W, A, C):  # what remains of the distance when all that W cannot change is left out
        return c * np.sum((C @ W.T) * target_C) + a * np.sum((W @ A @ W.T) * target_A)

    def best(G):
        """The signed permutation with the largest Σ W G."""
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
