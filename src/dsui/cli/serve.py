"""`dsui serve`: a server that answers with labels, uncertainties and decisions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.errors import UsageError
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.serving.serving_state import ServingState

TOKEN = "DSUI_TOKEN"  # noqa: S105 - the name of a variable
LONGEST_TOKEN = 4096
MIB = 1 << 20


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="Files of `dsui export`, or folders of runs. A model is called as its file or folder.",
            metavar="MODEL",
            parser=parse_path,
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="NUMBER", help="0 chooses a free one.")] = 8000,
    batch: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Images in a forward pass, at most.")] = 32,
    queue: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Images that may wait; then answers are 503 with Retry-After.")
    ] = 256,
    files: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Images in a request, at most.")] = 64,
    body: Annotated[float, typer.Option(min=0.001, metavar="MIB", help="Size of a request, at most.")] = 32.0,
    pixels: Annotated[float, typer.Option(min=0.0001, metavar="MILLIONS", help="Pixels of an image, at most.")] = 50.0,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For a whole request.")] = 30.0,
    drain: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="After SIGTERM: how long to go on, so that a balancer notices."),
    ] = 0.0,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Of ONNX Runtime.  [default: one for each processor]")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=parse_path, help=f"Holds the token that clients must send; or set ${TOKEN}."
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve models: labels, uncertainties and decisions of images, over HTTP.

    Open the address that is printed: the page there takes images. /v1/predict takes files, /v2/models/NAME/infer speaks
    the Open Inference Protocol, /openapi.json describes all of it. SIGHUP reads the models again; SIGTERM stops, and
    what was taken is answered first. The log goes to stderr, a line of JSON for each request.

    Example: dsui serve model.onnx --port 8000
    """
    from dsui.serving.requirements import check_installed

    check_installed()
    from dsui.serving.logs import open_log
    from dsui.serving.server import describe_models
    from dsui.serving.server import serve as run
    from dsui.serving.settings import ServerSettings
    from dsui.serving.source import model_name

    named = {model_name(path): path for path in models}
    if len(named) < len(models):
        raise UsageError("two models have the same name; rename one of their files.")
    settings = ServerSettings(
        batch=batch,
        queue=queue,
        files=min(files, queue),
        body=int(body * MIB),
        bodies=max(256 * MIB, int(body * MIB)),
        pixels=int(pixels * 1_000_000),
        seconds=seconds,
        header_seconds=min(seconds, ServerSettings.header_seconds),
        drain=drain,
        threads=threads,
        token=read_token(token_file),
    )
    open_log(quiet)

    def announce(address: str, state: ServingState) -> None:
        if as_json:
            import json

            print_line(json.dumps({"address": address, "models": describe_models(state)}))
        elif not quiet:
            print_line(f"Serving {', '.join(state.slots)} on {address} (Ctrl-C stops).")

    run(named, settings, host, port, announce)


def read_token(file: Path | None) -> str | None:
    """From the file, or from the environment; None where neither has one. A command line is seen by every user."""
    if file is None:
        token = os.environ.get(TOKEN)
        if token is not None and not token.strip():
            raise DsuiError(f"${TOKEN} is empty; set it to a token, or unset it.")
        return token
    from dsui.regular_file import read_regular

    try:
        token = read_regular(file, LONGEST_TOKEN).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DsuiError(f"{file} cannot be read ({why}); write the token into it.") from error
    if not token:
        raise DsuiError(f"{file} is empty; write the token into it.")
    return token
