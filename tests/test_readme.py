"""The Python examples of the README, and of the page on own data, run as printed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.interfaces
def test_examples_run_as_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = {}
    for name in ("README.md", "docs/your_data.md"):
        (examples[name],) = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)
    assert len([x for x in examples["README.md"].split("\n") if x]) <= 15
    for name, example in examples.items():
        exec(compile(example, name, "exec"), {})
    out = capsys.readouterr().out
    assert (
        "Nothing speaks against" in out
        and "The MAP has" in out
        and "have at least 10 panels" in out
    )
