"""The skill of a model: forecasts of held-out patients beside those of baselines that need no model, or hardly one."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from ..inference import Selection, forecast_errors
from ..models import Cohort
from .baselines import channel_mean, last_value, local_level, var1_forecaster
from .protocol import exact_errors

MODEL = "this model"
NAMES = {
    "last value": "carrying the last value forward",
    "channel mean": "the mean of all patients",
    "local level": "a local level (a smoothed last value)",
    "VAR(1)": "a vector autoregression",
}
_SURE = 0.05  # the p-value below which a difference is called one


class Skill(NamedTuple):
    """Errors of held-out patients: of the model, and of baselines on the same patients."""

    table: pd.DataFrame  # a row for the model and for each baseline
    by_patient: pd.DataFrame  # (N, rows): the error of each patient

    @property
    def best(self) -> str:
        """The baseline with the least error."""
        return str(self.table["error"].drop(MODEL).idxmin())

    @property
    def score(self) -> float:
        """1 - error / error of the best baseline: what the model gains, 0 for nothing, below 0 for a loss."""
        return float(self.table.loc[self.best, "skill"])  # type: ignore[arg-type]

    @property
    def beats_baselines(self) -> bool:
        """Whether the model is better than the best baseline, by more than chance."""
        return self.score > 0 and self.table.loc[self.best, "p"] < _SURE

    @property
    def is_worse(self) -> bool:
        """Whether the model is worse than the best baseline, by more than chance."""
        return self.score <= 0 and bool(self.table.loc[self.best, "p"] < _SURE)

    def __str__(self) -> str:
        best, row = self.best, self.table.loc[self.best]
        model = self.table.loc[MODEL, "error"]
        against = f"error {model:.3f} against {row['error']:.3f}, skill {self.score:+.1%}, p = {row['p']:.2g}"
        if self.beats_baselines:
            head = f"Forecasts of held-out patients are better than by {NAMES[best]}, the best baseline"
        elif self.is_worse:
            head = f"This model does NOT forecast held-out patients as well as {NAMES[best]} does"
        else:
            better = "not surely better than" if self.score > 0 else "no better than"
            head = f"This model is {better} {NAMES[best]} in forecasts of held-out patients"
        shown = self.table.to_string(float_format=lambda x: f"{x:.3g}", na_rep="")
        note = (
            "error: mean absolute error over all steps seen and all later steps, in standard deviations of the tests;\n"
            "skill: 1 - error of this model / error of the baseline; p: paired over patients"
        )
        return f"{head} ({against}).\n{shown}\n{note}"


def skill(cohort: Cohort, chosen: Selection) -> Skill:
    """Compare the chosen model with baselines, all on the folds of the selection; the cohort is standardised.

    The error of a patient is that of the structure and β that scores of the other folds would have chosen. Centre and
    scale are those of the whole cohort for the model and for all baselines alike. Of the baselines the vector
    autoregression alone has the inputs, if there are any.
    """
    N, fold = len(cohort), chosen.held_out.fold
    found = {MODEL: chosen.held_out.error[chosen.honest_rows(), np.arange(N)]}
    found |= {name: np.full(N, np.nan) for name in NAMES}
    plain = cohort.without_inputs()
    for k in np.unique(fold):
        held = fold == k
        part, rest = cohort.take(~held), cohort.take(held)
        for name, forecaster in (
            ("last value", last_value),
            ("channel mean", channel_mean),
            ("VAR(1)", var1_forecaster(part)),
        ):
            found[name][held] = exact_errors(forecaster, rest)
        found["local level"][held] = forecast_errors(local_level(plain, ~held), plain)[held]
    errors = pd.DataFrame(found, index=pd.Index(cohort.ids, name="id"))
    return Skill(_table(errors), errors)


def _table(errors: pd.DataFrame) -> pd.DataFrame:
    """Return error, its standard error, skill against and p of a paired test with each baseline."""
    rows, model = {}, errors[MODEL].to_numpy()
    for name in errors:
        own = errors[name].to_numpy()
        seen = np.isfinite(own - model)
        gap = (own - model)[seen]
        row = {"error": np.nanmean(own), "se": np.nanstd(own, ddof=1) / np.sqrt(len(gap))}
        if name != MODEL:
            row["skill"] = 1 - np.nanmean(model) / np.nanmean(own)
            told = len(gap) > 1 and np.ptp(gap) > 0
            row["p"] = float(ttest_1samp(gap, 0)[1]) if told else 1.0  # type: ignore[arg-type]
            row["patients better"] = (gap > 0).mean()
        rows[name] = row
    return pd.DataFrame(rows).T
