"""Numbers as people write them: which mark stands before decimals, and which between thousands."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

_COMMA = r"[+-]?\d+,\d+"  # 1,5
_GROUPS = r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?"  # 1,234.5
_BOTH = r"[+-]?\d{1,3}(?:\.\d{3})+(?:,\d*)?"  # 1.234,5
_APART = r"[+-]?\d{1,3}(?:[ '’\u00a0\u202f]\d{3})+(?:[.,]\d*)?"  # 1 234.5 or 1'234.5


class Marks(NamedTuple):
    """The marks of numbers in a file."""

    decimal: str = "."
    thousands: str = ""

    def check(self) -> "Marks":
        """Return the marks; raise unless they can be told apart."""
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal is {self.decimal!r}; it must be '.' or ','")
        mark = self.thousands
        if len(mark) > 1 or mark in (self.decimal, "-", "+") or mark.isalnum():
            raise ValueError(
                f"thousands is {self.thousands!r}; it must be one mark such as ',', '.', ' ' or \"'\", not that of "
                "decimals, or nothing"
            )
        return self

    def numbers(self, values: Any) -> Any:
        """Return values as numbers, NaN where one is not a number that is written so; True and False are none."""
        if pd.api.types.is_bool_dtype(values):
            return pd.Series(float("nan"), values.index)
        if self == Marks() or pd.api.types.is_numeric_dtype(values):
            return pd.to_numeric(values, errors="coerce")
        decimal, thousands = re.escape(self.decimal), re.escape(self.thousands)
        groups = rf"|\d{{1,3}}(?:{thousands}\d{{3}})+" if thousands else ""
        form = rf"[+-]?(?:\d+{groups})?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?"
        text = values.astype("string").str.strip()
        plain = text.where(text.str.fullmatch(form).fillna(False))
        if self.thousands:
            plain = plain.str.replace(self.thousands, "", regex=False)
        plain = plain.str.replace(self.decimal, ".", regex=False)
        found: Any = pd.to_numeric(plain, errors="coerce")
        return found.astype(float)

    def advice(self, texts: Iterable[str]) -> str:
        """Return which options would read texts that are not numbers, as a sentence; empty if none would."""
        if self != Marks():
            return ""
        kinds = {
            "--decimal ,": _COMMA,
            "--thousands ,": _GROUPS,
            "--decimal , --thousands .": _BOTH,
        }
        kinds["--thousands with the mark between them"] = _APART
        found = [k for k, p in kinds.items() if any(re.fullmatch(p, t.strip()) for t in texts)]
        if not found:
            return ""
        return f"they look like numbers with other marks: {' or '.join(found)} would read them"


PLAIN = Marks()
