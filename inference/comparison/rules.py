"""The rules by which a posterior without mass at zero can still call an entry of A zero.

A rule is a function of the evidence with one sentence as its docstring, which the report quotes. To add one, write it
here and put it into RULES.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Real

from .sparse_summary import sparse_summary


class Evidence(NamedTuple):
    """The evidence from which a rule decides."""

    draws: Real[np.ndarray, "n l l"]  # of A, less the centre of its prior
    interval: Real[np.ndarray, "l l 2"]  # highest-density intervals
    epsilon: float  # an entry nearer to zero than this counts as nearly zero
    S00: Real[np.ndarray, "l l"]  # Σ E[z_t z_t'], by which prediction errors of A z are weighed


def hdi(evidence: Evidence) -> np.ndarray:
    """The highest-density interval covers 0."""
    return (evidence.interval[..., 0] <= 0) & (evidence.interval[..., 1] >= 0)


def epsilon(evidence: Evidence) -> np.ndarray:
    """P(|A_ij| < ε) > ½."""
    return (np.abs(evidence.draws) < evidence.epsilon).mean(0) > 0.5


def neighbourhood(evidence: Evidence) -> np.ndarray:
    """P(|A_ij| < sd_ij) > ½, the scaled neighbourhood of Li and Lin (2010)."""
    draws, sd = evidence.draws, evidence.draws.std(0, ddof=1)
    return ((np.abs(draws) < sd) | (draws == 0)).mean(0) > 0.5


def summary(evidence: Evidence) -> np.ndarray:
    """A sparse summary of the posterior, which predicts as well as its own draws do, has a zero there."""
    return sparse_summary(evidence.draws, evidence.S00) == 0


RULES: dict[str, Callable[[Evidence], np.ndarray]] = {
    rule.__name__: rule for rule in (hdi, epsilon, neighbourhood, summary)
}


def explained() -> str:
    """Return the rules by name, each with its sentence."""
    return "; ".join(f"{name}: {(rule.__doc__ or '').rstrip('.')}" for name, rule in RULES.items())
