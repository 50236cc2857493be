"""Executes the notebooks: each N_name.py (cells marked by # %%) becomes N_name.ipynb with its outputs.

python notebooks/build.py                 # all of them, two at a time
python notebooks/build.py 1_lds           # one
python notebooks/build.py --compare       # execute, write nothing, and compare with what is there
python notebooks/build.py --quick         # the same with few draws and iterations: does every cell run? (CI)

A comparison fails where the text of an output differs, or a number by more than 5% (and 0.02), except in cells with the
tag "varies": draws, and fits with many optima, go another way where another processor rounds otherwise. --quick compares
sources only, and that every cell which had an output has one.
"""

import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
NAMES = sorted(file.stem for file in HERE.glob("[0-9]_*.py"))
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


# what --quick puts in place of what takes long
QUICK = {
    r"num_samples=\d+": "num_samples=20, num_warmup=20",
    r"max_iter=\d+": "max_iter=8",
    r"n_betas=\d+": "n_betas=2",
    r"states=\(2, 5, 12\)": "states=(2, 3)",
}


def executed(name: str, quick: bool) -> nbformat.NotebookNode:
    """The notebook of a source, run from its first cell to its last in a fresh kernel."""
    source = (HERE / f"{name}.py").read_text()
    for pattern, instead in QUICK.items() if quick else ():
        source = re.sub(pattern, instead, source)
    notebook = jupytext.reads(source, "py:percent")
    for k, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{k}"  # the same at every build
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    NotebookClient(
        notebook,
        timeout=600,
        resources={"metadata": {"path": str(HERE)}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
    ).execute()
    for cell in (
        notebook.cells
    ):  # a warning names the paths of this machine, and is none of a lesson's business
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise RuntimeError(f"{name} writes to stderr: {output.text}")
    return notebook


def text_of(cell: nbformat.NotebookNode) -> str:
    """All that a cell printed; a picture counts as [picture]."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts.append(
            "[picture]" if "image/png" in data else data.get("text/plain", output.get("text", ""))
        )
    return "\n".join(parts)


def alike(now: str, before: str) -> bool:
    if _NUMBER.sub("#", now).split() != _NUMBER.sub("#", before).split():
        return False
    pairs = zip(_NUMBER.findall(now), _NUMBER.findall(before), strict=True)
    return all(abs(float(a) - float(b)) <= 0.02 + 0.05 * abs(float(b)) for a, b in pairs)


def problems(
    name: str, now: nbformat.NotebookNode, before: nbformat.NotebookNode, quick: bool
) -> list[str]:
    """Where a committed notebook is not what its source gives."""
    source = jupytext.read(HERE / f"{name}.py")
    if [cell.source for cell in source.cells] != [cell.source for cell in before.cells]:
        return ["its source has changed since it was built"]
    found = []
    for k, (a, b) in enumerate(zip(now.cells, before.cells, strict=True)):
        if bool(text_of(a)) != bool(text_of(b)):
            found.append(f"cell {k} has lost its output, or had none")
        varies = quick or "varies" in a.metadata.get("tags", [])
        if not varies and not alike(text_of(a), text_of(b)):
            found.append(f"cell {k} gives\n{text_of(a)}\nand not\n{text_of(b)}")
    return found


def build(name: str, mode: str) -> tuple[float, list[str]]:
    start = time.perf_counter()
    notebook, file = executed(name, mode == "--quick"), HERE / f"{name}.ipynb"
    found = []
    if not mode:
        nbformat.write(notebook, file)
    elif not file.exists():
        found = ["it was never built"]
    else:
        found = problems(name, notebook, nbformat.read(file, 4), mode == "--quick")
    return time.perf_counter() - start, found


def main() -> None:
    names = [Path(x).stem for x in sys.argv[1:] if not x.startswith("-")] or NAMES
    mode = next((x for x in sys.argv if x in ("--quick", "--compare")), "")
    failed = False
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, where there are no widgets
    if mode == "--quick":  # most of the time is XLA's compiler: its cheapest setting
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0"
    with ThreadPoolExecutor(2) as pool:
        jobs = pool.map(lambda name: build(name, mode), names)
        for name, (seconds, found) in zip(names, jobs, strict=True):
            print(f"{name}: {seconds:.0f} s", *found, sep="\n", flush=True)
            failed = failed or bool(found)
    if failed:
        sys.exit("run `make notebooks` and look at the outputs before committing them")


if __name__ == "__main__":
    main()
