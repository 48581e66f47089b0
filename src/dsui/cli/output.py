"""Results on stdout or in a file: tables in their formats, and JSON."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import check_name
from dsui.cli.errors import UsageError
from dsui.cli.names import completion
from dsui.cli.plain_arguments import parse_path
from dsui.cli.terminal import stdout_console, write
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.report.tables import Table


class Format(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


FILE_FORMATS = {".csv": Format.csv, ".json": Format.json, ".tex": Format.latex}
"""By the ending of a file's name; all others are Markdown."""

TableFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"Format of the table: {', '.join(Format)}.",
        parser=lambda text: Format(check_name("format", text, Format)),
        autocompletion=completion(lambda: Format),
    ),
]
TableFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        parser=parse_path,
        help="Write the table to this file; .csv, .json and .tex choose its format, all other names Markdown.",
    ),
]


def check_format(table_format: Format, out: Path | None, as_json: bool) -> None:
    """Raise if --json and --format contradict each other; with --out, --format is for the file."""
    if as_json and out is None and table_format is not Format.terminal:
        raise UsageError("--json and --format both say what to print; leave one out, or name a file with --out.")


def write_table(table: Table, table_format: Format, out: Path | None) -> None:
    """Print the table, or write it to `out`, whose name decides the format where --format does not."""

    from dsui.report import table_forms

    if table_format is Format.terminal and out is None:
        console = stdout_console()
        console.print(table_forms.to_terminal(table, console.width, console.is_terminal))
        return
    render = {
        Format.markdown: table_forms.to_markdown,
        Format.latex: table_forms.to_latex,
        Format.csv: table_forms.to_csv,
        Format.json: table_forms.to_json,
    }[file_format(table_format, out)]
    write_text(render(table), out)


def file_format(table_format: Format, out: Path | None) -> Format:
    """The format of what is printed or written to `out`."""
    if table_format is Format.terminal and out is not None:
        return FILE_FORMATS.get(out.suffix.lower(), Format.markdown)
    return table_format


def write_text(text: str, out: Path | None) -> None:
    """Print a text that ends a line, or write it to `out`."""
    from dsui.errors import RunError
    from dsui.runs.files import write_atomic

    text = text.removesuffix("\n") + "\n"
    if out is None:
        write(text)
    else:
        try:
            write_atomic(out, lambda stream: stream.write(text.encode(errors="surrogateescape")))
        except RunError as error:
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise DsuiError(f"{out} cannot be written ({why}); choose another --out.") from error
