"""The Python code of the README and of every page of the site runs as printed, block after block.

A page that links to the first example begins where that ends. Most of the time is compiling, which is kept down: pages
share shapes (20 sequences, 30 steps, 2 channels) and a cache. A page that needs other shapes
should have a reason.
"""

import re
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pytest
from jax.experimental.compilation_cache import compilation_cache

ROOT = Path(__file__).parent.parent
FIRST = ROOT / "README.md"
INTERFACES = {"README.md", "docs/numpyro.md", "docs/loo.md", "docs/how_to/trust.md"}
# what the output of a page must say, beside that it runs
SAYS = {
    "README.md": ("Nothing speaks against", "The MAP has 1 exact zeros"),
    "docs/your_data.md": ("at least 10 panels", "Nothing speaks against", "HB"),
    "docs/how_to/graph.md": ("HB -> CREA", "supported"),
    "docs/how_to/choose.md": ("for prediction", "last value"),
    "docs/loo.md": ("pull to persistence", "elpd"),
}


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)


def named(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


PAGES = [FIRST, *(page for page in sorted((ROOT / "docs").rglob("*.md")) if blocks(page))]


@pytest.fixture(scope="module", autouse=True)
def kept_programs(tmp_path_factory):
    """Keep compiled programs in a folder: for a cohort with other labels jit asks for the same program again."""
    wanted = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def after_the_first():
    """A function that returns the names that are there after the first example; it runs once."""
    found: dict = {}

    def names() -> dict:
        if not found:
            found["__name__"] = "docs"
            run(FIRST, found)
        return dict(found)

    return names


def run(page: Path, names: dict) -> None:
    for block in blocks(page):
        exec(compile(block, named(page), "exec"), names)
    plt.close("all")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=named(p), marks=[pytest.mark.interfaces] * (named(p) in INTERFACES))
        for p in PAGES
    ],
)
def test_code_runs_as_printed(page, after_the_first, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(), {"__name__": "docs"}
    if page == FIRST:
        after_the_first()
    elif blocks(page) != blocks(FIRST):
        run(page, after_the_first() if "#the-first-example)" in text else names)
    out = capsys.readouterr().out
    for words in SAYS.get(named(page), ()):
        assert words in out
    if named(page) == "docs/architecture.md":
        assert float(names["Ridge"](2.0).value([[1.0, 2.0], [0.0, 1.0]])) == 6.0


def test_the_first_example_is_short_and_the_same_on_the_site():
    (example,) = blocks(FIRST)
    assert len([line for line in example.split("\n") if line]) <= 15
    assert blocks(ROOT / "docs/how_to/index.md") == [example]


def test_pages_are_found():
    assert len(PAGES) > 15 and {*SAYS, *INTERFACES} <= {named(page) for page in PAGES}
