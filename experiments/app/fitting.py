"""The job of `fit`: structure and β by held-out patients, the fit, its skill beside baselines, and what it says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...inference import (
    Candidate,
    FitResult,
    Selection,
    effective_states,
    fit_map,
    hidden_candidates,
    level_candidates,
    select,
)
from ...inference.selection.held_out import choose, rule_named
from ...models import Cohort, LDSParams, save_params, variance_parts
from ...models.files import write_whole
from ...models.inputs import INTERCEPT
from ..outputs import write_csv
from ..saving import save_fit
from ..skill import Skill, skill
from .structures import links_of, write_links

Say = Callable[[str], None]
_EITHER = {"auto": (False, True), "yes": (True,), "no": (False,)}


class Model(NamedTuple):
    """The model that a user asks for; "auto" is chosen by held-out patients."""

    n_states: int | None = None  # hidden states; None: a state for each test, its level
    beta: float | None = None  # None: chosen
    pull: str = ""  # what A is pulled to; "": the default of the structure
    own_levels: str = "auto"  # whether patients have levels of their own
    noise: str = "auto"  # of levels: Q "diagonal" or "full"
    rule: str = "best_error"  # by which structure and β are chosen
    priors: str = "weak"  # of noise and first states; "none" as in the paper

    def candidates(self, cohort: Cohort) -> list[Candidate]:
        """Return the structures that are compared; raise if an option is unknown."""
        rule_named(self.rule)
        own = _known("--own-levels", self.own_levels, _EITHER)
        if self.n_states is None:
            noise = {"auto": (True, False), "diagonal": (True,), "full": (False,)}
            independent = _known("--noise", self.noise, noise)
            found = level_candidates(cohort, self.pull or None, own, independent)
            return [with_inputs_on_states(x, cohort) for x in found]
        if self.noise != "auto":
            raise ValueError(
                f"--noise is {self.noise!r}; it is for states that are tests, not --states (Q = I)"
            )
        found = hidden_candidates(self.n_states, self.pull or "zero", own)
        return [with_inputs_on_states(x, cohort) for x in found]

    @property
    def options(self) -> dict[str, Any]:
        """The options of every fit."""
        return {"priors": _known("--priors", self.priors, {"weak": "weak", "none": None})}


def with_inputs_on_states(candidate: Candidate, cohort: Cohort) -> Candidate:
    """Return a structure in which inputs act on states, sparsely: a prior on [A B], and no D but an intercept's."""
    acting = [j for j, name in enumerate(cohort.inputs) if name != INTERCEPT]
    if not acting:
        return candidate
    absent = (*candidate.constraints.absent, *(("D", j) for j in acting))
    prior: Any = candidate.prior
    return candidate._replace(
        prior=replace(prior, beta_B=1.0), constraints=replace(candidate.constraints, absent=absent)
    )


def _known(option: str, value: str, known: dict[str, Any]) -> Any:
    """Return what a value of an option means, or raise an error that lists the values."""
    if value not in known:
        raise ValueError(f"{option} is {value!r}; it must be one of {', '.join(known)}")
    return known[value]


def fit_job(
    cohort: Cohort,
    folder: Path,
    model: Model,
    *,
    starts: int = 1,
    seed: int,
    max_iter: int = 2000,
    say: Say,
    progress: bool,
) -> FitResult:
    """Fit, and write fit.json, params.json, and as CSV files A, variance, selection, skill and structures."""
    candidates = model.candidates(cohort)
    found = _selected(cohort, candidates, model, seed, max_iter, say, progress)
    shown = None
    if found is None:  # one patient
        first = candidates[0]
        fit = fit_map(
            cohort, first.n_states, first.prior.scaled(model.beta or 0.0), constraints=first.constraints,
            max_iter=max_iter, progress=progress, **model.options,
        )  # fmt: skip
    else:
        chosen = np.arange(len(found.table)) == choose(found.rule, found.table, found.held_out)
        kept = found.table.assign(chosen=chosen, rule=found.rule)
        write_csv(folder / "selection.csv", kept, index=False)
        shown = skill(cohort, found)
        _write_skill(shown, folder)
        fit = _finished(cohort, found, starts, seed, max_iter, progress, model.options)
    if fit.interrupted:
        raise KeyboardInterrupt
    _write_fit(fit, cohort, folder)
    say(summary(fit, cohort, shown))
    if found is not None:
        say(how_chosen(found))
        links = links_of(found, fit, cohort, state_names(fit, cohort))
        write_links(links, folder)
        if links is not None:
            say(str(links))
    for warning in fit.warnings:
        say(f"warning: {warning}")
    return fit


