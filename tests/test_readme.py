"""The README's Python example runs as printed."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.interfaces
def test_examples_run_as_printed(capsys):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert examples
    for example in examples:
        exec(compile(example, str(README), "exec"), {})
    assert "Cohort(3 sequences, 3 channels" in capsys.readouterr().out
