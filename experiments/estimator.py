"""An estimator in the style of scikit-learn, for panels: a thin layer over `select`, `fit_map` and `forecast`.

It follows scikit-learn's conventions without needing it; `experiments/panel_layouts.py` knows sktime's layouts.
"""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np

from ..inference import fit_map, hidden_candidates, level_candidates, select
from ..models import Cohort, forecast, kalman_filter
from .panel_layouts import as_cohort, like_panel

try:
    from sklearn.exceptions import NotFittedError  # pyright: ignore
except ImportError:

    class NotFittedError(ValueError, AttributeError):
        """An estimator is asked for what only a fit can say; scikit-learn's own error, where that is installed."""


class SparseLDS:
    """A sparse linear dynamical system: `SparseLDS().fit(X).predict(horizon)`.

    - X is a panel in any layout of `as_cohort`; `predict` returns the layout that it was given. A `Cohort` may have
      inputs; `predict` takes those of the steps ahead from it, or from `inputs`.
    - `n_states` None is a state for each channel; β None is chosen, with the structure, by `rule` on held-out
      sequences.
    - `pull`, `own_levels` and `priors` are those of `sparse-lds fit`; arguments are checked when it is fitted.
    - After `fit` there are `fit_` (a `FitResult`), `cohort_` (standardised), `A_`, `beta_`, `n_features_in_`,
      `feature_names_in_` where X has names, and `selection_` where β was chosen.
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
        self.n_states = n_states
        self.beta = beta
        self.pull = pull
        self.own_levels = own_levels
        self.rule = rule
        self.priors = priors
        self.max_iter = max_iter
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments that it was made with."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> "SparseLDS":
        """Set arguments by name, and return it; raise if one is unknown."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(f"{name!r} is no argument of SparseLDS; it has {', '.join(known)}")
        for name, value in params.items():
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
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit
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
        names = getattr(X, "columns", None)
        if names is not None:
            self.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
        self._layout = like_panel(X)
        return self

    def predict(self, horizon: int, X: Any = None, *, inputs: Any = None) -> Any:
        """Return what comes next, in the units and the layout of X: of the sequences of the fit, or of others.

        `inputs` (N, horizon, p), or (horizon, p) for all, replace those that the cohort has of the steps ahead.
        """
        cohort = self._like_the_fit(X)
        ahead = forecast(self.fit_.params, cohort, horizon, inputs=inputs)
        mean = np.asarray(cohort.to_units(np.asarray(ahead.mean)))
        layout = self._layout if X is None else like_panel(X)
        return layout(mean, cohort)

    def score(self, X: Any = None, y: Any = None) -> float:
        """Return the mean log predictive density of a value, one step ahead, in standardised units: more is better."""
        cohort = self._like_the_fit(X)
        found = kalman_filter(self.fit_.params, cohort)
        return float(np.asarray(found.log_likelihood).sum() / np.asarray(cohort.mask).sum())

    def _like_the_fit(self, X: Any) -> Cohort:
        """Return a panel on the scale of the fit; raise if there is no fit, or the channels are others."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this SparseLDS is not fitted yet; call fit first")
        if X is None:
            return self.cohort_
        cohort = as_cohort(X)
        if cohort.n_channels != self.n_features_in_:
            raise ValueError(
                f"X has {cohort.n_channels} channels; the fit has {self.n_features_in_}"
            )
        names = self.cohort_.channels
        named = hasattr(X, "columns") and hasattr(self, "feature_names_in_")
        if named and cohort.channels != names:
            raise ValueError(
                f"X has channels {list(cohort.channels)}; the fit has {list(names)}, in this order"
            )
        if cohort.inputs != self.cohort_.inputs:
            raise ValueError(
                f"X has inputs {list(cohort.inputs)}; the fit has {list(self.cohort_.inputs)}, in this order"
            )
        cohort = replace(cohort, labels=replace(cohort.labels, channels=names))
        return cohort.standardize_like(self.cohort_)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether it is fitted."""
        return hasattr(self, "fit_")

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what it takes: panels, with missing cells, and no target."""
        from sklearn.utils import InputTags, Tags, TargetTags  # pyright: ignore[reportMissingImports]

        takes = InputTags(two_d_array=False, three_d_array=True, allow_nan=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=takes)
