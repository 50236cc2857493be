"""The constraints of a fit: which parameters are held, diagonal or of a given form, and what follows from that.

One frozen object, made where a fit begins, says which parameters are held, which covariances are diagonal and what
fixes the scale of the states. Its methods say what that means for a start, an M-step, a change of basis and a set of
coordinates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from ..models import (
    Cohort,
    LDSParams,
    change_basis,
    leading_states,
    unit_noise,
    weak_priors,
    with_own_levels,
)
from ..models.basis import derivative
from ..models.inputs import INTERCEPT
from ..models.linalg import least_correlation
from ..models.params import PARAMETERS
from .covariances import DIAGONAL, FULL, UNIT_DIAGONAL, Full, Split

COVARIANCES = ("Q", "R", "V1")
_Q = ("free", "unit diagonal", "identity")
_C = ("free", "identity")
_LIFT = 0.01  # share of V1 added to Q where Q = I is asked for: states with little noise would be huge in its units

Changes = Literal["any", "orthogonal", "none"]


@dataclass(frozen=True)
class Constraints:
    """The constraints that a fit keeps.

    - `hold` names parameters kept at their initial values, `diagonal` covariances kept diagonal.
    - `Q="unit diagonal"` and `Q="identity"` fix the scales of the states, which the penalty on A depends on.
    - `C="identity"` makes each state the level of a channel.
    - `absent` names columns of B or D that are not there, as ("B", 0) for the first input: zeros, and not learned.
    - `own_levels` adds a state for each channel that never changes, a level of the sequence's own (see
      models/own_levels.py). The number of states of a fit is that of the states that move; these come first.

    >>> Constraints(hold=("C",)).held
    ('C',)
    >>> Constraints.levels().held
    ('C',)
    """

    hold: Sequence[str] = ()
    diagonal: Sequence[str] = ()
    Q: str = "free"
    C: str = "free"
    own_levels: bool = False
    absent: Sequence[tuple[str, int]] = ()

    def __post_init__(self):
        absent = tuple(sorted({(str(name), int(j)) for name, j in self.absent}))
        if any(name not in ("B", "D") or j < 0 for name, j in absent):
            raise ValueError(f"absent is {self.absent!r}; give columns of B or D, as ('B', 0)")
        object.__setattr__(self, "absent", absent)
        for argument, known in (("hold", PARAMETERS), ("diagonal", COVARIANCES)):
            names = getattr(self, argument)
            try:
                names = (names,) if isinstance(names, str) else tuple(sorted(set(names)))
            except TypeError:
                raise TypeError(f"{argument} is {names!r}; give names of parameters") from None
            for name in names:
                if name not in known:
                    raise ValueError(f"{argument} names {name!r}; it may name {', '.join(known)}")
            object.__setattr__(self, argument, names)
        for name, value, known in (("Q", self.Q, _Q), ("C", self.C, _C)):
            if not isinstance(value, str) or value not in known:
                raise ValueError(
                    f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}"
                )
        if self.C == "identity" and self.Q != "free":
            raise ValueError(
                f"C is 'identity' and Q is {self.Q!r}: each fixes the scales of the states; give one of them"
            )
        if self.Q != "free" and ("Q" in self.hold or "Q" in self.diagonal):
            raise ValueError(f"Q is {self.Q!r}, and cannot be held or kept diagonal besides")

    @classmethod
    def levels(cls, own: bool = False, independent: bool = False) -> "Constraints":
        """Return the constraints that make each state the true level of a channel: C = I, and R diagonal.

        With `own` each sequence keeps a level of its own, from which the states are deviations; with `independent` Q is
        diagonal too: what happens to one state between two steps says nothing on the others.
        """
        return cls(diagonal=("Q", "R") if independent else ("R",), C="identity", own_levels=own)

    @property
    def held(self) -> tuple[str, ...]:
        """The parameters that are held, those that are the identity included."""
        fixed = [name for name in ("C", "Q") if getattr(self, name) == "identity"]
        return tuple(sorted({*self.hold, *fixed}))

    def free(self, name: str) -> bool:
        """Tell whether a parameter is free: learned, and not held."""
        return name not in self.held

    def holding(self, *names: str) -> "Constraints":
        """Return the same constraints with more parameters held."""
        return replace(self, hold={*self.hold, *(name for name in names if self.free(name))})  # type: ignore[arg-type]

    def __str__(self) -> str:
        parts = [f"{name} held" for name in self.hold]
        parts += [f"{name} = I" for name in ("C", "Q") if getattr(self, name) == "identity"]
        parts += [f"{name} diagonal" for name in self.diagonal]
        parts += ["Q of unit diagonal"] if self.Q == "unit diagonal" else []
        parts += ["own levels of the sequences"] if self.own_levels else []
        parts += [f"column {j} of {name} zero" for name, j in self.absent]
        return ", ".join(parts) or "nothing held"

    # ---- numbers and M-steps

    def n_moving(self, params: LDSParams) -> int:
        """Return how many of a model's states move: all, but for the sequences' own levels, which come last."""
        return params.n_states - params.n_channels * self.own_levels

    def moving(self, params: LDSParams) -> LDSParams:
        """Return the part of a model that its moving states make up; the prior on A is one of its A."""
        return leading_states(params, self.n_moving(params))

    def covariance(self, name: str, params: LDSParams) -> Full:
        """Return the shape of a covariance of a model: its size, its M-step, its coordinates."""
        shape = DIAGONAL if name in self.diagonal else FULL
        if name == "Q" and self.Q == "unit diagonal":
            shape = UNIT_DIAGONAL
        if not self.own_levels or name == "R":
            return shape
        return Split(self.n_moving(params), shape, None if name == "Q" else shape)

    def sizes(self, params: LDSParams) -> dict[str, int]:
        """Return the number of coordinates of each parameter; all entries of the A of moving states count."""
        k, l, d = self.n_moving(params), params.n_states, params.n_channels
        size = {
            "A": k * k,
            "C": d * k,
            "pi1": l,
            "B": k * params.n_inputs,
            "D": d * params.n_inputs,
        }
        return size | {
            name: self.covariance(name, params).size(d if name == "R" else l)
            for name in COVARIANCES
        }

    def columns(self, name: str, n_inputs: int) -> list[int]:
        """Return the columns of B or D that are there: which inputs act on states, or on channels."""
        return [j for j in range(n_inputs) if (name, j) not in self.absent]

    def n_parameters(self, params: LDSParams) -> int:
        """Return how many free parameters a model has besides A."""
        k, l, d = self.n_moving(params), params.n_states, params.n_channels
        size = {"C": d * k, "pi1": l}
        if params.n_inputs:
            size |= {
                "B": k * len(self.columns("B", params.n_inputs)),
                "D": d * len(self.columns("D", params.n_inputs)),
            }
        size |= {
            name: self.covariance(name, params).n_parameters(d if name == "R" else l)
            for name in COVARIANCES
        }
        return sum(n for name, n in size.items() if self.free(name))

    def overridden(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options of a fit with these constraints, but for those that the options themselves give."""
        if "constraints" in options:
            return options
        own = {name: value for name, value in options.items() if name in ("hold", "diagonal", "Q")}
        rest = {name: value for name, value in options.items() if name not in own}
        return {"constraints": replace(self, **own), **rest}

    # ---- starts and results

    def check(self, cohort: Cohort, n_states: int) -> None:
        """Raise if a model of this size cannot satisfy the constraints."""
        if self.C == "identity" and n_states != cohort.n_channels:
            raise ValueError(
                f"n_states is {n_states}; with a state for each channel (C = I) it must be {cohort.n_channels}"
            )
        for name in {"B", "D"} & {*self.hold} if not cohort.n_inputs else ():
            raise ValueError(f"hold names {name!r}, and the cohort has no inputs")
        for name, j in self.absent:
            if j >= cohort.n_inputs:
                raise ValueError(f"absent names column {j} of {name}, of {cohort.n_inputs} inputs")

    def with_intercept_of(self, cohort: Cohort) -> "Constraints":
        """Return the constraints with the column of B or D left out that the cohort's intercept does not act on."""
        where = cohort.labels.intercept
        other = {"emission": "B", "state": "D"}.get(where)
        if other is None:
            return self
        j = cohort.inputs.index(INTERCEPT)
        return replace(self, absent=(*self.absent, (other, j)))

    def first_guess(self, cohort: Cohort) -> LDSParams | None:
        """Return the start that the constraints themselves give, or None if a start is to be guessed from the data."""
        if self.C != "identity":
            return None
        I = np.eye(cohort.n_channels)
        return LDSParams(A=0.9 * I, C=I, Q=0.1 * I, R=0.1 * I, pi1=np.zeros(len(I)), V1=I)

    def lifted(self, guess: LDSParams) -> LDSParams:
        """Return a guess from the data, with enough noise for the basis that the constraints ask for."""
        return guess._replace(Q=guess.Q + _LIFT * guess.V1) if self.Q == "identity" else guess

    def start(self, params: LDSParams) -> LDSParams:
        """Return the model in the basis that the constraints ask for, with its covariances put into their shape."""
        core, dtype = self.moving(params), params.A.dtype
        if self.C == "identity" and not np.array_equal(core.C, np.eye(*core.C.shape)):
            raise ValueError(
                "init has a C that is not the identity, and the constraints ask for C = I"
            )
        if self.Q == "identity":
            core = change_basis(core, np.linalg.inv(np.linalg.cholesky(core.Q)))
            core = core._replace(Q=jnp.asarray(np.eye(core.n_states), dtype))
        elif self.Q == "unit diagonal":
            core = unit_noise(core)
        if self.own_levels:
            k = core.n_states
            core = with_own_levels(core, params.pi1[k:], params.V1[k:, k:])
            core = LDSParams(*(jnp.asarray(x, dtype) for x in core))
        changed = {k: jnp.diag(jnp.diagonal(getattr(core, k))) for k in self.diagonal}
        for name in sorted({name for name, _ in self.absent}):
            there = (
                jnp.zeros(params.n_inputs, dtype)
                .at[jnp.array(self.columns(name, params.n_inputs), int)]
                .set(1)
            )
            changed[name] = jnp.asarray(getattr(core, name)) * there
        return core._replace(**changed)

    def extended(self, core: LDSParams, cohort: Cohort) -> LDSParams:
        """Return a start for the moving states, with a start for the sequences' own levels added if there are any.

        Half of the variance of the sequences' means is theirs at first.
        """
        if not self.own_levels:
            return core
        mask = np.asarray(cohort.mask)
        with np.errstate(invalid="ignore"):
            means = np.asarray(cohort.y).sum(1) / mask.sum(1)
        spread = 0.5 * np.nanvar(means, axis=0)
        return with_own_levels(core, np.zeros(len(spread)), np.diag(np.maximum(spread, 1e-3)))

    def regular(self, params: LDSParams) -> LDSParams:
        """Return parameters whose free covariances are not singular but for rounding: a fit can start where one ended.

        Floors are set at the start of a fit: a V1 that grows a millionfold in one direction outgrows its floor in
        others. No more is added than the check of a start asks for: the objective is told by the last digits there.
        """

        def clear(S):
            least = 10 * len(S) * float(jnp.finfo(S.dtype).eps)
            if not least_correlation(S) < least:
                return S
            return jnp.asarray(S + least * np.diag(np.diagonal(S)), S.dtype)

        free = [name for name in COVARIANCES if self.free(name)]
        if self.Q == "unit diagonal" and "Q" in free:
            free.remove("Q")
        return params._replace(**{name: clear(getattr(params, name)) for name in free})

    def weak_priors(self, cohort: Cohort, n_states: int, held: Any = None) -> dict[str, Any]:
        """Return weak priors for a model of so many moving states, on the scale of its states and of the data.

        `held` is the model whose parameters are held, if it is known: with its C = I states are levels of the channels.
        """
        levels = self.C == "identity"
        if held is not None and not self.free("C"):
            C = np.asarray(held.C)[:, :n_states]
            levels = C.shape[0] == C.shape[1] and np.array_equal(C, np.eye(len(C)))
        return weak_priors(cohort, n_states, levels=levels, own_levels=self.own_levels)

    # ---- changes of basis

    @property
    def basis_changes(self) -> Changes:
        """The changes z → Wz that keep all constraints: any W, orthogonal ones (Q = I alone is asked for), or none."""
        bound = {*self.hold} - {"R", "D"} or {*self.diagonal} - {"R"} or self.C == "identity"
        if bound or self.Q == "unit diagonal":
            return "none"
        return "orthogonal" if self.Q == "identity" else "any"

    def changes(self, params: LDSParams, X: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the derivative of each constrained parameter along W = exp(tX), relative to the parameter's size."""
        along, k = derivative(params, X), self.n_moving(params)
        if self.own_levels:  # what is known of the static states
            fixed = np.ones_like(X, bool)
            fixed[:k, :k] = False
            yield np.asarray(along.A)[fixed]
            yield np.asarray(along.C)[:, k:]
            yield np.asarray(along.Q)[fixed] / np.abs(params.Q).max()
            yield np.asarray(along.V1)[:k, k:] / np.abs(params.V1).max()
        for name in params._fields:
            size = np.abs(getattr(params, name)).max()
            change = np.asarray(getattr(along, name)) / (size if size > 0 else 1.0)
            if name in self.held:
                yield change
            elif name in self.diagonal and name != "R":
                yield change - np.diag(np.diagonal(change))
            elif name == "Q" and self.Q == "unit diagonal":
                yield np.diagonal(change)
