"""List the benchmarks, or run one of them.

python benchmarks                  # the list
python benchmarks em --quick       # one of them, with its own options
"""

import ast
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
GROUPS = {"speed": "time and memory", "studies": "statistical runs"}


def scripts(group: str) -> dict[str, Path]:
    """Find the scripts of a group: the files that define `main`, by name."""
    files = sorted((HERE / group).glob("*.py"))
    return {file.stem: file for file in files if "\ndef main(" in file.read_text()}


def summary(file: Path) -> str:
    """Read the first line of a script's docstring, without importing the script."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n")[0]


def main() -> None:
    groups = {group: scripts(group) for group in GROUPS}
    every = {name: file for found in groups.values() for name, file in found.items()}
    name, *options = sys.argv[1:] or ["--help"]
    if name in every:  # in place of this process, as if it had been started by its path
        os.execv(sys.executable, [sys.executable, str(every[name]), *options])
    if name not in ("-h", "--help"):
        sys.exit(f"there is no benchmark {name!r}; there are {', '.join(every)}")
    print("python benchmarks NAME [options]; NAME --help shows its options")
    for group, about in GROUPS.items():
        print(f"\n{group}: {about}")
        for stem, file in groups[group].items():
            print(f"  {stem:<{max(map(len, every))}}  {summary(file)}")


if __name__ == "__main__":
    main()
