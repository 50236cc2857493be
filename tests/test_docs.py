"""Examples in docstrings run, and what README and pages name is there."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from sparse_lds import experiments, inference, models

ROOT = Path(__file__).parent.parent
MODULES = [
    found.name
    for package in (models, inference, experiments)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.interfaces
def test_examples_in_docstrings():
    results = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert sum(result.attempted for result in results.values()) >= 9
    assert not {name: result for name, result in results.items() if result.failed}


def test_every_public_name_has_a_docstring():
    for package in (models, inference):
        for name in package.__all__:
            assert getattr(package, name).__doc__, name


def test_files_that_the_pages_name_are_there():
    """In a table, `name.py` is below the folder that heads it."""
    text = (ROOT / "docs/architecture.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    for file in re.findall(r"`((?:models|inference|experiments|tests|docs)/[\w/]+\.\w+)", text):
        assert (ROOT / file).exists(), file
    modules = text[text.index("## Every module in a line") : text.index("## To add")]
    for folder, table in re.findall(r"\| `(\w+)/` \| \|\n(.*?)\n\n", modules, re.S):
        named = {Path(name).name for name in re.findall(r"`([\w/]+\.py)`", table)}
        there = {p.name for p in (ROOT / folder).rglob("*.py")} - {"__init__.py"}
        whole = re.findall(r"`([\w/]+)/`", table)  # folders that have one line
        inside = {p.name for w in whole for p in (ROOT / folder / w).rglob("*.py")}
        assert named <= there, (folder, named - there)
        assert there - inside <= named, (folder, there - inside - named)


def test_code_on_the_page_of_priors_runs():
    text = (ROOT / "docs/architecture.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict = {"__name__": "docs"}
    for example in examples:
        exec(compile(example, "docs/architecture.md", "exec"), names)
    assert float(names["Ridge"](2.0).value([[1.0, 2.0], [0.0, 1.0]])) == 6.0


def pages():
    """The README and all pages, by their paths."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_links_between_pages_lead_somewhere():
    for page in pages():
        found = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        assert len(found) > 5 or page.name != "README.md"
        for link in found:
            assert (page.parent / link).exists(), (page.name, link)


def test_files_and_tests_that_the_pages_of_the_paper_name_are_there():
    text = "".join(page.read_text() for page in pages())
    files = re.findall(
        r"`((?:models|inference|experiments|tests|benchmarks|notebooks)/[\w/]+\.\w+)", text
    )
    assert len(files) > 18
    for file in files:
        assert (ROOT / file).exists(), file
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / file).read_text(), test


def test_functions_of_the_paper_map_are_there():
    """`module.function` in the table of the paper."""
    text = (ROOT / "docs/paper.md").read_text()
    table = text[text.index("## The paper, line by line") :].split("\n## ")[0]
    names = re.findall(r"`((?:models|inference|experiments)(?:\.\w+)+)`", table)
    assert len(names) > 15
    for name in names:
        module, attribute = f"sparse_lds.{name}".rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name


def test_imports_that_version_0_1_printed_go_on_working():
    """In README and notebooks of that version, and moved since."""
    from sparse_lds.experiments.jobs import levels_of
    from sparse_lds.inference.identifiability import align

    assert levels_of(None)["constraints"] == inference.Constraints.levels() and callable(align)
