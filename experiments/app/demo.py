"""The demo, on synthetic data whose truth is known: the paper's question first, then the one that people have.

How many states do the data ask for? The error of OLDS rises with states that are not needed, that of SLDS hardly does.
Which test speaks to which? A MAP with a strong β is a sparse picture; the posterior, which does not take β over, says
of each of its zeros whether the data support it, and the truth says whether that is right.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...inference import Comparison, diagnose
from ..grid import Plan
from ..labs import bin_labs, labs_from_frame
from ..outputs import write_csv
from ..panel import LOGGED, synthetic_panel, truth_for
from ..synthetic import synthetic_labs
from ..table1 import Table1, run_table1
from .application import record
from .fitting import Model, Say, fit_job
from .jobs import compare_job, forecast_job, posterior_job
from .options import DataOptions
from .report import Section
from .report.parts import figure, table, text
from .workspace import load_cohort, save_source

BETA = (
    500.0  # far above what held-out patients would choose: a picture that is sparser than the truth
)
_SYNTHETIC = "All data are synthetic, and the truth is known: no patient is in them."


def run_demo(
    folder: Path, *, draws: int, warmup: int, chains: int, seed: int, say: Say, progress: bool
) -> None:
    """Run both parts into one folder, where report.html is the file to look at."""
    say(_SYNTHETIC)
    states = _how_many_states(folder, seed, say, progress)
    say("Which test speaks to which? Six tests of a ward, each morning, with links that are known")
    panel = synthetic_panel()
    data = folder / "demo_panel.csv"
    write_csv(data, panel.frame, index=False)
    options = DataOptions(step="1d", log=",".join(LOGGED))
    binned = load_cohort(data, options)
    raw = binned.cohort
    binned = binned._replace(cohort=raw.standardize())
    truth = truth_for(binned.cohort)
    model = Model(None, BETA, "off-diagonal", own_levels="no", noise="diagonal")
    fit = fit_job(binned.cohort, folder, model, seed=seed, say=say, progress=progress)
    save_source(folder, data, options, raw)
    record(folder)
    posterior = posterior_job(
        binned.cohort, folder, fit, warmup=warmup, draws=draws, chains=chains, seed=seed, say=say, progress=progress
    )  # fmt: skip
    forecast_job(binned, folder, fit, posterior, 3, prob=0.9, seed=seed, say=say)
    note = (
        f"{_SYNTHETIC} The MAP has β = {BETA:g}, far above what held-out patients would choose, for a picture that is "
        "sparser than the truth; the posterior has β unknown, and can say no."
    )
    comparison = compare_job(
        binned, folder, fit, posterior, epsilon=0.1, seed=seed, say=lambda said: None, title="sparse-lds demo",
        truth=truth, extra=[states],
        notes=lambda comparison: [note, *ending(comparison, truth)],
    )  # fmt: skip
    say("\n".join([diagnose(posterior).text.split("\n")[1], *ending(comparison, truth)]))


def _how_many_states(folder: Path, seed: int, say: Say, progress: bool) -> Section:
    """Return the section on the paper's question, from a small grid of its Table 1 on the built-in cohort."""
    say(
        "How many states? Forecast error of OLDS and SLDS on the built-in cohort of red-cell indices"
    )
    binned = bin_labs(labs_from_frame(synthetic_labs().frame))
    plan = Plan(
        (2, 5, 12), (50,), repetitions=3, n_starts=1, n_betas=4, max_iter=150, tol=1e-3, seed=seed
    )  # fmt: skip
    found = run_table1(binned.cohort, folder / "demo_states", plan, progress=progress)
    frame, words = _in_words(found)
    say(frame.to_string(float_format=lambda x: f"{x:.3f}") + f"\n{words}")
    alt = "Error against the number of states; the numbers are in the table below"
    drawn = found.figure(50)
    parts = [
        text(
            "The paper's experiment on a small grid: 50 patients to train on, the others to test; MCH, MCHC "
            "and MCV are measured, and five states move them in truth. sparse-lds table1 has the whole grid."
        ),
        figure(drawn, "The paper's Figure 1", alt, folder / "demo_states.png"),
        table(frame, "Mean absolute error of forecasts, in standard deviations"),
    ]
    return Section("How many states?", words, parts, "states")


def _in_words(found: Table1) -> tuple[pd.DataFrame, str]:
    """Return errors and used states by number of states, and what they say of the paper's claim."""
    long: Any = found.long()
    parts = {name: long[long["method"] == name].set_index("n_states") for name in ("OLDS", "SLDS")}
    frame: Any = pd.DataFrame({name: part["amae"] for name, part in parts.items()})
    frame["SLDS uses"] = parts["SLDS"]["effective_states"].astype(int)
    frame = frame.rename_axis("states")
    rise = frame.iloc[-1] - frame.min()
    most = int(frame.index[-1])
    words = (
        f"With {most} states the error of OLDS is {rise['OLDS']:.3f} above its least, that of SLDS "
        f"{rise['SLDS']:.3f}: of the {most} it uses {int(frame['SLDS uses'].iloc[-1])}."
    )
    return frame, words


def ending(comparison: Comparison, truth: np.ndarray) -> list[str]:
    """Return what the data say of the MAP's zeros and links, and whether it is true, as lines."""
    t: Any = comparison.table.assign(truth=np.ravel(truth))
    t = t[t.index.get_level_values(0) != t.index.get_level_values(1)]
    zero, says = t["map_zero"].astype(bool), t["verdict"]
    lines = [
        f"The MAP leaves {int(zero.sum())} of {len(t)} links out. Of these zeros the data support "
        f"{int((zero & (says == 'supported')).sum())}, leave {int((zero & (says == 'undecided')).sum())} undecided, "
        f"say nothing on {int((zero & (says == 'prior only')).sum())}, and contradict "
        f"{int((zero & (says == 'contradicted')).sum())}{_named(t[zero & (says == 'contradicted')])}.",
        f"Of its {int((~zero).sum())} links they support {int((~zero & (says == 'supported')).sum())}"
        f"{_named(t[~zero & (says == 'supported')])}.",
    ]
    decided = says.isin(["supported", "contradicted"])
    says_zero = zero == (says == "supported")
    right = decided & (says_zero == (t["truth"] == 0))
    lines.append(
        f"The truth is known: {int(right.sum())} of the {int(decided.sum())} that the data decide are as they say."
    )
    wrong = t[decided & ~right]
    return [*lines, f"Not so{_named(wrong)}."] if len(wrong) else lines


def _named(rows: Any) -> str:
    """Return links in brackets, each with the posterior's mean and the truth."""
    if not len(rows):
        return ""
    links = [
        f"{source} → {target} {row['mean']:+.2f}, in truth {row['truth']:+.2f}"
        for (target, source), row in rows.iterrows()
    ]
    return f" ({'; '.join(links)})"
