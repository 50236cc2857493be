"""How an LDS is learned from a cohort."""

from .em import FitResult as FitResult
from .em import fit_em as fit_em
from .em import fit_map as fit_map
from .em import relaxed_fit as relaxed_fit
from .initial import initial_params as initial_params
from .proximal import beta_max as beta_max
