"""The executed notebooks as pages of the site, and a gallery of them: text, code, and what it gave, as committed."""

import base64
import re
from pathlib import Path

import nbformat
from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
# the picture that stands for a notebook, by its place among the notebook's pictures; else the first
_THUMBNAIL = {
    "1_lds": 1,
    "2_sparse_map_em": 2,
    "3_map_against_posterior": 2,
    "5_the_papers_experiment": 1,
}

_GALLERY = """# Notebooks

Executed, and shown here as they are committed; CI executes them all again and compares. Each begins with what you will
learn and ends with exercises. To open one, `pip install jupyterlab`, then `jupyter lab notebooks` in a clone.

<div class="gallery" markdown>
"""


def on_files(files: Files, config) -> Files:
    """Add a page, its pictures and the notebook itself for each notebook, and the gallery."""
    cards = [_GALLERY]
    for source in sorted(FOLDER.glob("[0-9]_*.ipynb")):
        notebook, name = nbformat.read(source, 4), source.stem
        text, pictures = page(notebook, name)
        files.append(File.generated(config, f"notebooks/{name}.md", content=text))
        files.append(File.generated(config, f"notebooks/{name}.ipynb", abs_src_path=str(source)))
        for file, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{file}", content=content))
        cards.append(card(notebook, name, list(pictures)[_THUMBNAIL.get(name, 0)]))
    content = "\n".join([*cards, "</div>\n"])
    files.append(File.generated(config, "notebooks/index.md", content=content))
    return files


def card(notebook: nbformat.NotebookNode, name: str, picture: str) -> str:
    """Return the card of a notebook: a picture, its title, and what one learns."""
    title, _, rest = notebook.cells[0].source.partition("\n")
    title = title.lstrip("# ")
    learn = rest.strip().split("\n\n")[0].replace("**You will learn** ", "")
    learn = learn[0].upper() + learn[1:]
    return (
        f'<div class="card" markdown>\n[![]({picture})]({name}.md){{ tabindex="-1" aria-hidden="true" }}\n\n'
        f"**[{title}]({name}.md)**\n\n{learn}\n</div>\n"
    )


def page(notebook: nbformat.NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts, heading = [], ""
    for k, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            heading = ([heading, *re.findall(r"^#+ (.*)", cell.source, re.M)])[-1]
            parts.append(cell.source)
            if k == 0:
                parts.append(f"[Download this notebook]({name}.ipynb)" + "{ download }")
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}_{len(pictures)}.png"
                pictures[file] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure: {heading}]({file})")
            elif "text/html" in data:
                table = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
                table = re.sub(r"\n\s*", "", table)
                parts.append(f'<div class="output">{table}</div>')
            else:
                text = output.get("text", data.get("text/plain", "")).rstrip("\n")
                parts.append(f"```{{ .text .output }}\n{text}\n```")
    return "\n\n".join(parts), pictures
