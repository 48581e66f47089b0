"""The command line: one file for each command; `dsui.cli.errors` turns errors into sentences.

PyTorch and other packages that load slowly are imported inside the commands, so help, --version and the completion of a
shell do not wait for them.
"""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from dsui import __version__
from dsui.cli.compare import compare
from dsui.cli.data import data_app
from dsui.cli.demo import demo
from dsui.cli.embed import embed
from dsui.cli.errors import CommandGroup, exit_with_a_sentence
from dsui.cli.evaluate import evaluate
from dsui.cli.info import info
from dsui.cli.predict import predict
from dsui.cli.report import report
from dsui.cli.reproduce import reproduce
from dsui.cli.suspects import suspects
from dsui.cli.terminal import adapt_streams, print_line
from dsui.cli.threshold import threshold
from dsui.cli.train import train
from dsui.cli.verify import verify

app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,  # the boxes of rich leave too little of 80 columns for the text
    pretty_exceptions_enable=False,
    help="Know when an image classifier should not be trusted.\n\n"
    "`dsui demo` shows everything in a minute or two. For your own images: train, evaluate, report, predict.\n\n"
    "Example: dsui demo",
)
app.command()(demo)
app.command()(train)
app.command()(embed)
app.command()(evaluate)
app.command()(compare)
app.command()(reproduce)
app.command()(report)
app.command()(predict)
app.command()(threshold)
data_app.command()(suspects)
app.add_typer(data_app, name="data")
app.command()(verify)
app.command()(info)


def _print_version(requested: bool) -> None:
    if requested:
        print_line(f"dsui {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def _clean_up_when_terminated() -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C: by default they would leave temporary files behind."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows lacks the second
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def main() -> None:
    """Run a command. Exit status 2 means wrong usage, 1 any other error, 130 Ctrl-C; each comes with a sentence."""
    _clean_up_when_terminated()
    adapt_streams()
    with exit_with_a_sentence():
        app()
