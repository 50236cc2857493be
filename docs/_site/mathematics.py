"""Formulas as MathML, which browsers draw by themselves: no script, and nothing to fetch."""

import html
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])</\1>', re.S
)


def on_page_content(content: str, page, config, files) -> str:
    """Return a page with each formula, which `arithmatex` marked, as MathML."""
    return _FORMULA.sub(_as_mathml, content)


def _as_mathml(match: re.Match) -> str:
    block = match["block"] is not None
    latex = html.unescape(match["block"] if block else match["inline"]).strip()
    found = convert(
        latex.replace(r"\lVert", r"\Vert").replace(r"\rVert", r"\Vert"),
        display="block" if block else "inline",
    )
    if "\\" in found:
        raise ValueError(f"a formula is not understood: {latex}")
    return f'<div class="formula">{found}</div>' if block else found
