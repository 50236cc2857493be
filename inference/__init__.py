"""How the parameters of an LDS are learned from a cohort: EM, MAP-EM and their starting values."""

from .em import FitResult as FitResult
from .em import fit_em as fit_em
from .em import fit_map as fit_map
from .initial import initial_params as initial_params
from .proximal import beta_max as beta_max
