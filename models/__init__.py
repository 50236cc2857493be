"""Linear dynamical systems: parameters, cohorts, priors, exact filter and likelihood, and the NumPyro model."""

from .basis import canonical_scaling, change_basis, is_stable, spectral_radius, unit_noise
from .cohort import Cohort
from .conjugate import weak_priors
from .disk.cohort import DiskCohort, open_cohort
from .disk.folder import write_cohort
from .forecasting import Forecast, forecast
from .kalman.breakdown import NumericalBreakdown
from .kalman.likelihood import (
    expected_statistics,
    log_likelihood,
    plain_log_likelihood,
    total_log_likelihood,
)
from .kalman.prepare import Prepared, prepare
from .kalman.smoother import Filtered, Smoothed, kalman_filter, kalman_smoother
from .kalman.statistics import ExpectedStatistics, fisher_score
from .kalman.step import Gaussian, Update, predict, update
from .numpyro_model import LDS, default_priors, explicit_lds_model, lds_model
from .own_levels import VarianceParts, leading_states, variance_parts, with_own_levels
from .params import LDSParams, check_params
from .params_file import load_params, save_params
from .priors import (
    ColumnLaplace,
    Flat,
    GammaLaplace,
    GroupLaplace,
    HierarchicalPrior,
    Horseshoe,
    Laplace,
    Penalty,
    Piece,
    Prior,
    SpikeSlab,
)
from .simulation import Simulation, simulate

__all__ = [
    "Cohort",
    "DiskCohort",
    "ExpectedStatistics",
    "Filtered",
    "Flat",
    "Forecast",
    "GammaLaplace",
    "Gaussian",
    "ColumnLaplace",
    "GroupLaplace",
    "HierarchicalPrior",
    "Horseshoe",
    "LDS",
    "LDSParams",
    "Laplace",
    "NumericalBreakdown",
    "Penalty",
    "Piece",
    "Prepared",
    "Prior",
    "Simulation",
    "Smoothed",
    "SpikeSlab",
    "Update",
    "VarianceParts",
    "canonical_scaling",
    "change_basis",
    "check_params",
    "default_priors",
    "expected_statistics",
    "explicit_lds_model",
    "fisher_score",
    "forecast",
    "is_stable",
    "kalman_filter",
    "kalman_smoother",
    "leading_states",
    "lds_model",
    "load_params",
    "log_likelihood",
    "open_cohort",
    "plain_log_likelihood",
    "predict",
    "prepare",
    "save_params",
    "simulate",
    "spectral_radius",
    "total_log_likelihood",
    "unit_noise",
    "update",
    "variance_parts",
    "weak_priors",
    "with_own_levels",
    "write_cohort",
]
