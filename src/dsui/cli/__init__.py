"""The command line: one file per command, one place that turns errors into sentences.

What takes long to import, PyTorch above all, is imported where a command begins its work: help, versions and a shell's
completion do not wait for it.
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from dsui import __version__
from dsui.cli.choice import WrongUsage
from dsui.cli.compare import compare
from dsui.cli.data import data_app
from dsui.cli.demo import demo
from dsui.cli.evaluate import evaluate
from dsui.cli.info import info
from dsui.cli.predict import predict
from dsui.cli.report import report
from dsui.cli.reproduce import reproduce
from dsui.cli.threshold import threshold
from dsui.cli.train import train
from dsui.cli.usage import STOPPED, Commands, say
from dsui.cli.verify import verify
from dsui.errors import DsuiError, Stopped

NO_MEMORY = "DefaultCPUAllocator"
"""In what PyTorch says when the machine's memory is full."""

app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,  # its boxes leave too little of 80 columns for the words
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
app.command()(threshold)
app.add_typer(data_app, name="data")
app.command()(verify)
app.command()(info)


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


def _clean_up_when_terminated() -> None:
    """Have a signal to end, which would leave temporary files behind, do what Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows lacks the second
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def main() -> None:
    """Run a command: exit status 2 and a sentence for wrong usage, 1 for what else went wrong, 130 after Ctrl-C."""
    _clean_up_when_terminated()
    try:
        app()
    except (DsuiError, ValueError) as mistake:
        say(mistake)
        sys.exit(STOPPED if isinstance(mistake, Stopped) else 2 if isinstance(mistake, WrongUsage) else 1)
    except (MemoryError, RuntimeError) as mistake:
        if isinstance(mistake, RuntimeError) and NO_MEMORY not in str(mistake):
            raise
        say("there is not enough memory for this; choose smaller images, a smaller batch or fewer components.")
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped.")
        sys.exit(STOPPED)
    except OSError as mistake:
        what, why = mistake.filename or "the output", mistake.strerror or mistake
        say(f"{what} cannot be used ({why}); mend this and run again.")
        sys.exit(1)
