"""Examples in docstrings run, and what the README names is there."""

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


def test_files_and_tests_that_the_readme_names_are_there():
    text = (ROOT / "README.md").read_text()
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
    text = (ROOT / "README.md").read_text()
    table = text[text.index("## The paper, line by line") :].split("\n## ")[0]
    names = re.findall(r"`((?:models|inference|experiments)(?:\.\w+)+)`", table)
    assert len(names) > 15
    for name in names:
        module, attribute = f"sparse_lds.{name}".rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name
