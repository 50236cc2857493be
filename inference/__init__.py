"""How an LDS is learned from a cohort."""

from .comparison import Comparison as Comparison
from .comparison import compare_map_posterior as compare_map_posterior
from .em import FitResult as FitResult
from .em import fit_em as fit_em
from .em import fit_map as fit_map
from .em import relaxed_fit as relaxed_fit
from .identifiability import identifiability_report as identifiability_report
from .initial import initial_params as initial_params
from .path import Path as Path
from .path import effective_states as effective_states
from .path import regularization_path as regularization_path
from .posterior import sample_posterior as sample_posterior
from .predict import posterior_forecast as posterior_forecast
from .proximal import beta_max as beta_max
from .selection import Selection as Selection
from .selection import select as select
from .selection import stability_selection as stability_selection
from .verdict import Verdict as Verdict
from .verdict import diagnose as diagnose