def _selected(
    cohort: Cohort, candidates: list[Candidate], model: Model, seed: int, max_iter: int, say: Say, progress: bool
) -> Selection | None:  # fmt: skip
    """Return the choice among structures and β; None for one patient, of whom none can be held out."""
    if len(cohort) < 2:
        if model.beta is None:
            raise ValueError(
                f"β is chosen by held-out patients, and there are {len(cohort)}: give a number in --beta"
            )
        say("there is one patient, and none to hold out: forecasts are not compared with baselines")
        return None
    if model.beta is not None and len(candidates) == 1 and model.rule != Model().rule:
        raise ValueError(
            f"--rule is {model.rule}, and would be ignored: with one structure and --beta there is nothing to choose"
        )
    structures = "structure" if len(candidates) == 1 else "structures"
    values = "β" if model.beta is None else f"β = {model.beta:g}"
    say(f"choosing by held-out patients among {len(candidates)} {structures}, {values}")
    found = select(
        cohort,
        candidates=candidates,
        rule=model.rule,
        betas=None if model.beta is None else [model.beta],
        n_betas=8,
        seed=seed,
        max_iter=min(max_iter, 150),
        tol=1e-3,
        progress=progress,
        **model.options,
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def _finished(
    cohort: Cohort, found: Selection, starts: int, seed: int, max_iter: int, progress: bool, options: dict[str, Any]
) -> FitResult:  # fmt: skip
    """Return the chosen fit, run to its end; with several starts the best of them."""
    fit = found.fit
    common: Any = {
        "constraints": fit.constraints,
        "max_iter": max_iter,
        "progress": progress,
        **options,
    }
    fit = fit_map(cohort, fit.n_states, fit.prior, init=fit.params, warm=True, **common)
    if starts > 1 and fit.constraints.free("C"):
        other = fit_map(cohort, fit.n_states, fit.prior, n_restarts=starts, seed=seed, **common)
        fit = other if other.objective[-1] > fit.objective[-1] or other.interrupted else fit
    return fit


def summary(fit: FitResult, cohort: Cohort, shown: Skill | None) -> str:
    """Return what a user should know of a fit: how well it forecasts first, then what it is."""
    zeros, A = fit.zeros, fit.zeros.size
    where = "at the prior's centre" if fit.prior.center_of(fit.n_states).any() else "zero"
    lines = [] if shown is None else [str(shown)]
    lines += [
        f"{fit.reason}, {fit.n_iter} iterations",
        f"{fit.prior}, {fit.constraints}",
        f"{int(zeros.sum())} of {A} entries of A are exactly {where}; "
        f"{len(effective_states(fit.moving))} of {fit.n_states} states take part in the dynamics",
        "shares of each test's variance:",
        variance_table(fit, cohort).to_string(float_format=lambda x: f"{x:.0%}"),
    ]
    return "\n".join(lines)


def variance_table(fit: FitResult, cohort: Cohort) -> pd.DataFrame:
    """Return how much of each test's variance is between patients, within them, and error of measurement.

    Without levels of their own in the model, "between" is not a finding, and is left out.
    """
    parts = variance_parts(fit.params, fit.n_states, cohort)
    table = pd.DataFrame(parts._asdict(), index=list(cohort.channels))
    shares = table.div(table.sum(axis=1), axis=0)
    if not fit.constraints.own_levels:
        shares = shares.drop(columns="between")
    return shares.rename(columns={"between": "patients' own levels", "within": "what moves"})


def how_chosen(found: Selection) -> str:
    """Return which model was chosen and by what; where density and error disagree, what the other would have been."""
    lines = [
        f"chosen by {found.rule}, {rule_named(found.rule).__doc__}: {_named(found, found.rule)}"
    ]
    other = "best_density" if found.rule == "best_error" else "best_error"
    if found.choice(other) != found.choice(found.rule):
        here, there = (_row(found, rule) for rule in (found.rule, other))
        lines.append(
            f"by {other} it would be {_named(found, other)} (density {there['density']:.3f} against "
            f"{here['density']:.3f} a value, error {there['error']:.3f} against {here['error']:.3f}): --rule {other}"
        )
    return "\n".join(lines)


def _row(found: Selection, rule: str) -> Any:
    choice = found.choice(rule)
    same = (found.table["candidate"] == choice.candidate) & (found.table["beta"] == choice.beta)
    return found.table[same].iloc[0]


def _named(found: Selection, rule: str) -> str:
    choice = found.choice(rule)
    return f"{choice.candidate}, β = {choice.beta:.4g}"


def _write_skill(shown: Skill, folder: Path) -> None:
    """Write skill.csv and skill.txt."""
    write_csv(folder / "skill.csv", shown.table, index_label="forecaster")
    write_whole(folder / "skill.txt", str(shown) + "\n")


def _write_fit(fit: FitResult, cohort: Cohort, folder: Path) -> None:
    """Write fit.json, params.json, A.csv (of the states that move) and variance.csv."""
    save_fit(folder / "fit.json", fit)
    save_params(folder / "params.json", LDSParams(*(np.asarray(x) for x in fit.params)))
    names = state_names(fit, cohort)
    A = pd.DataFrame(np.asarray(fit.moving.A), names, names)
    write_csv(folder / "A.csv", A, index_label="to \\ from")
    if cohort.n_inputs:
        B, D = np.asarray(fit.moving.B), np.asarray(fit.params.D)
        write_csv(
            folder / "B.csv", pd.DataFrame(B, names, list(cohort.inputs)), index_label="to \\ input"
        )
        of_tests = pd.DataFrame(D, list(cohort.channels), list(cohort.inputs))
        write_csv(folder / "D.csv", of_tests, index_label="test \\ input")
    write_csv(folder / "variance.csv", variance_table(fit, cohort), index_label="test")


def state_names(fit: FitResult, cohort: Cohort) -> list[str]:
    """Return the names of the states that move: the tests, where C = I was held, else z0, z1, …"""
    C = np.asarray(fit.moving.C)
    if not fit.constraints.free("C") and np.array_equal(C, np.eye(*C.shape)):
        return [str(name) for name in cohort.channels]
    return [f"z{i}" for i in range(fit.n_states)]
