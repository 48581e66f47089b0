"""`dsui report`: one page about trained runs, with the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dsui.cli.bars import Bars
from dsui.cli.device import device_type
from dsui.data.registry import FOLDER, default_root, published
from dsui.errors import DataError, DsuiError
from dsui.evaluation.model import RunFacts, run_facts


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN...")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Also write every figure there, as SVG and PNG.")] = None,
    foreign: Annotated[
        str, typer.Option(help="Foreign sets, the one to show first; by default those evaluated, or all there are.")
    ] = "",
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "",
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="folder:PATH: leave out unreadable files.")] = False,
    cache: Annotated[bool, typer.Option(help="Keep the outputs in the runs' folders.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Write one self-contained HTML page about trained runs: tables, the paper's figures, images, settings.

    Example: dsui report runs/cifar10-* --out report.html
    """
    from dsui.report.assembly import sections
    from dsui.report.page import page, write_figures, write_page

    console = Console(stderr=True, quiet=quiet, highlight=False)
    place = torch.device(device_type(device))
    facts = [run_facts(run) for run in {run.resolve(): run for run in runs}.values()]
    names = list(dict.fromkeys(name.strip() for name in foreign.split(","))) if foreign else []
    _check(out, names, root)
    with Bars(console) as bar:
        made = sections(
            facts,
            place,
            foreign=names,
            root=root,
            skip_bad=skip_bad,
            keep=cache,
            progress=bar.show,
            warn=bar.say,
        )
        html = page(title or _title(facts), _lead(facts), made)
        if figures is not None:
            write_figures(figures, made)
    write_page(out, html)
    if not quiet:
        beside = "" if figures is None else f", and its figures to {figures}"
        typer.echo(f"Wrote {out} ({len(html.encode()) / 1e6:.1f} MB){beside}.")


def _check(out: Path, foreign: list[str], root: Path | None) -> None:
    """Find wrong names and places before any work is done."""
    if not out.absolute().parent.is_dir() or out.is_dir():
        raise DsuiError(f"{out} cannot be written, for want of its folder or because it is one; choose another --out.")
    place = root or default_root()
    for name in foreign:
        if not name.startswith(FOLDER) and "test" not in published(name).present(place):
            raise DataError(f"{name} is not below {place}; run `dsui data get {name}`, or name its folder with --root.")


def _title(runs: list[RunFacts]) -> str:
    methods, data = (
        dict.fromkeys(values) for values in zip(*((f.config.method, f.config.data) for f in runs), strict=True)
    )
    return f"{', '.join(methods)} on {', '.join(data)}"


def _lead(runs: list[RunFacts]) -> str:
    count = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count}: when are the predictions wrong, and when do the images not belong? Made with dsui report."
