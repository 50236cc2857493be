"""How an LDS is learned from a cohort."""

from .em import FitResult as FitResult
from .em import fit_em as fit_em
from .em import fit_map as fit_map
from .em import relaxed_fit as relaxed_fit
from .initial import initial_params as initial_params
from .path import Path as Path
from .path import effective_states as effective_states
from .path import regularization_path as regularization_path
from .proximal import beta_max as beta_max
from .selection import Selection as Selection
from .selection import select as select
from .selection import stability_selection as stability_selection
