"""What the command lines of dsui and of dsui-runtime begin with: an application with --version, and how it is run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Annotated

import typer

from dsui import __version__
from dsui.cli.errors import CommandGroup, exit_with_a_sentence
from dsui.cli.terminal import adapt_streams, print_line


def make_app(summary: str) -> typer.Typer:
    """An application without commands, with `summary` as its help."""
    app = typer.Typer(
        cls=CommandGroup,
        rich_markup_mode=None,  # the boxes of rich leave too little of 80 columns for the text
        pretty_exceptions_enable=False,
        help=summary,
    )
    app.callback()(_options)
    return app


def start(app: Callable[[], object]) -> None:
    """Run a command. Exit status 2 means wrong usage, 1 any other error, 130 Ctrl-C; each comes with a sentence."""
    _clean_up_when_terminated()
    adapt_streams()
    with exit_with_a_sentence():
        app()


def _print_version(requested: bool) -> None:
    if requested:
        print_line(f"dsui {__version__}")
        raise typer.Exit


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
