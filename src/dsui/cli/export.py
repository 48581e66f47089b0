"""`dsui export`: a run as one ONNX file that takes images and decides."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import OwnFunction, Root, allow_function
from dsui.cli.errors import UsageError
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line, stdout_console
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.export.fewer_bits import Precision
    from dsui.export.run_export import Exported


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    file: Annotated[
        Path | None, typer.Argument(help="What to write, as model.onnx.", metavar="FILE", parser=parse_path)
    ] = None,
    triton: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=parse_path,
            help="Write into a model repository of NVIDIA Triton instead, as a new model or its next version.",
        ),
    ] = None,
    fp16: Annotated[bool, typer.Option("--fp16", help="The network in 16 bits: half the size.")] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="The network in 8 bits, by held-out images: a quarter of the size."),
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the model is called.  [default: the folder's name]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    root: Root = None,
    own_function: OwnFunction = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a run as one ONNX file, which needs no PyTorch.

    8-bit images of any size go in; label, probabilities, scores, density and the decision by the saved threshold come
    out. The file is run by ONNX Runtime on held-out images and only kept if it says what the run says. --triton writes
    it into a model repository, with config.pbtxt and labels.

    Example: dsui export runs/mine model.onnx
    """
    if fp16 and int8:
        raise UsageError("choose --fp16 or --int8, not both.")
    if (file is None) == (triton is None):
        raise UsageError("name what to write, FILE.onnx or --triton DIR, one of the two.")
    precision: Precision = "fp16" if fp16 else "int8" if int8 else "fp32"
    allow_function(own_function)
    from dsui.cli.progress import ProgressBars, print_note
    from dsui.cli.terminal import stderr_console
    from dsui.export.run_export import export_run
    from dsui.export.triton_repository import export_to_triton

    if file is not None and file.exists() and not force:
        raise DsuiError(f"{file} exists; add --force to replace it, or choose another name.")
    console = stderr_console(quiet)
    with ProgressBars(console) as bars:
        if triton is not None:
            served = export_to_triton(run, triton, precision=precision, name=name, root=root, progress=bars.update)
            exported, written = served.exported, served.to_mapping()
        else:
            assert file is not None
            exported = export_run(run, file, precision=precision, name=name, root=root, progress=bars.update)
            written = exported.to_mapping()
    if as_json:
        print_json(written)
    elif not quiet:
        _print(exported)
        if triton is not None:
            print_line(f"To serve it: tritonserver --model-repository={shlex.quote(str(triton.absolute()))}")
    if exported.facts["thresholds"] is None:
        print_note(
            console,
            f"the run keeps no threshold, so the file accepts and rejects nothing; add one with "
            f"dsui threshold {run} --coverage 0.95 --save, and export again.",
        )


def _print(exported: Exported) -> None:
    from dsui.report.export_table import effects_table
    from dsui.report.table_forms import to_terminal

    outputs, agreement = exported.facts["outputs"], exported.agreement
    assert isinstance(outputs, list)
    print_line(
        f"{exported.file}: {exported.facts['name']}, {exported.bytes / 1e6:.2f} MB, {exported.nodes:,} operations.\n"
        f"In: {exported.facts['input']}. Out: {', '.join(outputs)}.\n"
        f"ONNX Runtime agrees with the run on {exported.images}: probabilities within {agreement.probability:.1g}, "
        f"scores within {max(agreement.relative.values()):.1g} of their size."
    )
    if exported.resizing is not None:
        print_line(exported.resizing.sentence)
    if exported.effects is not None:
        console = stdout_console()
        console.print(to_terminal(effects_table(exported.effects), console.width, console.is_terminal))
