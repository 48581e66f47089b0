"""`dsui predict`: classes and uncertainties of image files, accepted or rejected at a calibrated threshold."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from dsui.cli.choice import WrongUsage
from dsui.cli.documents import plain
from dsui.cli.options import Device, Json, Quiet, between_zero_and_one, given_path
from dsui.errors import DsuiError, Stopped

if TYPE_CHECKING:
    from dsui.deploy.rows import PredictionRow
    from dsui.runs.threshold import Threshold

PART = ".part"
"""Ends the name of a file of predictions until it is whole."""


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=given_path)],
    paths: Annotated[
        list[Path], typer.Argument(help="Images, and folders of them at any depth.", metavar="PATH", parser=given_path)
    ],
    coverage: Annotated[
        float | None,
        typer.Option(
            callback=between_zero_and_one,
            metavar="SHARE",
            help="Accept this share of images like the training images: 0.95",
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            callback=between_zero_and_one, metavar="SHARE", help="Accept as many as keep this share of wrong ones: 0.02"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=given_path, help="Write to this file, .csv or .jsonl, instead of stdout."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Images in a forward pass, 128 by default.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict images, and accept or reject them.

    Rows hold class, probability, uncertainty, log-density and decision, as CSV, or with --json JSON lines. A
    file that cannot be read is a row that says why, and the exit status is then 1.

    Example: dsui predict runs/mine photos --coverage 0.95 --out predictions.csv
    """
    if coverage is not None and risk is not None:
        raise WrongUsage("choose --coverage or --risk, not both.")
    as_json = _is_json(out, as_json)
    from dsui.cli.bars import Bars, notes
    from dsui.cli.device import command_device
    from dsui.data.folder import image_files
    from dsui.deploy.predictor import BATCH, Predictor
    from dsui.deploy.rows import PredictionRow, rows

    predictor = Predictor.load(run, command_device(device))
    console = notes(quiet)
    if coverage is not None or risk is not None:
        console.print(_promise(predictor.threshold(coverage, risk)), soft_wrap=True)
    counts = _Counts()
    with ExitStack() as closing:
        closing.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module="PIL")  # of odd files that can be read all the same
        bar = closing.enter_context(Bars(console))
        total = sum(1 for _ in image_files(paths)) if bar.live else None
        try:
            with _written(out) as stream:
                for found in rows(predictor, image_files(paths), batch or BATCH):
                    header = [PredictionRow._fields] if counts.files == 0 else []
                    _write_all(stream, _json(found) if as_json else _csv([*header, *found]))
                    stream.flush()
                    counts.add(found)
                    bar.show("predicting", counts.files, total)
                if counts.files == 0:
                    raise DsuiError(
                        f"there is no image in {', '.join(map(str, paths))}; name images or folders of them."
                    )
        except KeyboardInterrupt as error:
            where = "printed" if out is None else f"in {_beside(out)}"
            kept = (
                f" after {counts.files:,} files; their rows are {where}" if counts.files else " before the first file"
            )
            raise Stopped(f"stopped{kept}.") from error
    console.print(counts.summary(), soft_wrap=True)
    if counts.failed:
        raise DsuiError(f"{counts.failed:,} of {counts.files:,} files cannot be used; their rows say why.")


class _Counts:
    def __init__(self) -> None:
        self.files = self.failed = self.accepted = self.rejected = 0

    def add(self, found: list[PredictionRow]) -> None:
        self.files += len(found)
        self.failed += sum(row.error is not None for row in found)
        self.accepted += sum(row.decision == "accept" for row in found)
        self.rejected += sum(row.decision == "reject" for row in found)

    def summary(self) -> str:
        decided = f": {self.accepted:,} accepted, {self.rejected:,} rejected" if self.accepted + self.rejected else ""
        predicted = self.files - self.failed
        return f"{predicted:,} {'image' if predicted == 1 else 'images'} predicted{decided}."


def _promise(chosen: Threshold) -> str:
    return (
        f"Accepting uncertainties up to {chosen.value:.4g}: {chosen.coverage:.1%} of the {chosen.images:,} calibration "
        f"images, {chosen.risk:.1%} of those wrong."
    )


def _is_json(out: Path | None, as_json: bool) -> bool:
    ending = None if out is None else out.suffix.lower()
    if ending not in {None, ".csv", ".jsonl"} or (ending == ".csv" and as_json):
        wanted = "a file ending in .jsonl" if as_json else "a file ending in .csv or .jsonl"
        raise WrongUsage(f"--out {out} has the wrong ending; name {wanted}.")
    return as_json or ending == ".jsonl"


def _beside(out: Path) -> Path:
    return out.with_name(out.name + PART)


@contextmanager
def _written(out: Path | None) -> Iterator[IO[bytes]]:
    """Stdout, or a file beside `out` that takes its place when all went well, and else stays if anything is in it."""
    if out is None:
        if sys.stdout is None:  # the shell closed it
            raise DsuiError("there is no stdout to print to; name a file with --out.")
        yield sys.stdout.buffer
        return
    beside = _beside(out)
    try:
        with beside.open("wb", buffering=0) as stream:  # a row is there whole or not at all
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(out)
    except OSError as error:
        raise DsuiError(f"{out} cannot be written ({error.strerror}); choose another --out.") from error
    finally:
        if beside.exists() and beside.stat().st_size == 0:
            beside.unlink()


def _write_all(stream: IO[bytes], content: bytes) -> None:
    """An unbuffered file may take a part of it where the disk is full, and says why only when given the rest."""
    rest = memoryview(content)
    while rest:
        rest = rest[stream.write(rest) :]


def _csv(found: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(found)
    return text.getvalue().encode(errors="surrogateescape")


def _json(found: Iterable[PredictionRow]) -> bytes:
    return "".join(f"{json.dumps(plain(row._asdict()), allow_nan=False)}\n" for row in found).encode()
