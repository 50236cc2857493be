"""Learning an LDS from a cohort: MAP-EM, the choice of β, NUTS, and the comparison of MAP and posterior."""

from .comparison.table import Comparison, compare_map_posterior
from .constraints import Constraints
from .identifiability import identifiability_report
from .map.em import fit_em, fit_map, relaxed_fit
from .map.starting_values import initial_params
from .posterior.diagnostics import Verdict, diagnose
from .posterior.forecast import posterior_forecast
from .posterior.merging import merge_posteriors
from .posterior.sample import sample_posterior
from .proximal import beta_max
from .result import FitResult, Stop
from .selection.candidates import Candidate, hidden_candidates, level_candidates
from .selection.forecast_error import forecast_errors
from .selection.path import Path, effective_states, regularization_path, scaled_beta
from .selection.select import Choice, Selection, select
from .selection.stability import stability_selection

__all__ = [
    "Candidate",
    "Choice",
    "Comparison",
    "Constraints",
    "FitResult",
    "Path",
    "Selection",
    "Stop",
    "Verdict",
    "beta_max",
    "compare_map_posterior",
    "diagnose",
    "effective_states",
    "fit_em",
    "fit_map",
    "forecast_errors",
    "hidden_candidates",
    "identifiability_report",
    "initial_params",
    "level_candidates",
    "merge_posteriors",
    "posterior_forecast",
    "regularization_path",
    "relaxed_fit",
    "sample_posterior",
    "scaled_beta",
    "select",
    "stability_selection",
]
