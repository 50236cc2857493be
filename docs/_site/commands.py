"""The options of all commands, from the commands themselves, on the page of the command line."""

from typing import Any

from typer.main import get_command


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Return the page of the command line with all commands after its text."""
    return f"{markdown}\n{commands()}" if page.file.src_uri == "commands.md" else markdown


def commands() -> str:
    """Return of each command what it does, an example, and tables of its options."""
    from sparse_lds.experiments.app.cli import app

    group = get_command(app)
    parts = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        paragraphs = [p.replace("\n", " ") for p in (command.help or "").split("\n\n")]
        text = [_with_example(p) for p in paragraphs]
        parts.append(f"## {name}\n\n" + "\n\n".join(text))
        rows = {}
        for parameter in command.params:
            option = parameter.param_type_name == "option"
            if option and not parameter.hidden and parameter.name != "help":
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                rows.setdefault(panel, []).append(_row(parameter))
        for panel, lines in rows.items():
            table = "\n".join(["| Option | | Default |", "|---|---|---|", *lines])
            fold = "???" if panel != "Options" else "???+"
            indented = "\n".join(f"    {line}" for line in table.split("\n"))
            parts.append(f'{fold} note "{panel}"\n\n{indented}')
    return "\n\n".join(parts) + "\n"


def _with_example(paragraph: str) -> str:
    before, sep, after = paragraph.partition("sparse-lds ")
    return f"{before}`{sep}{after}`" if sep else paragraph


def _row(option: Any) -> str:
    names = ", ".join(f"`{x}`" for x in sorted(option.opts, key=len, reverse=True))
    default = option.show_default if isinstance(option.show_default, str) else option.default
    shown = "" if default in (None, False, "") else f"{default}"
    return f"| {names} | {(option.help or '').replace('|', ' ')} | {shown} |"
