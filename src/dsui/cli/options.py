"""Options that several commands have, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.choice import WrongUsage
from dsui.cli.names import completion

if TYPE_CHECKING:
    from dsui.training.step import Mode

DEVICES = ("auto", "cpu", "cuda")
MODES: dict[str, Mode | None] = {"auto": None, "eager": "eager", "compiled": "compiled", "graph": "graph"}

Device = Annotated[
    str, typer.Option(metavar="NAME", help="cpu, cuda, or auto.", autocompletion=completion(lambda: DEVICES))
]
Foreign = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Foreign sets, as in svhn,folder:PATH; by default those at hand.",
        autocompletion=completion(names.foreign),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
KeepOutputs = Annotated[bool, typer.Option("--cache/--no-cache", help="Keep the outputs in the folders of the runs.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and what was asked for.")]
Root = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the data sets are; by default $DSUI_DATA, else ~/.cache/dsui/data."),
]
Steps = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="NAME",
        help=f"How training steps run: {', '.join(MODES)}.",
        autocompletion=completion(lambda: MODES),
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="folder:PATH: leave out unreadable files.")]


def given_path(text: str) -> Path:
    """A path that was named; an empty one, as an unset variable gives, would be the present folder."""
    if not text:
        raise WrongUsage("a path is empty; write . for the present folder.")
    return Path(text)


def below_one(value: float | None) -> float | None:
    """A share of 0 or more, but not all."""
    if value is not None and not 0 <= value < 1:
        meant = f"write {value / 100:g} for {value:g} %" if 1 < value <= 100 else "write one as 0.05 or 0.95"
        raise typer.BadParameter(f"{value:g} is no share of the images below 1; {meant}.")
    return value


def between_zero_and_one(value: float | None) -> float | None:
    """A share that is neither nothing nor all."""
    if value == 0:
        raise typer.BadParameter("0 is no share of the images between 0 and 1; write one as 0.05 or 0.95.")
    return below_one(value)
