"""The structures that a model is chosen from: what the states are, what the prior pulls A to, what noise they have."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...models import Cohort, Laplace, Penalty
from ..constraints import Constraints


class Candidate(NamedTuple):
    """A structure, to be fitted at every β of a path."""

    name: str
    n_states: int  # that move
    prior: Penalty  # its β is a factor of this
    constraints: Constraints


PULLS: dict[str, Penalty] = {
    "zero": Laplace(1.0),
    "off-diagonal": Laplace.off_diagonal(1.0),
    "persistence": Laplace.towards_persistence(1.0),
}


def pull_named(name: str) -> Penalty:
    """Return the prior, at β = 1, that pulls A to zero, only links between states to zero, or A to the identity."""
    if name not in PULLS:
        raise ValueError(f"pull is {name!r}; it may be {', '.join(map(repr, PULLS))}")
    return PULLS[name]


def level_candidates(
    cohort: Cohort,
    pulls: Sequence[str] = ("persistence",),
    own: Sequence[bool] = (False, True),
    independent: Sequence[bool] = (True, False),
) -> list[Candidate]:
    """Return the structures in which each state is the level of a channel.

    `own`: with or without levels of the sequences' own; `independent`: Q diagonal or full.
    """
    found = []
    for pull in pulls:
        for levels in own:
            for diagonal in independent:
                name = "levels" + ", own levels" * levels + ", Q diagonal" * diagonal
                name += f", pull to {pull}" if len(pulls) > 1 else ""
                kept = Constraints.levels(own=levels, independent=diagonal)
                found.append(Candidate(name, cohort.n_channels, pull_named(pull), kept))
    return found


def hidden_candidates(
    n_states: int | Sequence[int],
    pulls: Sequence[str] = ("zero",),
    own: Sequence[bool] = (False, True),
) -> list[Candidate]:
    """Return the structures with hidden states in a basis of their own, Q = I, as in the paper."""
    found = []
    for l in [n_states] if isinstance(n_states, int) else n_states:
        for pull in pulls:
            for levels in own:
                name = f"{l} hidden states" + ", own levels" * levels
                name += f", pull to {pull}" if len(pulls) > 1 else ""
                kept = Constraints(Q="identity", own_levels=levels)
                found.append(Candidate(name, l, pull_named(pull), kept))
    return found


def given_candidates(
    n_states: int | Sequence[int], prior: Penalty | None, options: dict[str, Any]
) -> list[Candidate]:
    """Return a structure for each number of states, with the prior and the constraints that options of a fit give."""
    own = {name: options.pop(name) for name in ("hold", "diagonal", "Q") if name in options}
    constraints = options.pop("constraints", None)
    if constraints is not None and own:
        raise ValueError(
            "constraints is given, and hold, diagonal or Q besides; give one or the other"
        )
    kept = Constraints(**own) if constraints is None else constraints
    prior = Laplace(1.0) if prior is None else prior
    sizes = [n_states] if not isinstance(n_states, Sequence) else n_states
    return [Candidate(f"{l} states", int(l), prior, kept) for l in sizes]
