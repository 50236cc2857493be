"""The links of A as shapes of an SVG, which the template draws: one can point at each."""

from typing import Any, NamedTuple

import numpy as np

from ....inference import Comparison
from ...figures.style import VERDICTS
from ...network import circle, links

_MIDDLE, _RADIUS, _NODE = 320.0, 235.0, 40.0
_DASHES = {"supported": "", "contradicted": "12 4 2 4", "undecided": "9 6", "prior only": "2 5"}
_LABELS = 24  # links with a number at them, the largest


class Node(NamedTuple):
    """A state as a circle."""

    name: str
    x: float
    y: float
    own: str  # A_ii
    words: str


class Edge(NamedTuple):
    """A link as a curve with an arrow."""

    path: str
    width: float
    dash: str
    sign: str  # raises or lowers
    label: str
    x: float  # of the label
    y: float
    words: str
    left_out: bool


def network(comparison: Comparison, truth: np.ndarray | None = None) -> dict[str, Any]:
    """Return nodes, their radius, edges and verdicts; with `truth` the words of a link say what it is in truth."""
    names = [str(x) for x in comparison.table.index.get_level_values("state").unique()]
    radius = round(min(_NODE, 0.85 * np.pi * _RADIUS / len(names)), 1)  # circles do not touch
    places = {n: _MIDDLE + _RADIUS * np.array([x, -y]) for n, (x, y) in circle(names).items()}
    A = comparison.table["map"].to_numpy().reshape(len(names), -1)
    nodes = []
    for k, name in enumerate(names):
        x, y = (round(float(v), 1) for v in places[name])
        words = f"{name}: from itself {A[k, k]:.3f} (MAP)"
        nodes.append(Node(name, x, y, f"{A[k, k]:.2f}", words))
    found = links(comparison)
    largest = max((abs(link.value) for link in found), default=1.0)
    edges, taken = [], list(places.values())
    for k, link in enumerate(found):
        start, end = places[link.source], places[link.target]
        way = (end - start) / np.linalg.norm(end - start)
        aside = np.array([-way[1], way[0]])
        bend = (start + end) / 2 + 0.16 * np.linalg.norm(end - start) * aside
        begin = start + radius * _unit(bend - start)
        tip = end + (radius + 5) * _unit(bend - end)
        label = _free_place(begin, bend, tip, taken)
        taken.append(label)
        words = link.words
        if truth is not None:
            value = float(truth[names.index(link.target), names.index(link.source)])
            words += f"; in truth {value:+.3f}" if value else "; in truth 0"
        mark = VERDICTS[link.verdict][1]
        edges.append(
            Edge(
                f"M{begin[0]:.1f} {begin[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {tip[0]:.1f} {tip[1]:.1f}",
                round(1.2 + 6 * abs(link.value) / largest, 1),
                _DASHES.get(link.verdict, ""),
                "raises" if link.value > 0 else "lowers",
                f"{link.value:+.2g} {mark}" if k >= len(found) - _LABELS else mark,
                round(float(label[0]), 1),
                round(float(label[1]), 1),
                words,
                link.left_out,
            )
        )
    kinds = [name for name in VERDICTS if any(link.verdict == name for link in found)]
    key = [(name, VERDICTS[name][1], _DASHES.get(name, "")) for name in kinds]
    return {"nodes": nodes, "radius": radius, "edges": edges, "key": key}


def _free_place(begin, bend, tip, taken: list[np.ndarray]) -> np.ndarray:
    """Return the place on a curve (1 - t)² begin + 2t(1 - t) bend + t² tip that is farthest from those taken."""
    t = np.array([0.5, 0.4, 0.6, 0.3, 0.7])[:, None]
    on = (1 - t) ** 2 * begin + 2 * t * (1 - t) * bend + t**2 * tip
    gaps = np.linalg.norm((on[:, None] - np.stack(taken)) / (1.0, 0.5), axis=-1).min(1)
    return on[
        int(np.argmax(np.minimum(gaps, 90)))
    ]  # far enough is enough, and the middle comes first


def _unit(v: np.ndarray) -> np.ndarray:
    """Return a vector of length one in the same direction."""
    return v / max(float(np.linalg.norm(v)), 1e-9)
