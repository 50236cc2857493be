"""Priors on the transition matrix A: one object, read by NUTS as a distribution and by MAP-EM as a penalty."""

from .base import Penalty, Piece, Prior, as_penalty
from .distribution import PriorDistribution
from .embedded import Embedded
from .flat import Flat
from .group import GroupLaplace
from .hierarchical import GammaLaplace, HierarchicalPrior, Horseshoe
from .laplace import Laplace

__all__ = [
    "Embedded",
    "Flat",
    "GammaLaplace",
    "GroupLaplace",
    "HierarchicalPrior",
    "Horseshoe",
    "Laplace",
    "Penalty",
    "Piece",
    "Prior",
    "PriorDistribution",
    "as_penalty",
]
