"""Priors on the transition matrix A."""

from .base import Flat, GroupLaplace, Laplace, Prior
from .hierarchical import GammaLaplace, HierarchicalPrior, Horseshoe

__all__ = [
    "Flat",
    "GammaLaplace",
    "GroupLaplace",
    "HierarchicalPrior",
    "Horseshoe",
    "Laplace",
    "Prior",
]
