"""How an LDS is learned from a cohort."""

from .comparison import Comparison, compare_map_posterior
from .em import fit_em, fit_map, relaxed_fit
from .identifiability import identifiability_report
from .initial import initial_params
from .path import Path, effective_states, regularization_path
from .posterior import sample_posterior
from .predict import posterior_forecast
from .proximal import beta_max
from .result import FitResult
from .selection import Selection, select, stability_selection
from .verdict import Verdict, diagnose

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
