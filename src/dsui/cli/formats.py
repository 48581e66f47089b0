"""A table in the form the user asked for, to the terminal or to a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.choice import WrongUsage, known
from dsui.cli.names import completion
from dsui.cli.options import given_path
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.report.tables import Table


class Format(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


ENDINGS = {".csv": Format.csv, ".json": Format.json, ".tex": Format.latex}

Form = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"Of the table: {', '.join(Format)}.",
        parser=lambda text: Format(known("format", text, Format)),
        autocompletion=completion(lambda: Format),
    ),
]
TableFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", parser=given_path, help="Write the table there: .csv, .json, .tex, else Markdown."
    ),
]


def check_form(form: Format, out: Path | None, as_json: bool) -> None:
    """--format is for a file where --json says what to print."""
    if as_json and out is None and form is not Format.terminal:
        raise WrongUsage("--json and --format both say what to print; leave one out, or name a file with --out.")


def formatted(table: Table, form: Format, out: Path | None) -> None:
    """Print the table, or write it to `out`, whose name says how where --format does not."""
    from rich.console import Console

    from dsui.errors import RunError
    from dsui.report import table_forms
    from dsui.runs.files import write_atomic

    if form is Format.terminal and out is None:
        console = Console()
        console.print(table_forms.to_terminal(table, console.width, console.is_terminal))
        return
    if form is Format.terminal and out is not None:
        form = ENDINGS.get(out.suffix.lower(), Format.markdown)
    render = {
        Format.markdown: table_forms.to_markdown,
        Format.latex: table_forms.to_latex,
        Format.csv: table_forms.to_csv,
        Format.json: table_forms.to_json,
    }[form]
    text = render(table).removesuffix("\n") + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        try:
            write_atomic(out, lambda stream: stream.write(text.encode()))
        except RunError as error:
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise DsuiError(f"{out} cannot be written ({why}); choose another --out.") from error
