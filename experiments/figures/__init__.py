"""Figures of fits, posteriors and forecasts: each `plot_…` draws one figure and returns it."""

from .calibration import plot_coverage as plot_coverage
from .calibration import plot_mixing as plot_mixing
from .choice import plot_beta as plot_beta
from .choice import plot_path as plot_path
from .choice import plot_states as plot_states
from .evidence import plot_inclusion as plot_inclusion
from .evidence import plot_prior_posterior as plot_prior_posterior
from .forecasts import plot_forecast_fan as plot_forecast_fan
from .forecasts import plot_forecasts as plot_forecasts
from .forecasts import plot_series as plot_series
from .inputs import plot_inputs as plot_inputs
from .inputs import plot_what_if as plot_what_if
from .network import plot_network as plot_network
from .spectrum import plot_eigenvalues as plot_eigenvalues
from .transition import plot_forest as plot_forest
from .transition import plot_transition as plot_transition
