"""Check the pages that were built: python docs/_site/check.py site

Every link, picture, script and style leads to a file of the site, every anchor to an element of its page, and nothing
is fetched from elsewhere. Links that a reader may follow out of the site are listed.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, loads, and can be linked at."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep addresses and anchors."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found.get("href", ""))
        elif tag in ("img", "script", "iframe", "source") and "src" in found:
            self.loads.append(found["src"])


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with the pages of a folder, a sentence each."""
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        if file.name == "404.html":  # its addresses are absolute, for a server
            continue
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{file}: loads {address} from the network"
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file.resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site.resolve()) or not target.exists():
                yield f"{file}: {address} leads nowhere"
            elif parts.fragment and target.suffix == ".html":
                there = pages[site / target.relative_to(site.resolve())].anchors
                if unquote(parts.fragment) not in there:
                    yield f"{file}: {address} has no such anchor"


def main() -> None:
    """Print what is wrong, and end with an error if anything is."""
    site = Path(sys.argv[1])
    found = list(problems(site))
    print(*found, sep="\n", end="\n" if found else "")
    count = len(list(site.rglob("*.html")))
    if found or not count:
        sys.exit(f"{len(found)} broken links in {count} pages")
    print(f"{count} pages, no broken link, nothing from the network")


if __name__ == "__main__":
    main()
