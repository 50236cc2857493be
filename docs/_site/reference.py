"""The reference: where its reader finds the packages, and names written as code on any page as links to it."""

import re
import tempfile
from pathlib import Path

from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent.parent.parent
_folder = tempfile.TemporaryDirectory()
_places: dict[str, str] = {}  # name -> address of its entry
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.M)
# code that is no link already; headings and links are left as they are
_PACKAGES = r"(?:sparse_lds\.)?(?:models|inference|experiments)\.(?:\w+\.)*"
_CODE = re.compile(
    rf"(<a\b.*?</a>|<h[1-6]\b.*?</h[1-6]>|<pre\b.*?</pre>)|<code>(?:{_PACKAGES})?(\w+)</code>", re.S
)


@event_priority(100)  # before mkdocstrings reads it
def on_config(config) -> None:
    """Show the packages to mkdocstrings under the names by which they are imported; on disk they have no parent."""
    parent = Path(_folder.name)
    (parent / "sparse_lds").mkdir()
    (parent / "sparse_lds/__init__.py").touch()
    for name in ("models", "inference", "experiments"):
        (parent / "sparse_lds" / name).symlink_to(ROOT / name)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(parent)]


def on_files(files: Files, config) -> None:
    """Remember where the reference has which name."""
    for file in files.documentation_pages():
        if file.src_uri.startswith("reference/"):
            for path in _DIRECTIVE.findall(file.content_string):
                _places[path.rsplit(".", 1)[-1]] = f"{file.url}#{path}"


def on_page_content(content: str, page, config, files) -> str:
    """Return a page with names as links."""

    def linked(match: re.Match) -> str:
        place = _places.get(match[2] or "")
        if match[1] or place is None:
            return match[0]
        address = (
            f"#{place.split('#')[1]}"
            if place.split("#")[0] == page.url
            else get_relative_url(place, page.url)
        )
        return f'<a class="name" href="{address}">{match[0]}</a>'

    return _CODE.sub(linked, content)


def on_shutdown() -> None:
    """Remove the folder with the names of the packages."""
    _folder.cleanup()
