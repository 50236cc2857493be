"""An estimator in the style of scikit-learn, for panels: a thin layer over `select`, `fit_map` and `forecast`."""

import inspect
from typing import Any

import numpy as np
import pandas as pd

from ..inference import fit_map, hidden_candidates, level_candidates, select
from ..models import Cohort, forecast, kalman_filter


def as_cohort(X: Any) -> Cohort:
    """Return a panel as a cohort.

    X is a `Cohort`, a list of arrays (T_n, d), an array (N, d, T) as sktime's numpy3D, or a table whose index has two
    levels, instance and time, as sktime's pd-multiindex: rows of one instance are equally spaced, in their order.
    """
    if isinstance(X, Cohort):
        return X
    if isinstance(X, pd.DataFrame):
        if X.index.nlevels != 2:
            raise ValueError(
                f"X has an index of {X.index.nlevels} levels; it must be two, instance and time"
            )
        parts = [(name, part.to_numpy(float)) for name, part in X.groupby(level=0, sort=False)]
        ids, sequences = zip(*parts, strict=True)
        return Cohort.from_sequences(sequences, ids=ids, channels=[str(c) for c in X.columns])
    if isinstance(X, np.ndarray):
        if X.ndim != 3:
            raise ValueError(f"X has shape {X.shape}; it must be (instances, channels, times)")
        return Cohort.from_sequences(list(np.swapaxes(np.asarray(X, float), 1, 2)))
    return Cohort.from_sequences(X)


class SparseLDS:
    """A sparse linear dynamical system: `SparseLDS().fit(X).predict(horizon)`.

    `n_states` None is a state for each channel; β None is chosen, with the structure, by `rule` on held-out sequences.
    After `fit` there are `fit_` (a `FitResult`), `cohort_` (standardised), `A_`, `beta_` and `n_features_in_`.
    """

    def __init__(
        self,
        n_states: int | None = None,
        *,
        beta: float | None = None,
        pull: str | None = None,
        own_levels: bool = False,
        rule: str = "best_density",
        priors: str | None = "weak",
        max_iter: int = 500,
        seed: int = 0,
    ):
        self.n_states, self.beta, self.pull, self.own_levels = n_states, beta, pull, own_levels
        self.rule, self.priors, self.max_iter, self.seed = rule, priors, max_iter, seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments that it was made with."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> "SparseLDS":
        """Set arguments by name, and return it; raise if one is unknown."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name!r} is no argument of SparseLDS; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"SparseLDS({given})"

    def fit(self, X: Any, y: Any = None) -> "SparseLDS":
        """Fit a panel, and return it; `y` is not used."""
        cohort = as_cohort(X).standardize()
        own = (self.own_levels,)
        if self.n_states is None:
            wanted = level_candidates(cohort, self.pull, own, (True,))
        else:
            wanted = hidden_candidates(self.n_states, self.pull or "zero", own)
        options: Any = {"max_iter": self.max_iter, "priors": self.priors}
        if self.beta is None:
            self.selection_ = select(
                cohort, candidates=wanted, rule=self.rule, n_betas=8, seed=self.seed, **options
            )
            self.fit_, self.beta_ = self.selection_.fit, self.selection_.choice(self.rule).beta
        else:
            prior, kept = wanted[0].prior.scaled(self.beta), wanted[0].constraints
            self.fit_ = fit_map(cohort, wanted[0].n_states, prior, constraints=kept, **options)
            self.beta_ = float(self.beta)
        self.cohort_, self.A_ = cohort, np.asarray(self.fit_.moving.A)
        self.n_features_in_ = cohort.n_channels
        return self

    def predict(self, horizon: int, X: Any = None) -> np.ndarray:
        """Return what comes next, (N, horizon, d), in the units of X: of the sequences of the fit, or of others."""
        cohort = self._like_the_fit(X)
        return np.asarray(
            cohort.to_units(np.asarray(forecast(self.fit_.params, cohort, horizon).mean))
        )

    def score(self, X: Any = None, y: Any = None) -> float:
        """Return the mean log predictive density of a value, one step ahead, in standardised units: more is better."""
        cohort = self._like_the_fit(X)
        found = kalman_filter(self.fit_.params, cohort)
        return float(np.asarray(found.log_likelihood).sum() / np.asarray(cohort.mask).sum())

    def _like_the_fit(self, X: Any) -> Cohort:
        """Return a panel on the scale of the fit; raise if there is no fit, or the channels are others."""
        if not hasattr(self, "fit_"):
            raise AttributeError("this SparseLDS is not fitted yet; call fit first")
        if X is None:
            return self.cohort_
        cohort = as_cohort(X)
        if cohort.n_channels != self.n_features_in_:
            raise ValueError(
                f"X has {cohort.n_channels} channels; the fit has {self.n_features_in_}"
            )
        return cohort.standardize_like(self.cohort_)
