"""The table that compares MAP and posterior: one row for each A_ij, and whether each rule of rules.py calls it zero.

A Laplace posterior has no mass at zero, so whether it "agrees that A_ij is zero" depends on a rule.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...models.arguments import probability
from ..posterior import arviz_compat as az
from ..result import FitResult
from .rules import RULES, Evidence
from .sparse_summary import second_moment


class Comparison(NamedTuple):
    """The comparison of MAP and posterior: `print` shows a summary, `table` has everything."""

    table: pd.DataFrame  # a row for each entry of A
    confusion: pd.DataFrame  # counts, a row for each rule
    scores: pd.DataFrame | None  # precision, recall, F1 of the nonzeros, where the truth is known
    epsilon: float
    prob: float

    def __str__(self) -> str:
        t: Any = self.table
        n, zeros = len(t), int(t["map_zero"].sum())
        lines = [
            f"The MAP has {zeros} exact zeros among the {n} entries of A. By the posterior, with {self.prob:.0%} "
            f"intervals and ε = {self.epsilon:g}:",
            "",
            self.confusion.to_string(float_format=lambda x: f"{x:.2f}"),
        ]
        apart = t[t["agreement"] < 0.5]
        if len(apart):
            lines += ["", f"Entries where most rules contradict the MAP ({len(apart)}):"]
            columns = ["map", "mean", "sd", "hdi_low", "hdi_high", "p_small", "p_sign"]
            lines.append(apart[columns].to_string(float_format=lambda x: f"{x:.3f}"))
        else:
            lines += ["", "There is no entry where most rules contradict the MAP."]
            kappa: Any = self.confusion["kappa"]
            odd = kappa.index[kappa < 0.4]  # rules that alone contradict the MAP
            if len(odd) and n > 4:
                lines.append(f"By itself {', '.join(odd)} sees it otherwise: see the table.")
        if self.scores is not None:
            lines += ["", "Against the truth, finding nonzero entries:"]
            lines.append(self.scores.to_string(float_format=lambda x: f"{x:.2f}"))
        return "\n".join(lines)


def compare_map_posterior(
    fit: FitResult,
    posterior: Any,
    *,
    epsilon: float = 0.1,
    prob: float = 0.95,
    truth=None,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Judge each zero of a MAP fit by the posterior, by each of the named rules.

    `posterior` is the result of `sample_posterior` for this fit. Entries nearer to zero than `epsilon` are nearly zero,
    `prob` is the probability of the intervals, `truth` an A (l, l) whose nonzeros are to be found, `names` are names of
    the states in place of numbers.

    Columns: map, map_zero (exactly zero), mean, sd, hdi_low, hdi_high, p_small = P(|A_ij| < ε), p_sign (of the more
    probable sign), zero_<rule> for each rule, and agreement, the share of rules that agree with the MAP.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be positive")
    prob = probability("prob", prob)
    A, A_map = _draws(fit, posterior), np.asarray(fit.moving.A, float)
    l = len(A_map)  # of the states that move; own levels of the sequences are not judged
    if truth is not None and np.shape(truth) != (l, l):
        raise ValueError(f"truth has shape {np.shape(truth)}; A is {(l, l)}")
    if names is not None and len(names) != l:
        raise ValueError(f"names has {len(names)} entries; the fit has {l} states")
    data = az.group(posterior, "posterior")
    interval = az.hdi(data[["A"]], prob)["A"].values[:l, :l]
    flat = A[..., :l, :l].reshape(-1, l, l)
    mean, sd = flat.mean(0), flat.std(0, ddof=1)
    center, map_zero = fit.prior.center_of(l), fit.zeros
    D = flat - center  # what the rules judge: A itself, but for priors with a centre
    p_small = (np.abs(D) < epsilon).mean(0)
    n_steps = int(np.mean(az.group(posterior, "constant_data")["lengths"].values))
    evidence = Evidence(
        D, interval - center[..., None], epsilon, second_moment(fit.moving, n_steps)
    )
    zero = {name: rule(evidence) for name, rule in RULES.items()}
    p_sign = np.maximum((D > 0).mean(0), (D < 0).mean(0))
    states = range(l) if names is None else list(names)
    at = pd.MultiIndex.from_product([states, states], names=["state", "from_state"])
    columns = {
        "map": A_map,
        "map_zero": map_zero,
        "mean": mean,
        "sd": sd,
        "hdi_low": interval[..., 0],
        "hdi_high": interval[..., 1],
        "p_small": p_small,
        "p_sign": p_sign,
        **{f"zero_{rule}": zero[rule] for rule in RULES},
        "agreement": np.mean([zero[rule] == map_zero for rule in RULES], axis=0),
    }
    table = pd.DataFrame({name: x.ravel() for name, x in columns.items()}, index=at)
    confusion = pd.DataFrame({rule: _confusion(map_zero, zero[rule]) for rule in RULES}).T
    counts = [name for name in confusion if name != "kappa"]
    confusion = confusion.astype(dict.fromkeys(counts, int))
    scores = None
    if truth is not None:
        found = {"map": ~map_zero, **{rule: ~zero[rule] for rule in RULES}}
        scores = pd.DataFrame(
            {k: _scores(x, np.asarray(truth) != center) for k, x in found.items()}
        ).T
    return Comparison(table, confusion, scores, float(epsilon), float(prob))


def _draws(fit: FitResult, posterior: Any) -> np.ndarray:
    """Return the draws of A (chains, draws, l, l); raise unless the posterior was sampled around this fit."""
    data = az.group(posterior, "posterior")
    if "A" not in data:
        raise ValueError("A was held when this posterior was sampled; sample it with A free")
    A, fitted = data["A"].values, np.asarray(fit.params.A)
    if A.shape[-1] != len(fitted):
        raise ValueError(f"the posterior has {A.shape[-1]} states, the fit {len(fitted)}")
    if A.shape[0] * A.shape[1] < 4:
        raise ValueError(
            f"the posterior has {A.shape[0] * A.shape[1]} draws; at least 4 are needed"
        )
    check_belongs(fit, posterior)
    return A


def check_belongs(fit: FitResult, posterior: Any) -> None:
    """Raise if a posterior was sampled around another fit."""
    constant = az.group(posterior, "constant_data")
    for name, value in fit.params._asdict().items():
        if not np.array_equal(constant[f"map_{name}"].values, np.asarray(value)):
            raise ValueError(
                f"this posterior was sampled around another fit or cohort: its {name} is not that of the fit given"
            )


def _confusion(map_zero: np.ndarray, zero: np.ndarray) -> dict[str, float]:
    """Return counts, and Cohen's kappa: agreement beyond that expected by chance from the two shares of zeros."""
    both, neither = (map_zero & zero).mean(), (~map_zero & ~zero).mean()
    p, q = map_zero.mean(), zero.mean()
    chance = p * q + (1 - p) * (1 - q)
    kappa = (both + neither - chance) / (1 - chance) if chance < 1 else 1.0
    return {
        "both zero": (map_zero & zero).sum(),
        "MAP zero only": (map_zero & ~zero).sum(),
        "rule zero only": (~map_zero & zero).sum(),
        "both nonzero": (~map_zero & ~zero).sum(),
        "kappa": kappa,
    }


def _scores(found: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Return precision, recall and F1 of the nonzeros found."""
    hits = (found & true).sum()
    precision = hits / found.sum() if found.any() else np.nan
    recall = hits / true.sum() if true.any() else np.nan
    f1 = 2 * hits / (found.sum() + true.sum()) if found.any() or true.any() else np.nan
    return {"precision": precision, "recall": recall, "f1": f1}
