"""How an LDS is learned from a cohort."""

from .comparison.table import Comparison, compare_map_posterior
from .identifiability import identifiability_report
from .map.em import fit_em, fit_map, relaxed_fit
from .map.starting_values import initial_params
from .posterior.diagnostics import Verdict, diagnose
from .posterior.forecast import posterior_forecast
from .posterior.sample import sample_posterior
from .proximal import beta_max
from .result import FitResult
from .selection.cross_validation import Selection, select, stability_selection
from .selection.path import Path, effective_states, regularization_path

__all__ = [
    "Comparison",
    "FitResult",
    "Path",
    "Selection",
    "Verdict",
    "beta_max",
    "compare_map_posterior",
    "diagnose",
    "effective_states",
    "fit_em",
    "fit_map",
    "identifiability_report",
    "initial_params",
    "posterior_forecast",
    "regularization_path",
    "relaxed_fit",
    "sample_posterior",
    "select",
    "stability_selection",
]
