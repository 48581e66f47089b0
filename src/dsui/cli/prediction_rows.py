"""Rows of predictions, printed or written to a file while they are made.

A file grows under its name with PART behind it, and gets its name when it is complete. After an error or Ctrl-C the
part stays.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from dsui.cli.errors import UsageError
from dsui.cli.json_output import to_json_value
from dsui.cli.plain_arguments import parse_path
from dsui.cli.terminal import write
from dsui.errors import DsuiError, Stopped
from dsui.spreadsheet import to_csv

if TYPE_CHECKING:
    from rich.console import Console

    from dsui.runtime.rows import PredictionRow

PART = ".part"
"""Ends the name of a file of predictions until it is complete."""

RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", parser=parse_path, help="Write to this file, .csv or .jsonl, instead of stdout."
    ),
]
Batch = Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="Images in a forward pass.  [default: 128]")]


def asks_for_json(out: Path | None, as_json: bool) -> bool:
    """Whether rows are written as JSON lines; a UsageError where the name of the file says otherwise."""
    ending = None if out is None else out.suffix.lower()
    if ending not in {None, ".csv", ".jsonl"} or (ending == ".csv" and as_json):
        wanted = "a file ending in .jsonl" if as_json else "a file ending in .csv or .jsonl"
        raise UsageError(f"--out {out} has the wrong ending; name {wanted}.")
    return as_json or ending == ".jsonl"


class RowWriter(NamedTuple):
    """How a command writes its rows: where, in which form, and what the summary calls one of them."""

    out: Path | None
    as_json: bool
    console: Console
    what: str = "image"

    def write(
        self,
        batches: Iterable[list[PredictionRow]],
        paths: Sequence[Path],
        total: Callable[[], int | None],
        verdict: Callable[[], str],
    ) -> None:
        """Write every batch at once, and a summary at the end. `verdict` comes before the first. `total` counts
        files, and is called only where a bar is shown. A DsuiError where there are no rows, or some are of
        files that cannot be used."""
        from dsui.cli.progress import ProgressBars

        counts = Counts(self.what)
        with ExitStack() as closing:
            closing.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module="PIL")  # about odd files that it can read
            bars = closing.enter_context(ProgressBars(self.console))
            number = total() if bars.live else None
            try:
                with _open_output(self.out) as output:
                    for rows in batches:
                        if counts.files == 0:
                            self.console.print(verdict(), soft_wrap=True)
                        output.write(to_json_lines(rows) if self.as_json else _to_csv(rows, counts.files == 0))
                        counts.add(rows)
                        bars.update("predicting", counts.files, number)
                    if counts.files == 0:
                        raise DsuiError(
                            f"there is no image in {', '.join(map(str, paths))}; name images or folders of them."
                        )
            except KeyboardInterrupt as error:
                if counts.files == 0:
                    raise Stopped("stopped before the first file.") from error
                raise Stopped(f"stopped after {counts.files:,} files; their rows are {output.where}.") from error
        self.console.print(counts.summary(), soft_wrap=True)
        if counts.failed:
            raise DsuiError(f"{counts.failed:,} of {counts.files:,} files cannot be used; their rows say why.")


class Counts:
    """How many rows there were, and what they say."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.files = self.failed = self.accepted = self.rejected = 0

    def add(self, rows: list[PredictionRow]) -> None:
        self.files += len(rows)
        self.failed += sum(row.error is not None for row in rows)
        self.accepted += sum(row.decision == "accept" for row in rows)
        self.rejected += sum(row.decision == "reject" for row in rows)

    def summary(self) -> str:
        decided = f": {self.accepted:,} accepted, {self.rejected:,} rejected" if self.accepted + self.rejected else ""
        predicted = self.files - self.failed
        return f"{predicted:,} {self.what}{'s' * (predicted != 1)} predicted{decided}."


def _part_file(out: Path) -> Path:
    return out.with_name(out.name + PART)


class _Output(NamedTuple):
    """Where rows go: how to write text, and words that tell a user where it is."""

    write: Callable[[str], None]
    where: str


@contextmanager
def _open_output(out: Path | None) -> Iterator[_Output]:
    """Stdout, or a file beside `out` that replaces it at the end; after an error it stays unless it is empty."""
    if out is None:
        if sys.stdout is None:  # the shell closed it
            raise DsuiError("there is no stdout to print to; name a file with --out.")
        yield _Output(write, "printed")
        return
    from dsui.runs.files import open_exclusively

    try:
        stream = open_exclusively(_part_file(out))  # rows are written at once
    except BlockingIOError as error:
        raise DsuiError(
            f"{out} is being written by another process; wait until it ends, or choose another --out."
        ) from error
    except OSError as error:
        raise DsuiError(f"{out} cannot be written ({error.strerror}); choose another --out.") from error
    part = Path(os.fsdecode(stream.name))
    with stream:
        try:
            yield _Output(lambda text: _write_all(stream, text.encode(errors="surrogateescape")), f"in {part}")
            os.fsync(stream.fileno())
            if sys.platform == "win32":
                stream.close()  # Windows does not rename an open file
            part.replace(out)  # while it is locked: whoever opens the part from now on makes a new one
        except BaseException as error:
            if part.stat().st_size == 0:
                part.unlink()
            if isinstance(error, OSError):
                raise DsuiError(f"{out} cannot be written ({error.strerror}); choose another --out.") from error
            raise


def _write_all(stream: IO[bytes], content: bytes) -> None:
    """On a full disk an unbuffered file accepts a part, and raises the error only when the rest is written."""
    rest = memoryview(content)
    while rest:
        rest = rest[stream.write(rest) :]


def _to_csv(rows: Sequence[PredictionRow], with_header: bool) -> str:
    records = [row.record() for row in rows]
    return to_csv([*([records[0]] if with_header else []), *(record.values() for record in records)])


def to_json_lines(rows: Iterable[PredictionRow]) -> str:
    """A line for each row."""
    return "".join(f"{json.dumps(to_json_value(row.record()), allow_nan=False)}\n" for row in rows)
