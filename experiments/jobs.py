"""A function of version 0.1 that notebooks and scripts may still import; the jobs are in app/jobs.py."""

from typing import Any

from ..inference import Constraints
from ..models import Cohort


def levels_of(cohort: Cohort) -> dict[str, Any]:
    """Return the options of a fit in which each state is the level of a channel: now `Constraints.levels()`."""
    return {"constraints": Constraints.levels()}
