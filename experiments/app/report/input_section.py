"""The section of a report on inputs: B as a table and a heat map, and one patient under two scenarios."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....inference import FitResult
from ....models.inputs import INTERCEPT
from ...figures import plot_inputs, plot_what_if
from ...labs import Binned
from ...labs.input_grid import known_ahead
from .parts import Section, figure, table, text

_JUDGED = ["map", "verdict", "p_zero", "bayes_factor_zero", "mean", "hdi_low", "hdi_high"]
HORIZON = 6  # steps of the scenarios
_EFFECT = (
    "A difference may be read as an effect if the input was set by chance, or by nothing but what the model sees. "
    "Where it was given because a patient looked ill, it mixes the effect with the reason."
)


def input_section(
    fit: FitResult,
    binned: Binned,
    names: list[str],
    folder: Path,
    judged: pd.DataFrame | None = None,
    posterior: Any | None = None,
    seed: int = 0,
) -> Section | None:
    """Return which input moves which state, what the data say of it (`judged`), and what if; None without inputs.

    The numbers of B stand in one table: that of the verdicts, or one of B alone without them.
    """
    cohort = binned.cohort
    acting = [name for name in cohort.inputs if name != INTERCEPT]
    if not acting:
        return None
    columns = [cohort.inputs.index(name) for name in acting]
    B = pd.DataFrame(np.asarray(fit.moving.B)[:, columns], names, acting)
    zeros = int((B.to_numpy() == 0).sum())
    words = f"{zeros} of {B.size} effects of {', '.join(acting)} on states are exactly zero."
    said = table(B.rename_axis("to ↓ input →"), "B of the MAP, in sd of the tests; zeros are exact")
    if judged is not None:
        shown: Any = judged[judged.index.get_level_values("input") != INTERCEPT]
        counts = shown["verdict"].value_counts()
        words += " Of all the data say: " + ", ".join(f"{n} {v}" for v, n in counts.items()) + "."
        title = "B of the MAP, and what the data added; the words are defined as for A"
        said = table(shown[_JUDGED], title)
    drawn = plot_inputs(fit, cohort.inputs, names)
    first, low, high = _most_varied(binned, acting)
    u = [known_ahead(cohort, HORIZON, cohort.inputs, {first: x}) for x in (low, high)]
    n = int(np.argmax(np.asarray(cohort.lengths)))
    titles = [f"{first} = {x:g}" for x in (low, high)]
    two = {title: x[n] for title, x in zip(titles, u, strict=True) if x is not None}
    alt = f"Forecasts of {cohort.ids[n]} with {' and with '.join(titles)}, side by side"
    whose = "given the fit" if posterior is None else "of the posterior"
    parts = [
        said,
        figure(drawn, "B", "The numbers are in the table above", folder / "inputs.png"),
        figure(
            plot_what_if(fit, cohort, n, two, HORIZON, posterior, seed),
            f"What if? Other inputs stay as they were last; medians and 90% intervals {whose}",
            alt,
            folder / "what_if.png",
        ),
        text(_EFFECT),
    ]
    return Section("Inputs: which moves what", words, parts, "inputs")


def _most_varied(binned: Binned, acting: list[str]) -> tuple[str, float, float]:
    """Return the first input that changes within patients, or the first of all, with its 5 % and 95 % quantiles."""
    cohort = binned.cohort
    changing = [name for name in acting if name not in binned.constants]
    name = (changing or acting)[0]
    inside = np.arange(cohort.n_steps) < np.asarray(cohort.lengths)[:, None]
    x = np.asarray(cohort.u)[..., cohort.inputs.index(name)][inside]
    return name, float(np.quantile(x, 0.05)), float(np.quantile(x, 0.95))
