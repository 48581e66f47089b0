"""`dsui data list | get | check`: what data sets there are, fetch one, verify a local copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import documents, names
from dsui.cli.choice import FOLDER, WrongUsage, data_set
from dsui.cli.names import completion
from dsui.cli.options import Json, Quiet, Root, SkipBad
from dsui.cli.usage import Commands
from dsui.errors import DataError

if TYPE_CHECKING:
    from dsui.data.check import Report
    from dsui.data.info import DatasetInfo

UNREADABLE_SHOWN = 20

data_app = typer.Typer(
    cls=Commands, rich_markup_mode=None, help="List, fetch and verify data sets.\n\nExample: dsui data list"
)


@data_app.command("list")
def list_sets(root: Root = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the data sets, and which are already there.

    Example: dsui data list --root data
    """
    del quiet  # there is nothing to print but what was asked for
    from rich.console import Console

    from dsui.cli.data_tables import sets_table
    from dsui.data.registry import DATASETS, default_root

    root = root or default_root()
    if as_json:
        documents.show([_facts(entry, root) for entry in DATASETS.values()])
    else:
        Console().print(sets_table(root))


@data_app.command()
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name of `dsui data list`.", autocompletion=completion(names.data))
    ],
    root: Root = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set and verify it.

    From its official source, or else a mirror.

    Example: dsui data get cifar10
    """
    if name.startswith(FOLDER):
        raise WrongUsage(f"{name} is your own and already here; `dsui data check {name}` looks at it.")
    data_set(name)
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    from dsui.cli.bars import Bars, notes
    from dsui.data import download
    from dsui.data.registry import dataset_info, default_root

    entry, root, console = dataset_info(name), root or default_root(), notes(quiet)
    if not entry.files:
        console.print(f"{name} comes with dsui's dependencies; there is nothing to fetch.", soft_wrap=True)
        if as_json:
            documents.show({"name": name, "root": root, "fetched": [], "check": None})
        return
    with Bars(console, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bars:
        fetched = download.get(entry, root, bars.show)
    done = f"Fetched {', '.join(fetched)} into {root}." if fetched else f"{name} is already at {root}."
    console.print(done, soft_wrap=True, markup=False)
    if any(file.md5 is None for file in entry.files if file.name in fetched):
        console.print("Its publisher states no checksum; the check below takes its place.", soft_wrap=True)
    report = _checked(name, root, False, quiet)
    document = {"name": name, "root": root, "fetched": fetched, "check": _content(report)}
    _tell(report, document if as_json else None, quiet)


@data_app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A name of `dsui data list`, or folder:PATH.", autocompletion=completion(names.data)
        ),
    ],
    root: Root = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify a local copy of a data set.

    Looks at the number of images, their shape, labels and channel means, and of folder:PATH for files
    that cannot be read. The exit status is 1 where something is wrong; with --quiet there is no other
    answer.

    Example: dsui data check folder:photos --skip-bad
    """
    report = _checked(data_set(name), root, skip_bad, quiet)
    _tell(report, _content(report) if as_json else None, quiet)


def _checked(name: str, root: Path | None, skip_bad: bool, quiet: bool) -> Report:
    from dsui.cli.bars import Bars, notes
    from dsui.data import check as checking

    with Bars(notes(quiet)) as bars:
        return checking.check(name, root, skip_bad, bars.show)


def _tell(report: Report, document: dict[str, object] | None, quiet: bool) -> None:
    """Print the document, or the report for a person; a set that is not as published or not readable is an error."""
    from dsui.cli.data_tables import print_report

    if document is not None:
        documents.show(document)
    elif not quiet:
        print_report(report)
        for bad in report.unreadable[:UNREADABLE_SHOWN]:
            typer.echo(f"  {bad.file}: {bad.reason}")
        if len(report.unreadable) > UNREADABLE_SHOWN:
            typer.echo(f"  and {len(report.unreadable) - UNREADABLE_SHOWN:,} more")
    if report.unreadable:
        raise DataError(
            f"{report.name} cannot be used as it is ({'; '.join(report.problems)}); mend or remove these files, or "
            "leave them out with --skip-bad."
        )
    if report.problems:
        raise DataError(f"{report.name} is not as published ({'; '.join(report.problems)}); fetch it anew.")


def _content(report: Report) -> dict[str, object]:
    return {**asdict(report), "problems": report.problems}


def _facts(entry: DatasetInfo, root: Path) -> dict[str, object]:
    return {
        "name": entry.name,
        "classes": entry.classes,
        "images": {name: split.images for name, split in entry.splits.items()},
        "shape": entry.shape,
        "present": entry.present(root),
        "licence": entry.licence,
        "source": entry.page,
    }
