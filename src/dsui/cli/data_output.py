"""The tables that `dsui data` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from rich import box
from rich.table import Table
from rich.text import Text

from dsui.cli.terminal import stdout_console
from dsui.data.check import Report, SplitReport
from dsui.data.passed_over import count_of
from dsui.data.registry import DATASETS, SPLITS

PASSED_OVER_SHOWN = 20


def datasets_table(root: Path) -> Table:
    """Every data set, and which of its splits are in `root`."""
    caption = "Your own images: folder:PATH with train/CLASS/* and test/CLASS/*, or with CLASS/*"
    table = Table(
        title=Text(f"Data sets at {root}"), caption=caption, box=box.SIMPLE, collapse_padding=True, pad_edge=False
    )
    for heading in ("name", "classes", "train", "test", "shape", "there", "licence, source"):
        table.add_column(heading, justify="right" if heading in {"classes", "train", "test", "shape"} else "left")
    for entry in DATASETS.values():
        present = entry.present(root)
        table.add_row(
            entry.name,
            str(entry.classes),
            *(f"{entry.splits[name].images:,}" if name in entry.splits else "-" for name in SPLITS),
            "x".join(map(str, entry.shape)),
            "yes" if len(present) == len(entry.splits) else ", ".join(present) or "no",
            f"{entry.licence}\n{urlsplit(entry.page).netloc}",
        )
    return table


def print_report(report: Report) -> None:
    """Print what a check found, split by split."""
    table = Table(title=Text(report.name), box=box.SIMPLE)
    for heading in ("split", "images", "shape", "channel means", "images per class", "state"):
        table.add_column(heading, justify="right" if heading == "images" else "left")
    for split in report.splits:
        means = " ".join(f"{mean:.4f}" for mean in split.means)
        shape = "x".join(map(str, split.shape)) if split.shape else "-"
        state = "; ".join(split.problems) or ("uneven" if split.uneven else "ok")
        table.add_row(split.split, f"{split.images:,}", shape, means, _class_counts(split), Text(state))
    for name in report.absent:
        table.add_row(name, "-", "-", "-", "-", "absent")
    console = stdout_console()
    console.print(table)
    for split in report.splits:
        if split.sizes:
            smallest, largest = (f"{width}x{height}" for width, height in split.sizes)
            span = f"all of {smallest}" if smallest == largest else f"of {smallest} to {largest}"
            modes = f"mode{'s' if len(split.modes) > 1 else ''} {', '.join(split.modes)}"
            console.print(f"{split.split}: {span} pixels on disk, {modes}.")
        if split.skipped:
            console.print(f"{split.split}: {len(split.skipped)} files skipped.")
        for skipped in split.skipped:
            console.print(Text(f"  {skipped.file}: {skipped.reason}"), soft_wrap=True)

    for sentence in (*_files(report), *report.remarks, *_passed_over(report)):
        console.print(Text(sentence), soft_wrap=True)


def _passed_over(report: Report) -> Iterator[str]:
    """The first of the files and folders that are no part of the data set."""
    if not report.passed_over:
        return
    total = count_of(list(report.passed_over))
    yield f"Passed over, since images are read from the folders of the classes alone: {total:,}."
    for each in report.passed_over[:PASSED_OVER_SHOWN]:
        many = f" ({each.images:,} images)" if each.path.is_dir() else ""
        yield f"  {each.path}{many}: {each.reason}"
    if (more := len(report.passed_over) - PASSED_OVER_SHOWN) > 0:
        yield f"  and {more:,} more (all of them: --json)"


def _files(report: Report) -> Iterator[str]:
    """Which files are the published ones, in a sentence for each answer."""
    for algorithm in dict.fromkeys(file.algorithm for file in report.files):
        same = [file.path for file in report.files if file.algorithm == algorithm and file.as_published]
        other = [file.path for file in report.files if file.algorithm == algorithm and not file.as_published]
        if same:
            yield f"The published files, by their {algorithm}: {', '.join(same)}."
        if other:
            yield (
                f"Not the published files, by their {algorithm}: {', '.join(other)}. A lossless copy may differ; what "
                "counts here are its images."
            )


def _class_counts(split: SplitReport) -> Text:
    counts = split.per_class
    if len(counts) > 1 and len(set(counts.values())) == 1:
        return Text(f"{next(iter(counts.values())):,} in each of {len(counts)}")
    return Text("\n".join(f"{name}: {count:,}" for name, count in counts.items()) or "-")
