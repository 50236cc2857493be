"""Executes the notebooks: each N_name.py (cells marked by # %%) becomes N_name.ipynb with its outputs.

python notebooks/build.py                 # all of them, two at a time
python notebooks/build.py 1_lds           # one
python notebooks/build.py --compare       # execute, write nothing, and compare with what is there

A comparison (CI) fails where the source has changed, the text of an output differs, or a number by more than 5% (and
0.02), except in cells with the tag "varies": draws, and fits with many optima, go another way where another processor
rounds otherwise. Of those it asks only that they still have an output.
"""

import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
NAMES = sorted(file.stem for file in HERE.glob("[0-9]_*.py"))
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def executed(name: str) -> nbformat.NotebookNode:
    """The notebook of a source, run from its first cell to its last in a fresh kernel."""
    notebook = jupytext.read(HERE / f"{name}.py")
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
    # a warning names the paths of this machine, and is none of a lesson's business
    for cell in notebook.cells:
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


def problems(now: nbformat.NotebookNode, before: nbformat.NotebookNode) -> list[str]:
    """Where a committed notebook is not what its source gives."""
    if [cell.source for cell in now.cells] != [cell.source for cell in before.cells]:
        return ["its source has changed since it was built"]
    found = []
    for k, (a, b) in enumerate(zip(now.cells, before.cells, strict=True)):
        if bool(text_of(a)) != bool(text_of(b)):
            found.append(f"cell {k} has lost its output, or had none")
        varies = "varies" in a.metadata.get("tags", [])
        if not varies and not alike(text_of(a), text_of(b)):
            found.append(f"cell {k} gives\n{text_of(a)}\nand not\n{text_of(b)}")
    return found


def build(name: str, compare: bool) -> tuple[float, list[str]]:
    start = time.perf_counter()
    notebook, file = executed(name), HERE / f"{name}.ipynb"
    found = []
    if not compare:
        nbformat.write(notebook, file)
    elif not file.exists():
        found = ["it was never built"]
    else:
        found = problems(notebook, nbformat.read(file, 4))
    return time.perf_counter() - start, found


def main() -> None:
    names = [Path(x).stem for x in sys.argv[1:] if not x.startswith("-")] or NAMES
    compare = "--compare" in sys.argv
    failed = False
    if version("jaxlib").startswith("0.10."):  # other versions may not know the flag
        # half of a notebook's time was XLA's compiler; other emitters make kernels as fast in half of it
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    os.environ["TQDM_DISABLE"] = "1"  # a committed notebook has no bars
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, where there are no widgets
    with ThreadPoolExecutor(2) as pool:
        jobs = pool.map(lambda name: build(name, compare), names)
        for name, (seconds, found) in zip(names, jobs, strict=True):
            print(f"{name}: {seconds:.0f} s", *found, sep="\n", flush=True)
            failed = failed or bool(found)
    if failed:
        sys.exit("run `make notebooks` and look at the outputs before committing them")


if __name__ == "__main__":
    main()
