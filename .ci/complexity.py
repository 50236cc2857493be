"""Report the longest files and functions of the packages, and the most complex functions; fail nothing.

python .ci/complexity.py
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = ("models", "inference", "experiments")
LINES = 60  # longer functions are listed; the docstring counts
COMPLEXITY = 15  # functions of a greater cyclomatic complexity are listed
SHOWN = 10


def functions(file: Path):
    """Yield lines, place and name of each function of a file, those inside classes and functions too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.end_lineno - node.lineno + 1, f"{file}:{node.lineno}", node.name


def complex_functions() -> list[tuple[int, str, str]]:
    """Ask ruff for the functions above COMPLEXITY: their complexity, place and name."""
    options = "--select C901 --exit-zero --no-cache --output-format concise --config".split()
    command = [sys.executable, "-m", "ruff", "check", *FOLDERS, *options]
    command.append(f"lint.mccabe.max-complexity={COMPLEXITY}")
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(.+?:\d+):\d+: C901 `(\w+)` is too complex \((\d+) >", out, re.M)
    return sorted(((int(n), place, name) for place, name, n in found), reverse=True)


def show(title: str, rows: list[tuple]) -> None:
    """Print the first rows, each a number and what it counts."""
    print(f"\n{title}" if rows else f"\n{title}: none")
    for number, *what in rows[:SHOWN]:
        print(f"  {number:5d}  {'  '.join(what)}")


def main() -> None:
    files = sorted(file for folder in FOLDERS for file in Path(folder).rglob("*.py"))
    lengths = sorted(((len(f.read_text().splitlines()), str(f)) for f in files), reverse=True)
    every = sorted((row for file in files for row in functions(file)), reverse=True)
    long, tangled = [row for row in every if row[0] > LINES], complex_functions()
    print(f"{len(files)} files of {sum(n for n, _ in lengths)} lines, {len(every)} functions")
    print(f"{len(long)} of them have more than {LINES} lines")
    print(f"{len(tangled)} of them have a cyclomatic complexity above {COMPLEXITY}")
    show("Longest files, in lines", lengths)
    show("Longest functions, in lines", every)
    show(f"Functions of a complexity above {COMPLEXITY}", tangled)


if __name__ == "__main__":
    main()
