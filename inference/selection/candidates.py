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
    pull: str | None = None,
    own: Sequence[bool] = (False, True),
    independent: Sequence[bool] = (True, False),
) -> list[Candidate]:
    """Return the structures in which each state is the level of a channel.

    `own`: with or without levels of the sequences' own; `independent`: Q diagonal or full; the simplest come first, and
    are preferred where errors are all but equal. A is pulled to persistence
    by default. Where sequences have levels of their own, states are deviations from these, and only links between them
    are pulled to zero: a deviation that persists could not be told from a level.
    """
    found = []
    for levels in own:
        for diagonal in independent:
            name = "levels" + ", own levels" * levels + ", Q diagonal" * diagonal
            prior = pull_named(pull or ("off-diagonal" if levels else "persistence"))
            kept = Constraints.levels(own=levels, independent=diagonal)
            found.append(Candidate(name, cohort.n_channels, prior, kept))
    return found


def hidden_candidates(
    n_states: int | Sequence[int], pull: str = "zero", own: Sequence[bool] = (False, True)
) -> list[Candidate]:
    """Return the structures with hidden states in a basis of their own, Q = I, as in the paper."""
    return [
        Candidate(
            f"{l} hidden states" + ", own levels" * levels,
            int(l),
            pull_named(pull),
            Constraints(Q="identity", own_levels=levels),
        )
        for l in (n_states if isinstance(n_states, Sequence) else [n_states])
        for levels in own
    ]


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
