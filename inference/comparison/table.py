"""The table that compares MAP and posterior: one row for each A_ij, what the data say of it, and what each rule says.

A Laplace posterior has no mass at zero, so whether it "agrees that A_ij is zero" depends on a rule (rules.py), and
whether that is due to the data on what the prior alone would have said (evidence.py).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...models.arguments import probability
from ..posterior import arviz_compat as az
from ..posterior.constant import prior_of
from ..result import FitResult
from .evidence import added, prior_draws, verdicts
from .inputs import table_of_inputs
from .report import Comparison
from .rules import RULES, Evidence
from .sparse_summary import second_moment


def compare_map_posterior(
    fit: FitResult,
    posterior: Any,
    *,
    epsilon: float = 0.1,
    prob: float = 0.95,
    odds: float = 3.0,
    contraction: float = 0.5,
    truth=None,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Judge each zero of a MAP fit by what the data added to the prior, and by each of the named rules.

    `posterior` is the result of `sample_posterior` for this fit. Entries nearer to zero than `epsilon` are nearly zero,
    `prob` is the probability of the intervals, `odds` and `contraction` are the thresholds of the verdicts (see
    `definition` of the result), `truth` an A (l, l) whose nonzeros are to be found, `names` are names of the states in
    place of numbers.

    Columns: map, map_zero (exactly at the prior's centre), center (zero, or what the prior pulls the entry to: all
    probabilities and Bayes factors of zero are of it), verdict (on what the MAP says, by the data), bayes_factor_zero,
    p_zero and contraction (see evidence.py), mean, sd, hdi_low, hdi_high, p_small = P(|A_ij| < ε), p_sign (of the more
    probable sign), zero_<rule> for each rule, prior_<rule>, what the rule says of draws from the prior alone, and
    agreement, the share of rules that agree with the MAP. With inputs, `inputs` of the result is a table for B.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be positive")
    if not odds > 1:
        raise ValueError(f"odds is {odds}; it must be above 1")
    if not contraction < 1:
        raise ValueError(f"contraction is {contraction}; it must be below 1")
    prob = probability("prob", prob)
    A, A_map = _draws(fit, posterior), np.asarray(fit.moving.A, float)
    l = len(A_map)  # of the states that move; own levels of the sequences are not judged
    if truth is not None and np.shape(truth) != (l, l):
        raise ValueError(f"truth has shape {np.shape(truth)}; A is {(l, l)}")
    if names is not None and len(names) != l:
        raise ValueError(f"names has {len(names)} entries; the fit has {l} states")
    data = az.group(posterior, "posterior")
    A = A[..., :l, :l]
    flat, center, map_zero = A.reshape(-1, l, l), fit.prior.center_of(l), fit.zeros
    D = flat - center  # what the rules judge: A itself, but for priors with a centre
    known = az.group(posterior, "constant_data")
    n_steps = int(np.mean(known["lengths"].values))
    S00 = second_moment(fit.moving, n_steps, known["u"].values if "u" in known else None)
    evidence = _evidence(A - center, epsilon, prob, S00)
    zero = {name: rule(evidence) for name, rule in RULES.items()}

    prior = prior_of(data.attrs)
    before = prior_draws(prior, l)
    found = added(flat, prior, before)
    # a prior with another centre than the fit's says nothing on zeros of the fit
    same = False if prior is None else np.isclose(prior.center_of(l), center)
    columns = {
        "map": A_map,
        "map_zero": map_zero,
        "center": np.broadcast_to(center, (l, l)),
        "verdict": verdicts(map_zero, found, odds, contraction, same),
        **found._asdict(),
        "mean": flat.mean(0),
        "sd": flat.std(0, ddof=1),
        "hdi_low": evidence.interval[..., 0] + center,
        "hdi_high": evidence.interval[..., 1] + center,
        "p_small": (np.abs(D) < epsilon).mean(0),
        "p_sign": np.maximum((D > 0).mean(0), (D < 0).mean(0)),
        **{f"zero_{rule}": zero[rule] for rule in RULES},
        **_by_the_prior(before, center, found.contraction, epsilon, prob, S00),
        "agreement": np.mean([zero[rule] == map_zero for rule in RULES], axis=0),
    }
    states = range(l) if names is None else list(names)
    at = pd.MultiIndex.from_product([states, states], names=["state", "from_state"])
    table = pd.DataFrame({name: x.ravel() for name, x in columns.items()}, index=at)
    table = table.astype({f"prior_{rule}": "boolean" for rule in RULES})
    confusion = pd.DataFrame({rule: _confusion(map_zero, zero[rule]) for rule in RULES}).T
    counts = [name for name in confusion if name != "kappa"]
    confusion = confusion.astype(dict.fromkeys(counts, int))
    scores = None
    if truth is not None:
        nonzero = {"map": ~map_zero, **{rule: ~zero[rule] for rule in RULES}}
        scores = _all_scores(nonzero, found.p_zero, np.asarray(truth) != center)
    return Comparison(
        table,
        confusion,
        scores,
        float(epsilon),
        float(prob),
        float(odds),
        float(contraction),
        str(data.attrs.get("prior", "")),
        bool(data.attrs.get("conditional", 0)),
        table_of_inputs(fit, posterior, prob, odds, contraction, names),
    )


def _evidence(D: np.ndarray, epsilon: float, prob: float, S00: np.ndarray) -> Evidence:
    """Return what the rules judge, from draws (chains, draws, l, l) of A less its centre."""
    l = D.shape[-1]
    interval = az.hdi(az.dataset({"A": D}, {}), prob)["A"].values
    return Evidence(D.reshape(-1, l, l), interval, epsilon, S00)


def _by_the_prior(before, center, known, epsilon: float, prob: float, S00) -> dict[str, np.ndarray]:
    """Return what each rule says of draws from the prior; None where `known` (l, l) is NaN: it has none."""
    if before is None:
        return {f"prior_{name}": np.full(S00.shape, None) for name in RULES}
    evidence = _evidence((before - center)[None], epsilon, prob, S00)
    return {
        f"prior_{name}": np.where(np.isnan(known), None, rule(evidence))  # type: ignore[call-overload]
        for name, rule in RULES.items()
    }


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


def _all_scores(
    nonzero: dict[str, np.ndarray], p_zero: np.ndarray, true: np.ndarray
) -> pd.DataFrame:
    """Return the scores of each way to find nonzeros, and of the posterior: p_zero < ½, or not known to be zero."""
    scores = {name: _scores(x, true) for name, x in nonzero.items()}
    found = _scores(~(p_zero >= 0.5), true)
    if np.isnan(p_zero).all():  # nothing is known
        found = dict.fromkeys(found, np.nan)
    return pd.DataFrame({**scores, "posterior": found}).T
