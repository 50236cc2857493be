"""Files of the repository outside docs/ as pages and pictures of the site, and links to them that work there.

Pages link as on a forge, by paths in the repository (`../notebooks/1_lds.ipynb`, `../CHANGELOG.md`). The site holds
notebooks and the two pages under other names; a picture is copied.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)")


def on_files(files: Files, config) -> Files:
    """Add the pages at the top of the repository, and every picture that a page shows."""
    for source, name in PAGES.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, name, content=_moved(text, "", "")))
    for page in list(files.documentation_pages()):
        for link in _LINK.findall(page.content_string):
            path = _in_repository(page.src_uri, link[1])
            if path.startswith("../") and path.endswith(".png"):
                uri = path.removeprefix("../")
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Return a page with links to other places of the repository turned to those of the site."""
    uri = page.file.src_uri
    return markdown if uri in PAGES.values() else _moved(markdown, uri, "docs")


def _in_repository(page: str, link: str) -> str:
    """Return where a link of a page leads, as seen from docs/."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _moved(markdown: str, page: str, folder: str) -> str:
    """Return the text of a page, which lies in a folder of the repository, with its links to places of the site."""

    def moved(match: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(folder, posixpath.dirname(page), match[2]))
        return match[1] + posixpath.relpath(_place(path), posixpath.dirname(page) or ".")

    return _LINK.sub(moved, markdown)


def _place(path: str) -> str:
    """Return the page of the site that a path in the repository has become."""
    if path in PAGES:
        return PAGES[path]
    if path == "notebooks/README.md":
        return "notebooks/index.md"
    return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
