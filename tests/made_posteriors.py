"""Fits and posteriors made of given numbers, for tests of what is said about them."""

import json

import numpy as np

from sparse_lds.inference import FitResult, Stop
from sparse_lds.inference.constraints import Constraints
from sparse_lds.inference.posterior import arviz_compat as az
from sparse_lds.inference.posterior.basis_free import basis_free
from sparse_lds.models import Cohort, Laplace, LDSParams


def fit_of(A, prior=None) -> FitResult:
    """Return a fit that ended at A, by default with the prior Laplace(1)."""
    l = len(A)
    params = LDSParams(
        np.asarray(A, float), np.eye(l), np.eye(l), np.eye(l), np.zeros(l), np.eye(l)
    )
    return FitResult(
        params,
        np.zeros(1),
        Stop.TOLERANCE,
        "",
        0.0,
        0.0,
        Laplace(1.0) if prior is None else prior,
        Constraints(),
        {},
        (),
        np.zeros(0),
    )


def posterior_of(A, fit, C=None, prior=None, also=None, **attrs):
    """Return ArviZ's object around given draws (chains, draws, l, l) of A, and of others that `also` has."""
    l, shape = A.shape[-1], A.shape[:2]
    cohort = Cohort.from_sequences([np.zeros((5, l))] * 3)
    coords = az.coordinates(cohort, l)
    C = np.eye(l) if C is None else C
    rng = np.random.default_rng(0)
    stats = {
        "energy": rng.normal(size=shape),
        "diverging": np.zeros(shape, bool),
        "n_steps": np.full(shape, 4),
        "lp": np.zeros(shape),
    }
    attrs = {"free": "A", "n_states": l, "max_tree_depth": 10, "interrupted": 0, **attrs}
    if prior is not None:
        attrs |= {"prior": str(prior), "prior_json": json.dumps(prior.to_dict())}
    dims = {"included": az.DIMS["A"]}
    constants = {
        "lengths": cohort.lengths,
        **{f"map_{k}": v for k, v in fit.params._asdict().items()},
    }
    return az.assemble(
        {
            "posterior": az.dataset(
                {"A": A, **basis_free(A, C, np.eye(l)), **(also or {})},
                coords,
                attrs=attrs,
                dims=dims,
            ),
            "sample_stats": az.dataset(stats, coords),
            "observed_data": az.dataset({"y": cohort.y}, coords, draws=False),
            "constant_data": az.dataset(constants, coords, draws=False),
        }
    )
