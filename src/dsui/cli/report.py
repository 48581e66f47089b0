"""`dsui report`: one HTML page about trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import (
    Device,
    KeepOutputs,
    OwnFunction,
    Root,
    SkipBad,
    allow_function,
    check_foreign,
    check_page,
    select_device,
    split_names,
)
from dsui.cli.json_output import print_json
from dsui.cli.names import completion
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.terminal import print_line

if TYPE_CHECKING:
    from dsui.runs.model import RunFacts


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN", parser=parse_path)],
    out: Annotated[Path, typer.Option(metavar="FILE", parser=parse_path, help="Where to write the page.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", parser=parse_path, help="Also write every figure into this folder, as SVG and PNG."
        ),
    ] = None,
    foreign: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Data sets of images unlike the training images, as in svhn,folder:PATH, the most important one "
            "first.  [default: those the runs were evaluated with]",
            autocompletion=completion(names.foreign),
        ),
    ] = "",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "",
    root: Root = None,
    device: Device = "auto",
    own_function: OwnFunction = None,
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page about trained runs.

    It holds tables, figures, images and settings.

    Example: dsui report runs/cifar10-* --out report.html
    """
    foreign_sets = [check_foreign(name) for name in split_names(foreign)] if foreign else []

    allow_function(own_function)
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.report.assembly import sections
    from dsui.report.page import page, write_figures, write_page
    from dsui.runs.model import run_facts

    torch_device = select_device(device)
    facts = [run_facts(run) for run in {run.resolve(): run for run in runs}.values()]
    _check_paths(out, foreign_sets, root)
    with ProgressBars(stderr_console(quiet)) as bars:
        parts = sections(
            facts,
            torch_device,
            foreign=foreign_sets,
            root=root,
            skip_bad=skip_bad,
            keep=cache,
            progress=bars.update,
            warn=bars.note,
        )
        html = page(title or _title(facts), _lead(facts), parts)
        written = [] if figures is None else write_figures(figures, parts, bars.note)
    write_page(out, html)
    size = len(html.encode())
    if as_json:
        print_json({"page": out, "bytes": size, "figures": written})
    elif not quiet:
        and_figures = "" if figures is None else f", and its figures to {figures}"
        print_line(f"Wrote {out} ({size / 1e6:.1f} MB){and_figures}.")


def _check_paths(out: Path, foreign: list[str], root: Path | None) -> None:
    """Find a wrong --out and missing data sets before any work is done."""
    from dsui.data.registry import check_present

    check_page(out)
    for name in foreign:
        check_present(name, root)


def _title(runs: list[RunFacts]) -> str:
    methods, data = (
        dict.fromkeys(values) for values in zip(*((f.config.method, f.config.data) for f in runs), strict=True)
    )
    return f"{', '.join(methods)} on {', '.join(data)}"


def _lead(runs: list[RunFacts]) -> str:
    count = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count}: when are the predictions wrong, and when do the images not belong? Made with dsui report."
