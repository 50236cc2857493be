"""The page: what was asked, the lights, three numbers, the network, and the sections below, from one template."""

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from ....inference import Comparison, FitResult
from ....inference.posterior import arviz_compat as az
from ....models.files import fingerprint, write_whole
from ...coverage import Coverage, forecast_coverage
from ...labs import Binned
from ...skill import Skill
from ..structures import read_links
from . import sections
from .input_section import input_section
from .lights import data_light, fit_light, forecast_light, links_light, posterior_light
from .network_svg import network
from .parts import Section, lines


class Results(NamedTuple):
    """What a report is made from; the folder has what `fit` saved of its choice and its skill."""

    folder: Path
    binned: Binned  # standardised
    fit: FitResult
    posterior: Any
    comparison: Comparison
    title: str
    seed: int = 0
    truth: np.ndarray | None = None  # A (l, l) in the units of the fit, where it is known
    extra: Sequence[Section] = ()  # of a demo; they come first
    notes: Sequence[str] = ()  # below what was asked


def write_report(results: Results) -> Path:
    """Write report.html, one file that needs no network, and its figures as PNG files; return its path."""
    environment = Environment(
        loader=PackageLoader("sparse_lds.experiments.app.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(context(results))
    return write_whole(results.folder / "report.html", page)


def context(results: Results) -> dict[str, Any]:
    """Return what the template is filled with."""
    binned, fit, comparison = results.binned, results.fit, results.comparison
    skill = saved_skill(results.folder)
    coverage = forecast_coverage(jax.random.key(results.seed), results.posterior, binned.cohort)
    links = read_links(results.folder)
    names = [str(x) for x in comparison.table.index.get_level_values("state").unique()]
    found = [
        *results.extra,
        sections.data_section(binned, results.folder),
        sections.choice_section(results.folder, fit),
        sections.fit_section(fit, binned, names),
        sections.links_section(links),
        input_section(
            fit, binned, names, results.folder, comparison.inputs, results.posterior, results.seed
        ),
        sections.skill_section(skill),
        sections.posterior_section(comparison, fit, results.posterior, results.folder, results.truth),
        sections.forecast_section(binned, results.posterior, coverage, results.folder, results.seed),
        sections.identified_section(fit, binned.cohort.intercept),
        sections.entries_section(comparison),
        _reproduce(results),
    ]  # fmt: skip
    return {
        "title": results.title,
        "asked": asked(binned, fit, names),
        "notes": list(results.notes),
        "lights": [
            data_light(binned),
            fit_light(fit),
            posterior_light(results.posterior),
            *([] if links is None else [links_light(links)]),
            forecast_light(skill, coverage),
        ],
        "numbers": numbers(comparison, results.posterior, skill, coverage, named(binned, names)),
        "network": network(comparison, results.truth),
        "judged": _judged(comparison),
        "zero": fit._zero,
        "definition": comparison.definition,
        "conditional": comparison.conditional,
        "meaning": "" if named(binned, names) else _NO_MEANING,
        "sections": [section for section in found if section is not None],
        "version": version("sparse-lds"),
    }


_NO_MEANING = (
    "These states are hidden: they are numbered in the basis of this fit, and only what no basis changes, such as "
    "their number and eigenvalues, is the data's (see What is identified)."
)


def named(binned: Binned, names: list[str]) -> bool:
    """Tell whether the states are the tests."""
    return names == [str(name) for name in binned.cohort.channels]


def asked(binned: Binned, fit: FitResult, names: list[str]) -> str:
    """Return the question that was asked."""
    step = f" from one step to the next ({binned.step})" if binned.step else ""
    if named(binned, names):
        return f"Which of {len(names)} tests speaks to which{step}, and do the data support it?"
    tests = ", ".join(map(str, binned.cohort.channels))
    return f"Which of {fit.n_states} hidden states move {tests}{step}, and how many are used?"


def numbers(
    comparison: Comparison, posterior: Any, skill: Skill | None, coverage: Coverage, links: bool
) -> list[tuple[str, str]]:
    """Return the three numbers that matter, each with its words."""
    t: Any = comparison.table
    if links:
        other = t[t.index.get_level_values(0) != t.index.get_level_values(1)]
        told = other["verdict"].isin(["supported", "contradicted"])
        words = ", ".join(f"{n} {word}" for word, n in other["verdict"].value_counts().items())
        first = (
            f"{told.sum()} of {len(other)}",
            f"links between tests are decided by the data: {words}",
        )
    else:
        active = az.group(posterior, "posterior")["active_states"].values
        low, high = int(active.min()), int(active.max())
        span = f"{low}" if low == high else f"{low} to {high}"
        first = (
            span,
            f"of {int(np.sqrt(len(t)))} hidden states are used, by the eigenvalues of all draws",
        )
    second = "–", "no patient was held out: forecasts are not compared with baselines"
    if skill is not None:
        p = float(skill.table.loc[skill.best, "p"])  # type: ignore[arg-type]
        sure = "" if p < 0.05 else ", which may be chance"
        gain = "less" if skill.score > 0 else "more"
        second = (
            f"{abs(skill.score):.1%}",
            f"{gain} held-out error than {skill.best}, the best baseline (p = {p:.2g}{sure})",
        )
    share, _ = coverage.within(np.array([0.9]))
    third = f"{float(share[0]):.0%}", "of later values fell inside 90% intervals of their forecasts"
    return [first, second, third]


def saved_skill(folder: Path) -> Skill | None:
    """Return the skill that `fit` saved; None where no patient was held out."""
    file = folder / "skill.csv"
    if not file.exists():
        return None
    return Skill(pd.read_csv(file, index_col="forecaster"), pd.DataFrame())


def _judged(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the counts of verdicts, for a table that leads with the words."""
    frame: Any = comparison.verdicts
    return [
        {"word": str(word), "zeros": int(row["MAP zeros"]), "others": int(row["MAP nonzeros"])}
        for word, row in frame.iterrows()
        if row.sum()
    ]


def _reproduce(results: Results) -> Section:
    """Return the commands, the versions, the seed and the hashes with which these results come again."""
    folder, said = results.folder, []
    commands = folder / "commands.txt"
    if commands.exists():
        said += ["commands:", *(f"  {line}" for line in commands.read_text().splitlines())]
    source = folder / "source.json"
    if source.exists():
        options = json.loads(source.read_text())["options"]
        given = {k: v for k, v in options.items() if v not in ("", None)}
        said.append("how the data were read: " + ", ".join(f"{k} {v}" for k, v in given.items()))
    names = ("sparse-lds", "jax", "numpyro", "arviz", "numpy")
    said += [
        f"seed of the report: {results.seed}",
        "versions: " + ", ".join(f"{name} {version(name)}" for name in names)
        + f", Python {platform.python_version()}",
        f"hash of the data: {fingerprint(results.binned.cohort)}",
        f"hash of the fit: {fingerprint(results.fit.params)}",
        f"written: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    ]  # fmt: skip
    words = "command, versions, seed, hashes"
    return Section("How to reproduce it", words, [lines("\n".join(said))], "reproduce")
