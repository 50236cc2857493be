"""The comparison of MAP and posterior as it is handed back, and in words."""

from typing import Any, NamedTuple

import pandas as pd

from ..posterior.diagnostics import CONDITIONAL
from .evidence import VERDICTS, definition

_SHOWN = ["map", "mean", "sd", "hdi_low", "hdi_high", "bayes_factor_zero", "contraction"]


class Comparison(NamedTuple):
    """The comparison of MAP and posterior: `print` shows a summary, `table` has everything."""

    table: pd.DataFrame  # a row for each entry of A
    confusion: pd.DataFrame  # counts, a row for each rule
    scores: pd.DataFrame | None  # precision, recall, F1 of the nonzeros, where the truth is known
    epsilon: float
    prob: float
    odds: float = 3.0  # Bayes factor from which on an entry is supported
    contraction: float = 0.5  # below this the prior speaks, not the data
    prior: str = ""  # of A, with which the posterior was sampled
    conditional: bool = False  # whether parameters that the fit learned were held
    inputs: pd.DataFrame | None = None  # a row for each entry of B, where there are inputs

    @property
    def verdicts(self) -> pd.DataFrame:
        """The counts of verdicts, a row for each, for the zeros and the nonzeros of the MAP."""
        t: Any = self.table
        zero = t["map_zero"].to_numpy(bool)
        parts = {"MAP zeros": t["verdict"][zero], "MAP nonzeros": t["verdict"][~zero]}
        return pd.DataFrame(
            {name: [int((x == v).sum()) for v in VERDICTS] for name, x in parts.items()},
            index=pd.Index(VERDICTS),
        )

    @property
    def definition(self) -> str:
        """What the verdicts mean, with the thresholds that were used."""
        return definition(self.odds, self.contraction)

    def __str__(self) -> str:
        t: Any = self.table
        lines = [
            f"The MAP has {int(t['map_zero'].sum())} exact zeros among the {len(t)} entries of A. Of these and of the "
            "others the data say:",
            "",
            self.verdicts.to_string(),
            "",
            self.definition,
            f"The prior of A was {self.prior}." if self.prior else "The prior of A is not known.",
        ]
        if self.conditional:
            lines.append(CONDITIONAL)
        lines += ["", *self._contradicted(), *self._inputs_in_words(), "", *self.rules_in_words()]
        if self.scores is not None:
            lines += ["", "Against the truth, finding nonzero entries:"]
            lines.append(self.scores.to_string(float_format=lambda x: f"{x:.2f}"))
        return "\n".join(lines)

    def _contradicted(self) -> list[str]:
        """Return the entries whose MAP the data contradict, as lines."""
        t: Any = self.table
        apart = t[t["verdict"] == "contradicted"]
        if not len(apart):
            return ["The data contradict no entry of the MAP."] if self._judged else []
        return [
            f"Entries of the MAP that the data contradict ({len(apart)}):",
            apart[_SHOWN].to_string(float_format=lambda x: f"{x:.3g}"),
        ]

    def _inputs_in_words(self) -> list[str]:
        """Return what the data say of each entry of B, as lines."""
        if self.inputs is None:
            return []
        shown: Any = self.inputs[["verdict", *_SHOWN]]
        return ["", "Of the inputs:", shown.to_string(float_format=lambda x: f"{x:.3g}")]

    def rules_in_words(self) -> list[str]:
        """Return what the rules say, as lines."""
        t: Any = self.table
        lines = [
            f"By rules that read the posterior alone, with {self.prob:.0%} intervals and ε = {self.epsilon:g}:",
            self.confusion.to_string(float_format=lambda x: f"{x:.2f}"),
        ]
        apart = [f"({i}, {j})" for i, j in t.index[t["agreement"] < 0.5]]
        if apart:
            return [*lines, f"Most rules contradict the MAP in {', '.join(apart)}."]
        lines.append("There is no entry where most rules contradict the MAP.")
        kappa: Any = self.confusion["kappa"]
        odd = kappa.index[kappa < 0.4]  # rules that alone contradict the MAP
        if len(odd) and len(t) > 4:
            lines.append(f"By itself {', '.join(odd)} sees it otherwise: see the table.")
        return lines

    @property
    def _judged(self) -> bool:
        """Whether any entry could be judged."""
        return bool((self.table["verdict"] != "not judged").any())
