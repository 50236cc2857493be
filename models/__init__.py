"""What a linear dynamical system is: parameters, cohorts, exact computation, and the NumPyro model."""

from .breakdown import NumericalBreakdown as NumericalBreakdown
from .cohort import Cohort as Cohort
from .forecast import Forecast as Forecast
from .forecast import forecast as forecast
from .kalman import Filtered as Filtered
from .kalman import Smoothed as Smoothed
from .kalman import kalman_filter as kalman_filter
from .kalman import kalman_smoother as kalman_smoother
from .likelihood import log_likelihood as log_likelihood
from .likelihood import plain_log_likelihood as plain_log_likelihood
from .params import LDSParams as LDSParams
from .params import canonical_scaling as canonical_scaling
from .params import change_basis as change_basis
from .params import check_params as check_params
from .params import is_stable as is_stable
from .params import load_params as load_params
from .params import save_params as save_params
from .params import spectral_radius as spectral_radius
from .simulate import Simulation as Simulation
from .simulate import simulate as simulate
from .statistics import ExpectedStatistics as ExpectedStatistics
from .statistics import expected_statistics as expected_statistics
