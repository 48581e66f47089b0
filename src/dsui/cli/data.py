"""`dsui data list | get | check`: list the data sets, fetch one, verify a local copy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli import names
from dsui.cli.arguments import Root, SkipBad, check_dataset
from dsui.cli.errors import CommandGroup, UsageError
from dsui.cli.json_output import print_json
from dsui.cli.names import completion
from dsui.cli.plain_arguments import Json, Quiet
from dsui.cli.terminal import print_line, stdout_console
from dsui.data.registry import FOLDER
from dsui.errors import DataError

if TYPE_CHECKING:
    from dsui.data.check import Report
    from dsui.data.info import DatasetInfo

UNREADABLE_SHOWN = 20

data_app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    help="List, fetch and verify data sets, and find wrong labels.\n\nExample: dsui data list",
)


@data_app.command("list")
def list_sets(root: Root = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the data sets, and show which are on this machine.

    Example: dsui data list --root data
    """
    del quiet  # this command prints nothing but its result

    from dsui.cli.data_output import datasets_table
    from dsui.data.registry import DATASETS, default_root

    root = root or default_root()
    if as_json:
        print_json([_info_json(entry, root) for entry in DATASETS.values()])
    else:
        stdout_console().print(datasets_table(root))


@data_app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A data set of `dsui data list`.", autocompletion=completion(names.data)),
    ],
    root: Root = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set and verify it.

    It comes from its official source or, if that does not answer, from a mirror.

    Example: dsui data get cifar10
    """
    if name.startswith(FOLDER):
        raise UsageError(f"{name} is already on this machine; `dsui data check {name}` verifies it.")
    check_dataset(name)
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.data import download
    from dsui.data.registry import dataset_info, default_root

    entry, root, console = dataset_info(name), root or default_root(), stderr_console(quiet)
    if not entry.files:
        console.print(f"{name} comes with dsui's dependencies; there is nothing to fetch.", soft_wrap=True)
        if as_json:
            print_json({"name": name, "root": root, "fetched": [], "check": None})
        return
    with ProgressBars(console, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bars:
        fetched = download.get(entry, root, bars.update)
    done = f"Fetched {', '.join(fetched)} into {root}." if fetched else f"{name} is already at {root}."
    console.print(done, soft_wrap=True, markup=False)
    report = _run_check(name, root, False, quiet)
    document = {"name": name, "root": root, "fetched": fetched, "check": _report_json(report)}
    _finish(report, document if as_json else None, quiet)


@data_app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A data set of `dsui data list`, or folder:PATH.",
            autocompletion=completion(names.data),
        ),
    ],
    root: Root = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify a local copy of a data set.

    Counts the images, compares their shapes, labels and channel means with the published ones, and in
    folder:PATH looks for files that cannot be read, classes of uneven size, and files that are passed over. The
    exit status is 1 if anything is wrong. Files are also compared with the published checksums; one that differs
    is told.

    Example: dsui data check folder:photos --skip-bad
    """
    report = _run_check(check_dataset(name), root, skip_bad, quiet)
    _finish(report, _report_json(report) if as_json else None, quiet)


def _run_check(name: str, root: Path | None, skip_bad: bool, quiet: bool) -> Report:
    from dsui.cli.progress import ProgressBars
    from dsui.cli.terminal import stderr_console
    from dsui.data import check as checking

    with ProgressBars(stderr_console(quiet)) as bars:
        return checking.check(name, root, skip_bad, bars.update)


def _finish(report: Report, document: dict[str, object] | None, quiet: bool) -> None:
    """Print the document as JSON or, without one, the report; raise if the data set has problems."""
    from dsui.cli.data_output import print_report

    if document is not None:
        print_json(document)
    elif not quiet:
        print_report(report)
        for bad in report.unreadable[:UNREADABLE_SHOWN]:
            print_line(f"  {bad.file}: {bad.reason}")
        if len(report.unreadable) > UNREADABLE_SHOWN:
            print_line(f"  and {len(report.unreadable) - UNREADABLE_SHOWN:,} more")
    if report.unreadable:
        raise DataError(
            f"{report.name} cannot be used as it is ({'; '.join(report.problems)}); repair or remove these files, or "
            "leave them out with --skip-bad."
        )
    if report.problems:
        raise DataError(f"{report.name} is not as published ({'; '.join(report.problems)}); fetch it again.")


def _report_json(report: Report) -> dict[str, object]:
    passed_over = [each._asdict() for each in report.passed_over]
    return {**asdict(report), "problems": report.problems, "passed_over": passed_over}


def _info_json(entry: DatasetInfo, root: Path) -> dict[str, object]:
    return {
        "name": entry.name,
        "classes": entry.classes,
        "images": {name: split.images for name, split in entry.splits.items()},
        "shape": entry.shape,
        "present": entry.present(root),
        "licence": entry.licence,
        "source": entry.page,
    }
