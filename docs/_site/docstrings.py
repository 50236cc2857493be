"""Docstrings as Markdown: doctests become blocks of code, and the fields of a class are listed with their comments."""

import re

import griffe

_DOCTEST = re.compile(r"(?:^|\n)((?:>>>|\.\.\.)[^\n]*(?:\n(?!\n)[^\n]+)*)")


class Docstrings(griffe.Extension):
    """What mkdocstrings does not do by itself."""

    def on_instance(self, *, obj: griffe.Object, **kwargs) -> None:
        """Put doctests into blocks of code."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(r"\n\n```pycon\n\1\n```\n", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs) -> None:
        """List the fields of a class in its docstring, each with the comment beside it, or above it."""
        lines = []
        for name, member in cls.members.items():
            field = (
                member.is_attribute and member.annotation is not None and not name.startswith("_")
            )
            if field and "property" not in member.labels and member.lineno:
                lines.append(f"- `{name}`{_comment(member)}")
                member.docstring = None
        if lines and cls.docstring is not None:
            cls.docstring.value += "\n\nFields:\n\n" + "\n".join(lines)


def _comment(field) -> str:
    """Return the comment of a field, after a colon."""
    source = field.lines_collection[field.filepath][field.lineno - 2 : field.endlineno]
    above, beside = source[0].strip(), source[-1].partition("  # ")[2]
    comment = beside or (above.removeprefix("# ") if above.startswith("# ") else "")
    return f": {comment.removeprefix('noqa').strip()}" if comment and "noqa" not in comment else ""
