"""`dsui push`: a run as a model on the Hugging Face hub, with a card made from what was measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dsui.cli.errors import UsageError
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line


def push(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    name: Annotated[
        str, typer.Argument(help="What it is called on the hub; @BRANCH puts it on a branch.", metavar="hf:USER/NAME")
    ],
    also: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            parser=parse_path,
            help="A run that differs in the seed alone; the card then has means and deviations. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=parse_path, help="Write what would be pushed here, and push nothing."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository that only you see.")] = False,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="NAME", help="Of the weights, as the hub names it: mit.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Publish a run on the Hugging Face hub.

    Weights, settings, threshold and results rows are uploaded, and a model card is made from the rows: figures, what
    the threshold promises, data, limits. Names of data folders are in them. Log in with `hf auth login` first. Whoever
    has dsui then uses it by its name: dsui predict hf:USER/NAME photos.

    Example: dsui push runs/mine hf:me/digits --out card
    """
    from dsui.cli.progress import print_note
    from dsui.cli.terminal import stderr_console
    from dsui.hub import is_hub_name, parse_hub_name
    from dsui.publishing.push import push as upload
    from dsui.publishing.push import stage

    if not is_hub_name(name):
        raise UsageError(f"{name} is no name on the hub; write hf:USER/NAME.")
    hub_name = parse_hub_name(name)
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary) / "model"
        evidence = stage(run, folder, hub_name.text, also or (), licence)
        files = sorted(each.name for each in folder.iterdir())
        if evidence.verdict is None:
            print_note(
                stderr_console(quiet), f"the run was not evaluated, so its card has no figures; dsui evaluate {run}."
            )
        address = None if out is not None else upload(folder, hub_name, private, quiet)
    if as_json:
        print_json({"model": hub_name.text, "files": files, "folder": out, "commit": address})
    elif not quiet:
        print_line(f"Written to {out}: {', '.join(files)}." if address is None else f"Pushed: {address}")
