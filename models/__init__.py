"""What a linear dynamical system is: parameters, cohorts, exact computation, and the NumPyro model."""

from .cohort import Cohort
from .forecasting import Forecast, forecast
from .kalman.breakdown import NumericalBreakdown
from .kalman.likelihood import log_likelihood, plain_log_likelihood
from .kalman.prepare import Prepared, prepare, total, total_log_likelihood
from .kalman.smoother import Filtered, Smoothed, kalman_filter, kalman_smoother
from .kalman.statistics import ExpectedStatistics, expected_statistics, fisher_score, statistics
from .numpyro_model import LDS, default_priors, explicit_lds_model, lds_model
from .params import (
    LDSParams,
    canonical_scaling,
    change_basis,
    check_params,
    is_stable,
    load_params,
    save_params,
    spectral_radius,
)
from .priors.base import Flat, GroupLaplace, Laplace, Prior
from .priors.hierarchical import GammaLaplace, HierarchicalPrior, Horseshoe
from .simulation import Simulation, simulate

__all__ = [
    "Cohort",
    "ExpectedStatistics",
    "Filtered",
    "Flat",
    "Forecast",
    "GammaLaplace",
    "GroupLaplace",
    "HierarchicalPrior",
    "Horseshoe",
    "LDS",
    "LDSParams",
    "Laplace",
    "NumericalBreakdown",
    "Prepared",
    "Prior",
    "Simulation",
    "Smoothed",
    "canonical_scaling",
    "change_basis",
    "check_params",
    "default_priors",
    "expected_statistics",
    "fisher_score",
    "explicit_lds_model",
    "forecast",
    "is_stable",
    "kalman_filter",
    "kalman_smoother",
    "lds_model",
    "load_params",
    "log_likelihood",
    "plain_log_likelihood",
    "prepare",
    "save_params",
    "simulate",
    "spectral_radius",
    "statistics",
    "total",
    "total_log_likelihood",
]
