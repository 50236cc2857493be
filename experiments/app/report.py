"""The report: one HTML file with its figures inside."""

import base64
import html
import io
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from ...models.files import write_whole

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid #ddd; padding-bottom: .2em; }
pre { background: #f6f6f6; padding: .8em; overflow-x: auto; font-size: 13px; line-height: 1.35; }
img { max-width: 100%; } figure { margin: 1em 0; } figcaption { color: #666; font-size: 14px; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2em .6em; text-align: right; }
tr:nth-child(even) { background: #f6f6f6; } .scroll { overflow-x: auto; }
"""


class Report:
    """A report, whose parts come in the order in which they are added."""

    def __init__(self, title: str):
        self.title = title
        self.parts: list[str] = []

    def heading(self, text: str) -> None:
        """Add a heading."""
        self.parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(f"<p>{html.escape(text)}</p>")

    def lines(self, text: str) -> None:
        """Add text with its own lines and columns."""
        self.parts.append(f"<pre>{html.escape(text)}</pre>")

    def table(self, frame: pd.DataFrame) -> None:
        """Add a table."""
        body = frame.to_html(float_format=lambda x: f"{x:.4g}", border=0)
        self.parts.append(f'<div class="scroll">{body}</div>')

    def figure(self, figure: Figure, caption: str, file: Path | None = None) -> None:
        """Add a figure, write it to a PNG file of its own if one is given, and close it."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        plt.close(figure)
        if file is not None:
            file.write_bytes(buffer.getvalue())
        data = base64.b64encode(buffer.getvalue()).decode()
        self.parts.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def write(self, path: Path) -> None:
        """Write the HTML file."""
        title = html.escape(self.title)
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{''.join(self.parts)}</body></html>\n"
        )
        write_whole(path, page)
