"""A table in the form the user asked for, to the terminal or to a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console

from dsui.errors import DsuiError
from dsui.report import table_forms
from dsui.report.tables import Table
from dsui.training.checkpoint import RunError, write_whole


class Format(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


def formatted(table: Table, form: Format, out: Path | None) -> None:
    """Print the table, or write it to `out`; a file without a format of its own is Markdown."""
    if form is Format.terminal and out is None:
        console = Console()
        console.print(table_forms.to_terminal(table, console.width))
        return
    render = {
        Format.terminal: table_forms.to_markdown,
        Format.markdown: table_forms.to_markdown,
        Format.latex: table_forms.to_latex,
        Format.csv: table_forms.to_csv,
        Format.json: table_forms.to_json,
    }[form]
    text = render(table)
    if out is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        try:
            write_whole(out, lambda stream: stream.write(text.encode()))
        except RunError as error:
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise DsuiError(f"{out} cannot be written ({why}); choose another --out.") from error
