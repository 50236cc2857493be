"""Examples in docstrings run, and what README and pages name is there."""

import doctest
import importlib
import importlib.util
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


def pages():
    """The README and all pages, by their paths."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def slugs(page):
    """The anchors of a page: its headings, as forges and the site make them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def test_links_between_pages_lead_somewhere():
    """On a forge, where there is no site: files of the repository, and headings in them."""
    count = 0
    for page in pages():
        for link, _, anchor in re.findall(r"\]\(([^)#:\s]*)(#([\w-]+))?\)", page.read_text()):
            target = (page.parent / link).resolve() if link else page
            count += 1
            assert target.exists(), (page.name, link)
            assert not anchor or anchor in slugs(target), (page.name, link, anchor)
    assert count > 80


def test_the_reference_has_every_public_name_once():
    text = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    found = re.findall(r"^::: ([\w.]+)$", text, re.M)
    assert len(found) == len(set(found))
    for package in (models, inference):
        assert {f"{package.__name__}.{name}" for name in package.__all__} <= set(found)
    figures = importlib.import_module("sparse_lds.experiments.figures")
    plots = {f"{figures.__name__}.{name}" for name in vars(figures) if name.startswith("plot_")}
    assert plots <= set(found)
    for path in found:
        module, name = path.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name).__doc__, path


def test_the_check_of_the_site_finds_what_is_broken(tmp_path):
    spec = importlib.util.spec_from_file_location("check", ROOT / "docs/_site/check.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1><a href="a.html">a</a>')
    good = '<a href="b.html#here">b</a><a href="https://example.org">out</a><a href="#">top</a>'
    (tmp_path / "a.html").write_text(good)
    assert list(check.problems(tmp_path)) == []
    bad = {
        '<a href="c.html">c</a>': "leads nowhere",
        '<img src="c.png">': "leads nowhere",
        '<a href="../b.html">b</a>': "leads nowhere",
        '<a href="b.html#there">b</a>': "no such anchor",
        '<a href="#there">a</a>': "no such anchor",
        '<script src="https://example.org/x.js"></script>': "from the network",
        '<link rel="stylesheet" href="//example.org/x.css">': "from the network",
    }
    for text, said in bad.items():
        (tmp_path / "a.html").write_text(good + text)
        (found,) = check.problems(tmp_path)
        assert said in found


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
