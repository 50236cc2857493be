"""The README's Python examples run as printed."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.interfaces
def test_examples_run_as_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(examples) == 2 and len([x for x in examples[0].split("\n") if x]) <= 15
    for example in examples:
        exec(compile(example, str(README), "exec"), {})
    out = capsys.readouterr().out
    assert (
        "Nothing speaks against" in out
        and "The MAP has" in out
        and "have at least 10 panels" in out
    )
