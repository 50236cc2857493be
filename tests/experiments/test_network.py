"""The graph of A says what the table says, and comes back from its files."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from made_posteriors import fit_of, posterior_of

from sparse_lds.experiments.network import links, to_networkx, write_graph
from sparse_lds.inference import compare_map_posterior
from sparse_lds.models import Laplace


def judged(names=("a", "b", "c")):
    """A comparison with a link b → a that the MAP has, and one c → b that it leaves out against the data."""
    A = np.array([[0.5, 0.4, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    means = A + [[0, 0, 0], [0, 0, -0.3], [0, 0, 0]]
    draws = means + 0.02 * np.random.default_rng(0).normal(size=(4, 300, 3, 3))
    fit = fit_of(A)
    return compare_map_posterior(fit, posterior_of(draws, fit, prior=Laplace(2.0)), names=names)


def test_edges_are_what_the_map_has_and_what_it_leaves_out_against_the_data():
    comparison = judged()
    graph = to_networkx(comparison)
    assert set(graph.edges) == {("a", "a"), ("b", "b"), ("c", "c"), ("b", "a"), ("c", "b")}
    assert graph.edges["c", "b"]["map_zero"] and graph.edges["c", "b"]["verdict"] == "contradicted"
    for source, target, known in to_networkx(comparison, every=True).edges(data=True):
        row = comparison.table.loc[(target, source)]
        assert known["map"] == row["map"] and known["verdict"] == row["verdict"]
        assert (known["low"], known["high"]) == (row["hdi_low"], row["hdi_high"])
        assert known["bayes_factor_zero"] == row["bayes_factor_zero"]
    assert to_networkx(comparison, every=True).number_of_edges() == 9


def test_files_give_the_graph_back(tmp_path):
    names = ('<b>&"K"', "CRP, high", "Hämo")
    share = np.arange(9).reshape(3, 3) / 9
    graph = to_networkx(judged(names), stability=share)
    again = nx.read_graphml(write_graph(graph, tmp_path / "a.graphml"))
    assert dict(again.edges) == dict(graph.edges)
    table = pd.read_csv(write_graph(graph, tmp_path / "a.csv"))
    assert set(zip(table["source"], table["target"], strict=True)) == set(graph.edges)
    for row in table.itertuples():
        assert row.stability == share[names.index(row.target), names.index(row.source)]
    with pytest.raises(ValueError, match="'a.dot'; its name must end in"):
        write_graph(graph, tmp_path / "a.dot")
    with pytest.raises(ValueError, match=r"stability has shape \(2, 2\); A is \(3, 3\)"):
        to_networkx(judged(), stability=np.eye(2))


def test_links_lead_with_the_verdict():
    found = {(link.source, link.target): link for link in links(judged())}
    assert set(found) == {("b", "a"), ("c", "b")}
    assert found["b", "a"].words.startswith("b → a: supported. MAP +0.400, posterior +0.4")
    assert found["c", "b"].words.startswith("c → b: contradicted. MAP exactly 0, posterior -0.3")
    assert found["c", "b"].value < -0.25
