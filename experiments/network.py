"""The links between states as a graph: for networkx, GraphML and CSV, and as places on a page.

A link goes from the state that acts (a column of A) to the one that follows (a row).
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd

from ..inference import Comparison
from ..models.files import write_whole
from .outputs import write_csv

FIELDS = {  # column of the comparison: attribute of a link
    "map": "map",
    "center": "center",
    "mean": "mean",
    "hdi_low": "low",
    "hdi_high": "high",
    "p_zero": "p_zero",
    "bayes_factor_zero": "bayes_factor_zero",
    "verdict": "verdict",
}


class Link(NamedTuple):
    """A link that is worth a line: one that the MAP has, or one that it leaves out against the data."""

    source: str
    target: str
    value: float  # the MAP's, or the posterior's mean where the MAP is exactly zero
    left_out: bool  # by the MAP
    verdict: str  # on what the MAP says
    row: dict[str, Any]  # of the comparison's table

    @property
    def words(self) -> str:
        """The link and what is known of it, the verdict first."""
        r = self.row
        says = "MAP exactly 0" if self.left_out else f"MAP {r['map']:+.3f}"
        known = f", P(zero) {r['p_zero']:.2g}, Bayes factor of zero {r['bayes_factor_zero']:.2g}"
        return (
            f"{self.source} → {self.target}: {self.verdict}. {says}, posterior {r['mean']:+.3f} "
            f"[{r['hdi_low']:+.3f}, {r['hdi_high']:+.3f}]{known if np.isfinite(r['p_zero']) else ''}"
        )


def links(comparison: Comparison) -> list[Link]:
    """Return the links between different states that are worth a line, the weakest first: they are drawn below."""
    found = []
    for (target, source), r in _rows(comparison):
        left_out = bool(r["map"] == 0)
        if target == source or (left_out and r["verdict"] != "contradicted"):
            continue
        value = float(r["mean"] if left_out else r["map"])
        found.append(Link(str(source), str(target), value, left_out, str(r["verdict"]), r))
    return sorted(found, key=lambda link: abs(link.value))


def to_networkx(
    comparison: Comparison, *, stability: Any = None, every: bool = False
) -> nx.DiGraph:
    """Return the graph of A: a node for each state, an edge for each entry that is not zero by the MAP.

    Entries that the MAP sets to zero against the data (`contradicted`) are edges too; with `every` all entries are.
    An edge has map, center (what the prior pulls the entry to: "zero" is this value), mean, low and high (of the
    posterior's interval), p_zero, bayes_factor_zero, verdict, map_zero, and stability, (l, l) from
    `stability_selection`, where it is given. An entry A_ii is a loop. What is not known is
    left out.
    """
    graph = nx.DiGraph()
    names = [str(name) for name in comparison.table.index.get_level_values("state").unique()]
    graph.add_nodes_from(names)
    if stability is not None and np.shape(stability) != (len(names),) * 2:
        raise ValueError(f"stability has shape {np.shape(stability)}; A is {(len(names),) * 2}")
    shares = [None] * len(names) ** 2 if stability is None else np.ravel(stability)
    for ((target, source), r), share in zip(_rows(comparison), shares, strict=True):
        if not every and r["map"] == 0 and r["verdict"] != "contradicted":
            continue
        known = {new: _plain(r[old]) for old, new in FIELDS.items()} | {"stability": _plain(share)}
        known = {name: x for name, x in known.items() if x is not None}
        graph.add_edge(str(source), str(target), map_zero=bool(r["map"] == 0), **known)
    return graph


def write_graph(graph: nx.DiGraph, path: str | os.PathLike) -> Path:
    """Write a graph of `to_networkx` to a file that ends in .graphml (Gephi, Cytoscape) or .csv (a row an edge)."""
    path = Path(path)
    if path.suffix == ".graphml":
        return write_whole(path, "\n".join(nx.generate_graphml(graph)) + "\n")
    if path.suffix == ".csv":
        rows = [{"source": a, "target": b, **known} for a, b, known in graph.edges(data=True)]
        columns = ["source", "target", "map_zero", *FIELDS.values()]
        columns += ["stability"] if any("stability" in row for row in rows) else []
        return write_csv(path, pd.DataFrame(rows, columns=columns), index=False)
    raise ValueError(f"the file is {path.name!r}; its name must end in .graphml or .csv")


def circle(names: list[str]) -> dict[str, tuple[float, float]]:
    """Return places on the unit circle, the first on top, the others clockwise."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / max(len(names), 1)
    return {n: (float(np.cos(a)), float(np.sin(a))) for n, a in zip(names, angles, strict=True)}


def _rows(comparison: Comparison) -> list[tuple[Any, dict[str, Any]]]:
    """Return the rows of the comparison, each with its (state, from_state)."""
    table: Any = comparison.table
    return list(zip(table.index, table.to_dict("records"), strict=True))


def _plain(x: Any) -> Any:
    """Return a value as Python's own, None where it is not known."""
    if x is None or isinstance(x, str):
        return x
    return None if np.isnan(x) else float(x)
