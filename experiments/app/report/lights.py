"""The traffic light of a report: whether data, fit, posterior and forecasts can be used, in a word and a sentence."""

from typing import Any, NamedTuple

import numpy as np

from ....inference import FitResult, Stop, diagnose
from ....inference.posterior import arviz_compat as az
from ....inference.posterior.diagnostics import CONDITIONAL, ESS
from ...coverage import Coverage
from ...labs import Binned
from ...skill import Skill
from ..structures import Links

WORDS = {"good": "good", "care": "with care", "bad": "not to be used", "unknown": "not checked"}
_FEW_PATIENTS, _MOSTLY_EMPTY, _OFF = 20, 0.6, 0.05
_LAST = "last value"  # the baseline that everybody asks for


class Light(NamedTuple):
    """A light: of what, a level among WORDS, and why in a sentence."""

    of: str
    level: str
    sentence: str

    @property
    def word(self) -> str:
        """The level in words."""
        return WORDS[self.level]


def data_light(binned: Binned) -> Light:
    """Return whether there are enough data to hold patients out; how good they are is not known from them."""
    cohort = binned.cohort
    N, steps = len(cohort), int(np.asarray(cohort.lengths).sum())
    empty = 1 - float(np.asarray(cohort.mask).sum()) / (steps * cohort.n_channels)
    sentence = (
        f"{N} patients, {steps} steps of {binned.step or 'one'}, {cohort.n_channels} tests; "
        f"{empty:.0%} of the cells are empty."
    )
    if binned.dropped:
        sentence += f" {binned.dropped} more have too few panels, and are left out."
    if N < 2:
        return Light("Data", "bad", sentence + " Of one patient none can be held out.")
    if N < _FEW_PATIENTS:
        return Light("Data", "care", sentence + f" Fewer than {_FEW_PATIENTS} patients are few.")
    if binned.dropped > N:
        return Light("Data", "care", sentence + " Those who stay may not be like them.")
    if empty > _MOSTLY_EMPTY:
        return Light("Data", "care", sentence + " Try a longer step.")
    return Light("Data", "good", sentence)


def fit_light(fit: FitResult) -> Light:
    """Return whether the fit ended where it should."""
    reason = fit.reason[:1].upper() + fit.reason[1:] + "."
    if fit.stop in (Stop.NOT_FINITE, Stop.DRIFT):
        return Light("Fit", "bad", reason)
    if fit.warnings:
        return Light("Fit", "care", f"{reason} {fit.warnings[0]}")
    return Light("Fit", "good" if fit.converged else "care", reason)


def links_light(links: Links) -> Light:
    """Return whether the links of the fit stand in other structures that forecast as well."""
    if not links.others or links.table.empty:
        return Light("Links", "unknown", str(links))
    return Light("Links", "good" if links.stand.all() else "care", str(links))


def posterior_light(posterior: Any) -> Light:
    """Return whether the draws can be trusted."""
    verdict = diagnose(posterior)
    head, *rest = verdict.text.split("\n")
    if not verdict.ok:
        problems = [line.removeprefix("  - ") for line in rest if line.startswith("  - ")]
        return Light("Posterior", "bad", problems[0] if problems else verdict.text)
    if az.group(posterior, "posterior").attrs.get("conditional"):
        return Light("Posterior", "care", CONDITIONAL)
    few = bool(verdict.table[["ess_bulk", "ess_tail"]].min(axis=None) < ESS)
    return Light("Posterior", "care" if few else "good", f"{rest[int(few)]} {head}")


def forecast_light(skill: Skill | None, coverage: Coverage | None) -> Light:
    """Return whether forecasts of held-out patients beat baselines, and whether intervals are as wide as they say."""
    if skill is None:
        return Light("Forecasts", "unknown", "No patient was held out.")
    sentence = str(skill).split("\n")[0]
    row: Any = skill.table.loc[skill.best]
    if skill.best != _LAST and _LAST in skill.table.index:
        less: Any = skill.table.loc[_LAST, "skill"]
        if np.isfinite(less):
            sentence += f" Its error is {abs(less):.1%} {'below' if less > 0 else 'above'} that of the last value."
    level = "good" if skill.beats_baselines else "bad" if skill.is_worse else "care"
    if coverage is not None and np.isfinite(row["error"]):
        share, se = (float(x[0]) for x in coverage.within(np.array([0.9])))
        if abs(share - 0.9) > max(_OFF, 2 * se):
            width = "narrow" if share < 0.9 else "wide"
            sentence += f" Intervals are too {width}: those of 90% cover {share:.0%}."
            level = "care" if level == "good" else level
    return Light("Forecasts", level, sentence)
