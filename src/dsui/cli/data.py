"""`dsui data list | get | check`: what data sets there are, fetch one, verify a local copy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from dsui.data import check as checking
from dsui.data import download
from dsui.data.registry import PUBLISHED, SPLITS, default_root, published
from dsui.errors import DataError

if TYPE_CHECKING:
    from dsui.data.check import Report, SplitReport
    from dsui.data.published import Published

data_app = typer.Typer(no_args_is_help=True, help="List, fetch and verify data sets. Example: dsui data list")

Root = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets; by default $DSUI_DATA, else ~/.cache/dsui/data."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]


@data_app.command("list")
def list_sets(root: Root = None, as_json: Json = False) -> None:
    """List the data sets: size, licence, source, and which are already there.

    Example: dsui data list --root data
    """
    root = root or default_root()
    if as_json:
        typer.echo(json.dumps([_facts(entry, root) for entry in PUBLISHED.values()], indent=2))
        return
    caption = "Own images: folder:PATH with train/CLASS/* and test/CLASS/*"
    table = Table(
        title=Text(f"Data sets at {root}"), caption=caption, box=box.SIMPLE, collapse_padding=True, pad_edge=False
    )
    for heading in ("name", "classes", "train", "test", "shape", "there", "licence, source"):
        table.add_column(heading, justify="right" if heading in {"classes", "train", "test", "shape"} else "left")
    for entry in PUBLISHED.values():
        present = entry.present(root)
        table.add_row(
            entry.name,
            str(entry.classes),
            *(f"{entry.splits[name].images:,}" if name in entry.splits else "-" for name in SPLITS),
            "x".join(map(str, entry.shape)),
            "yes" if len(present) == len(entry.splits) else ", ".join(present) or "no",
            f"{entry.licence}\n{urlsplit(entry.page).netloc}",
        )
    Console().print(table)


@data_app.command()
def get(name: Annotated[str, typer.Argument(help="A name of `dsui data list`.")], root: Root = None) -> None:
    """Fetch a data set from its official source or a mirror, and verify it.

    Example: dsui data get cifar10
    """
    entry, root = published(name), root or default_root()
    if not entry.files:
        typer.echo(f"{name} comes with dsui's dependencies; there is nothing to fetch.")
        return
    with _Bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bars:
        fetched = download.get(entry, root, bars.show)
    typer.echo(f"Fetched {', '.join(fetched)} into {root}." if fetched else f"{name} is already at {root}.")
    if any(file.md5 is None for file in entry.files if file.name in fetched):
        typer.echo("Its publisher states no checksum; the check below takes its place.")
    check(name, root)


@data_app.command()
def check(
    name: Annotated[str, typer.Argument(help="A name of `dsui data list`, or folder:PATH.")],
    root: Root = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="folder:PATH: leave out unreadable files.")] = False,
    as_json: Json = False,
) -> None:
    """Verify a local copy: number of images, shape, labels and channel means.

    Example: dsui data check folder:photos --skip-bad
    """
    with _Bars(MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()) as bars:
        report = checking.check(name, root, skip_bad, bars.show)
    if as_json:
        typer.echo(json.dumps({**asdict(report), "problems": report.problems}, indent=2, default=str))
    else:
        _print(report)
    if report.problems:
        raise DataError(f"{name} is not as published ({'; '.join(report.problems)}); fetch it anew.")


class _Bars(Progress):
    """One bar for each thing at work, on stderr so that stdout stays readable by a program."""

    def __init__(self, *columns: ProgressColumn) -> None:
        super().__init__(
            TextColumn("{task.description}"), BarColumn(), *columns, console=Console(stderr=True), transient=True
        )
        self.known: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int | None) -> None:
        if what not in self.known:
            self.known[what] = self.add_task(what, total=total)
        self.update(self.known[what], completed=done, total=total)


def _facts(entry: Published, root: Path) -> dict[str, object]:
    return {
        "name": entry.name,
        "classes": entry.classes,
        "images": {name: split.images for name, split in entry.splits.items()},
        "shape": entry.shape,
        "present": entry.present(root),
        "licence": entry.licence,
        "source": entry.page,
    }


def _print(report: Report) -> None:
    table = Table(title=Text(report.name), box=box.SIMPLE)
    for heading in ("split", "images", "shape", "channel means", "images per class", "state"):
        table.add_column(heading, justify="right" if heading == "images" else "left")
    for split in report.splits:
        means = " ".join(f"{mean:.4f}" for mean in split.means)
        shape = "x".join(map(str, split.shape)) if split.shape else "-"
        state = "; ".join(split.problems) or "ok"
        table.add_row(split.split, f"{split.images:,}", shape, means, _class_counts(split), Text(state))
    for name in report.absent:
        table.add_row(name, "-", "-", "-", "-", "absent")
    console = Console()
    console.print(table)
    for split in report.splits:
        if split.sizes:
            (width, height), (widest, highest) = split.sizes
            console.print(f"{split.split}: images of {width}x{height} to {widest}x{highest} pixels on disk.")
        if split.skipped:
            console.print(f"{split.split}: {len(split.skipped)} files skipped.")
        for skipped in split.skipped:
            console.print(Text(f"  {skipped.file}: {skipped.reason}"), soft_wrap=True)


def _class_counts(split: SplitReport) -> Text:
    counts = split.per_class
    if len(counts) > 1 and len(set(counts.values())) == 1:
        return Text(f"{next(iter(counts.values())):,} in each of {len(counts)}")
    return Text("\n".join(f"{name}: {count:,}" for name, count in counts.items()) or "-")
