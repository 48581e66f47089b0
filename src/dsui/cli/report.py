"""`dsui report`: one page about trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import documents
from dsui.cli.choice import WrongUsage, data_set, listed
from dsui.cli.options import Device, Foreign, Json, KeepOutputs, Quiet, Root, SkipBad, given_path
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.runs.model import RunFacts


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.", metavar="RUN", parser=given_path)],
    out: Annotated[Path, typer.Option(metavar="FILE", parser=given_path, help="The page.")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=given_path, help="Also write every figure there, as SVG and PNG."),
    ] = None,
    foreign: Foreign = "",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "",
    root: Root = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
    cache: KeepOutputs = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page about trained runs.

    It holds tables, figures, images and settings. Of several foreign sets the first is shown
    first; by default they are those the runs were evaluated with.

    Example: dsui report runs/cifar10-* --out report.html
    """
    names = [data_set(name) for name in listed(foreign)] if foreign else []

    from dsui.cli.bars import Bars, notes
    from dsui.cli.device import command_device
    from dsui.report.assembly import sections
    from dsui.report.page import page, write_figures, write_page
    from dsui.runs.model import run_facts

    place = command_device(device)
    facts = [run_facts(run) for run in {run.resolve(): run for run in runs}.values()]
    _check(out, names, root)
    with Bars(notes(quiet)) as bar:
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
        written = [] if figures is None else write_figures(figures, made)
    write_page(out, html)
    size = len(html.encode())
    if as_json:
        documents.show({"page": out, "bytes": size, "figures": written})
    elif not quiet:
        beside = "" if figures is None else f", and its figures to {figures}"
        typer.echo(f"Wrote {out} ({size / 1e6:.1f} MB){beside}.")


def _check(out: Path, foreign: list[str], root: Path | None) -> None:
    """Find wrong places before any work is done."""
    from dsui.data.registry import check_present

    if not out.absolute().parent.is_dir() or out.is_dir():
        raise DsuiError(f"{out} cannot be written, for want of its folder or because it is one; choose another --out.")
    if out.suffix.lower() not in {".html", ".htm", ""}:
        raise WrongUsage(f"the page is HTML and --out {out} is named otherwise; choose {out.with_suffix('.html')}.")
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
