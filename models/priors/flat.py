"""The flat prior on A: no penalty at all."""

from dataclasses import dataclass

from .blocks import EntryPenalty


@dataclass(frozen=True, eq=False)
class Flat(EntryPenalty):
    """The flat prior p(A) ∝ 1, every entry free: OLDS."""

    beta = 0.0
    is_flat = True

    def scaled(self, factor: float) -> "Flat":
        """Return the same prior: a penalty of zero has nothing to scale."""
        return self
