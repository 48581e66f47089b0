"""The command line: one file per command, one place that turns errors into sentences."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from dsui import __version__
from dsui.cli.compare import compare
from dsui.cli.data import data_app
from dsui.cli.demo import demo
from dsui.cli.evaluate import evaluate
from dsui.cli.info import info
from dsui.cli.predict import predict
from dsui.cli.report import report
from dsui.cli.reproduce import reproduce
from dsui.cli.train import train
from dsui.errors import DsuiError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Know when an image classifier should not be trusted.\n\nExample: dsui demo",
)
app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(compare)
app.command()(reproduce)
app.command()(report)
app.command()(predict)
app.command()(info)
app.add_typer(data_app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsui {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run a command; a mistake the user can mend is one sentence and exit status 1, wrong usage exit status 2."""
    try:
        app()
    except (DsuiError, ValueError) as mistake:
        Console(stderr=True).print(f"dsui: {mistake}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
