"""Priors on the transition matrix A: one object, read by NUTS as a distribution and by MAP-EM as a penalty."""

from .base import Penalty, Piece, Prior, as_penalty
from .distribution import PriorDistribution
from .embedded import Embedded, EmbeddedSites, embedded
from .flat import Flat
from .gamma_laplace import GammaLaplace
from .group import GroupLaplace
from .hierarchical import HierarchicalPrior, Horseshoe
from .input_groups import ColumnLaplace
from .input_spikes import InputSpikes
from .laplace import Laplace
from .normal import NormalPrior
from .spike_slab import SpikeSlab

__all__ = [
    "ColumnLaplace",
    "Embedded",
    "EmbeddedSites",
    "Flat",
    "GammaLaplace",
    "GroupLaplace",
    "HierarchicalPrior",
    "Horseshoe",
    "InputSpikes",
    "Laplace",
    "NormalPrior",
    "Penalty",
    "Piece",
    "Prior",
    "PriorDistribution",
    "SpikeSlab",
    "as_penalty",
    "embedded",
]
