"""The sections of a report, in the order in which a reader asks: data, choice, fit, forecasts, posterior, and so on."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from ....inference import Comparison, FitResult, diagnose, identifiability_report
from ....inference.comparison.rules import explained
from ....inference.posterior import arviz_compat as az
from ....models import variance_parts
from ...coverage import Coverage
from ...figures import (
    plot_beta,
    plot_coverage,
    plot_eigenvalues,
    plot_forecasts,
    plot_inclusion,
    plot_mixing,
    plot_prior_posterior,
    plot_series,
)
from ...labs import Binned
from ...skill import Skill
from ..structures import MEANING, Links
from .lights import data_light
from .parts import Part, Section, figure, lines, table, text

_SHOWN = 4  # patients in a figure
_IN_TABLE = "they are in the table of all entries"


def some(cohort: Any, n: int = _SHOWN) -> list[int]:
    """Return some patients to be shown, from the one with the most steps to the one of middle length."""
    order = np.argsort(-np.asarray(cohort.lengths), kind="stable")
    return [
        int(order[k])
        for k in np.unique(np.linspace(0, len(order) // 2, min(n, len(order))).astype(int))
    ]


def data_section(binned: Binned, folder: Path) -> Section:
    """Return what was read, kept and dropped, the tests in numbers, and the values of some patients as they are."""
    cohort = binned.cohort
    y = np.asarray(cohort.to_units(np.where(cohort.mask, cohort.y, np.nan)))
    inside = int(np.asarray(cohort.lengths).sum())
    rows = {
        str(name): {
            "values": int(np.isfinite(y[..., j]).sum()),
            "empty": f"{1 - np.isfinite(y[..., j]).sum() / inside:.0%}",
            "median": np.nanmedian(y[..., j]),
            "5%": np.nanquantile(y[..., j], 0.05),
            "95%": np.nanquantile(y[..., j], 0.95),
            "modelled by": "logarithm" if name in cohort.labels.logged else "value",
        }
        for j, name in enumerate(cohort.channels)
    }
    who = some(cohort)
    drawn = plot_series(cohort, who, binned.measured)
    names = ", ".join(str(cohort.ids[n]) for n in who)
    parts = [
        lines("\n".join(binned.log)),
        table(pd.DataFrame(rows).T.rename_axis("test"), "The tests, in the units of the file"),
        figure(
            drawn,
            f"All values of {len(who)} patients as they are",
            f"Values of {names} over time",
            folder / "series.png",
        ),
    ]
    return Section("Data", data_light(binned).sentence, parts, "data")


def choice_section(folder: Path, fit: FitResult) -> Section | None:
    """Return how β was chosen; None where nothing was saved of it."""
    file = folder / "selection.csv"
    if not file.exists():
        return None
    found: Any = pd.read_csv(file)
    if "chosen" not in found or not found["chosen"].any():
        return None
    row = found[found["chosen"]].iloc[0]
    beta, name = float(row["beta"]), str(row["candidate"])
    if found["beta"].nunique() == 1:
        words = f"β = {beta:g} was given, and not chosen."
        return Section("The choice of β", words, [text(words), table(found)], "beta")
    words = f"β = {beta:.3g}, {name}, among {len(found)} models that held-out patients judged."
    drawn = plot_beta(found, beta=beta, candidate=name, rule=str(row.get("rule", "")))
    alt = f"Held-out error and density against β for each structure; the choice is β = {beta:.3g}"
    parts = [figure(drawn, words, alt, folder / "beta.png"), table(found, "All models")]
    return Section("The choice of β", words, parts, "beta")


def fit_section(fit: FitResult, binned: Binned, names: list[str]) -> Section:
    """Return A, C where it says anything, and how much of each test is noise."""
    cohort = binned.cohort
    A = pd.DataFrame(np.asarray(fit.moving.A), names, names).rename_axis("to ↓ from →")
    zeros = int(fit.zeros.sum())
    parts: list[Part] = [lines(str(fit)), table(A, "A of the MAP; zeros are exact")]
    if fit.constraints.free("C"):
        C = pd.DataFrame(np.asarray(fit.moving.C), list(cohort.channels), names).rename_axis("test")
        parts.append(table(C, "C: what a unit of each state adds to each test, in its sd"))
    shares = variance_parts(fit.params, fit.n_states, cohort)._asdict()
    frame = pd.DataFrame(shares, index=pd.Index(list(cohort.channels), name="test"))
    frame = frame.div(frame.sum(axis=1), axis=0).map(lambda x: f"{x:.0%}")
    frame.columns = ["patients' own levels", "what moves", "error of measurement (R)"]
    if not fit.constraints.own_levels:  # not in this model, which is no finding
        frame = frame.drop(columns="patients' own levels")
    parts.append(table(frame, "Shares of each test's variance"))
    if cohort.labels.logged:
        logged = ", ".join(cohort.labels.logged)
        words = "the model has the logarithms: a unit is a standard deviation of these."
        parts.append(text(f"Of {logged} {words}"))
    words = f"{zeros} of {fit.zeros.size} entries of A are exactly {fit._zero}; {fit.reason}."
    return Section("The fit (MAP)", words, parts, "fit")


def links_section(links: Links | None) -> Section | None:
    """Return the links of the fit beside those of other structures; None where there is nothing to compare."""
    if links is None or links.table.empty or not links.others:
        return None
    shown = links.table.assign(stands=np.where(links.stand, "yes", "no"))
    parts = [table(shown, MEANING)]
    return Section("Do the links depend on the structure?", str(links), parts, "structures")


def skill_section(skill: Skill | None) -> Section | None:
    """Return the error of held-out patients beside baselines; None where none was held out."""
    if skill is None:
        return None
    verdict, *rest = str(skill).split("\n")
    parts = [text(verdict), table(skill.table.rename_axis("forecaster")), text(" ".join(rest[-2:]))]
    return Section("Held-out error against baselines", verdict, parts, "skill")


def posterior_section(
    comparison: Comparison, fit: FitResult, posterior: Any, folder: Path, truth: Any
) -> Section:
    """Return prior against posterior of each entry, whether the draws can be trusted, and what rules say."""
    t: Any = comparison.table
    verdict = diagnose(posterior)
    counts = t["verdict"].value_counts()
    said = ", ".join(f"{n} {word}" for word, n in counts.items())
    prior_posterior = plot_prior_posterior(comparison, posterior, truth=truth)
    alt = f"Densities of prior and posterior of each entry of A. What the MAP says of them is: {said}."
    parts = [
        text(comparison.definition),
        figure(prior_posterior, "What the data added, entry by entry", alt, folder / "evidence.png"),
    ]  # fmt: skip
    if t["p_zero"].notna().any():
        spikes = comparison.prior.startswith("SpikeSlab")
        what = (
            "inclusion probabilities" if spikes else "P(not zero) for one who gave zero even odds"
        )
        alt = f"Probabilities that each entry of A is not zero; {_IN_TABLE}"
        parts.append(figure(plot_inclusion(comparison, truth=truth), f"How sure: {what}", alt))
    mixed = verdict.text.split("\n")[0]
    radii = "Eigenvalues of A, which no basis changes"
    parts += [
        lines(str(verdict)),
        figure(plot_mixing(posterior), "Have the chains mixed?", mixed, folder / "mixing.png"),
        figure(
            plot_eigenvalues(fit, posterior),
            radii,
            _eigenvalues(posterior),
            folder / "eigenvalues.png",
        ),
        lines("\n".join(comparison.rules_in_words())),
        text(f"The rules call an entry zero if the following holds. {explained()}."),
    ]
    return Section("The posterior", f"{said}. {verdict.text.splitlines()[1]}", parts, "posterior")


def _eigenvalues(posterior: Any) -> str:
    """Return the spectral radius in words."""
    radius = az.group(posterior, "posterior")["spectral_radius"].values
    low, high = np.quantile(radius, [0.05, 0.95])
    return f"Eigenvalues of draws of A in the complex plane; the largest modulus is {low:.2f} to {high:.2f}"


def forecast_section(
    binned: Binned, posterior: Any, coverage: Coverage, folder: Path, seed: int
) -> Section:
    """Return forecasts of some patients over their dates, and how often intervals covered what came."""
    cohort = binned.cohort
    who = some(cohort, 3)
    share, se = (float(x[0]) for x in coverage.within(np.array([0.9])))
    words = f"{share:.0%} (± {2 * se:.0%}) of later values were inside 90% intervals."
    each = coverage.by_channel()
    index = pd.Index(list(cohort.channels), name="test")
    frame = pd.DataFrame({"inside 90% intervals": [f"{x:.0%}" for x in each]}, index=index)
    drawn = plot_forecasts(jax.random.key(seed), posterior, cohort, who)
    note = (
        "Each is forecast after the first half of its steps. These patients had a part in the parameters; held-out "
        "error is in the section above."
    )
    parts = [
        figure(drawn, f"Forecasts of {len(who)} patients", words, folder / "forecasts.png"),
        text(f"A step is {binned.step}. {note}"),
        figure(plot_coverage(coverage), "Are the intervals as wide as they say?", words, folder / "coverage.png"),
        table(frame),
    ]  # fmt: skip
    return Section("Forecasts", words, parts, "forecasts")


def identified_section(fit: FitResult, intercept: int | None = None) -> Section:
    """Return which changes of basis the likelihood leaves open, and which translations beside an intercept."""
    found = identifiability_report(fit.params, fit.constraints, intercept)
    left = found.n_directions
    words = (
        "The data fix the basis: an entry of A means what it says."
        if not left
        else f"{left} changes of basis are open: the basis is the penalty's choice and not the data's."
    )
    return Section("What is identified", words, [lines(str(found))], "identified")


def entries_section(comparison: Comparison) -> Section:
    """Return the table of all entries, the verdict first."""
    t: Any = comparison.table.reset_index()
    first = [
        "state",
        "from_state",
        "verdict",
        "map",
        "mean",
        "hdi_low",
        "hdi_high",
        "p_zero",
        "bayes_factor_zero",
    ]
    rest = [name for name in t.columns if name not in first]
    other = "Zero means: at the value in the column center, to which the prior pulls. "
    caption = (other if t["center"].any() else "") + (
        "A click on a heading sorts. p_small is P(|A| < ε), p_sign the probability of the more probable sign, "
        "agreement the share of rules that say what the MAP says."
    )
    return Section(
        "All entries", f"{len(t)} entries of A", [table(t[first + rest], caption)], "entries"
    )
