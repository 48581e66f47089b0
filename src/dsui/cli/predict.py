"""`dsui predict`: classes and uncertainties of image files; a calibrated threshold accepts or rejects them."""

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

from dsui.cli.arguments import (
    Device,
    Json,
    OwnFunction,
    Quiet,
    allow_function,
    check_positive_share,
    parse_path,
    select_device,
)
from dsui.cli.errors import UsageError
from dsui.cli.output import to_json_value
from dsui.cli.score_options import DetectorName, ForeignScore, Score, Two, parse_choice
from dsui.cli.terminal import write
from dsui.errors import DsuiError, Stopped
from dsui.spreadsheet import to_csv

if TYPE_CHECKING:
    from dsui.deploy.predictor import Predictor
    from dsui.deploy.score_choice import ScoreChoice
    from dsui.runs.acceptance import Thresholds
    from dsui.runtime.rows import PredictionRow

PART = ".part"
"""Ends the name of a file of predictions until it is complete."""


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", parser=parse_path)],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Image files, and folders of them; folders are searched at any depth. For a run on features: "
            "files of features, or images if the run knows its network.",
            metavar="PATH",
            parser=parse_path,
        ),
    ],
    coverage: Annotated[
        float | None,
        typer.Option(
            callback=check_positive_share,
            metavar="SHARE",
            help="Accept about this share of images like the training images, as in 0.95.",
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            callback=check_positive_share,
            metavar="SHARE",
            help="Accept as many as possible with at most this share of errors, as in 0.02.",
        ),
    ] = None,
    score: Score = None,
    two: Two = False,
    foreign_score: ForeignScore = None,
    detector: DetectorName = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=parse_path, help="Write to this file, .csv or .jsonl, instead of stdout."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Images in a forward pass.  [default: 128]")
    ] = None,
    device: Device = "auto",
    own_function: OwnFunction = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images, and accept or reject them.

    Prints a row for each image: class, probability, uncertainty, log-density, decision and the reason of a rejection,
    as CSV or, with --json, as JSON lines. The row of a file that cannot be read says why, and the exit status is then
    1. Without --coverage or --risk, the threshold that `dsui threshold --save` keeps in the run decides, if there is
    one. The verdict of `dsui evaluate` comes first, on stderr.

    Example: dsui predict runs/mine photos --coverage 0.95 --out predictions.csv
    """
    if coverage is not None and risk is not None:
        raise UsageError("choose --coverage or --risk, not both.")
    as_json = _writes_json(out, as_json)
    choice = parse_choice(score, foreign_score, two, detector)
    if coverage is None and risk is None and any(choice):
        raise UsageError("a score needs a threshold; add --coverage 0.95 or --risk 0.02.")
    allow_function(own_function)
    from dsui.cli.progress import ProgressBars, print_note
    from dsui.cli.terminal import stderr_console
    from dsui.cli.verdict import print_short_verdict
    from dsui.data.feature_file import ENDINGS
    from dsui.data.image_files import image_files
    from dsui.deploy.predictor import BATCH, Predictor
    from dsui.deploy.rows import feature_rows, rows

    predictor = Predictor.load(run, select_device(device))
    console = stderr_console(quiet)
    for sentence in predictor.model.facts.notes:
        print_note(console, sentence)
    if (accepting := _set_threshold(predictor, coverage, risk, choice)) is not None:
        console.print(accepting, soft_wrap=True)
    on_features = predictor.model.facts.config.on_features and all(path.suffix.lower() in ENDINGS for path in paths)
    counts = _Counts("row" if on_features else "image")
    with ExitStack() as closing:
        closing.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module="PIL")  # about odd files that it can read
        bars = closing.enter_context(ProgressBars(console))
        total = sum(1 for _ in image_files(paths)) if bars.live and not on_features else None
        try:
            with _open_output(out) as output:
                found = feature_rows(predictor, paths, batch or BATCH) if on_features else None
                for batch_rows in found or rows(predictor, image_files(paths), batch or BATCH):
                    if counts.files == 0:
                        print_short_verdict(console, predictor.model.facts)
                    output.write(_to_json(batch_rows) if as_json else _to_csv(batch_rows, counts.files == 0))
                    counts.add(batch_rows)
                    bars.update("predicting", counts.files, total)
                if counts.files == 0:
                    raise DsuiError(
                        f"there is no image in {', '.join(map(str, paths))}; name images or folders of them."
                    )
        except KeyboardInterrupt as error:
            if counts.files == 0:
                raise Stopped("stopped before the first file.") from error
            raise Stopped(f"stopped after {counts.files:,} files; their rows are {output.where}.") from error
    console.print(counts.summary(), soft_wrap=True)
    if counts.failed:
        raise DsuiError(f"{counts.failed:,} of {counts.files:,} files cannot be used; their rows say why.")


class _Counts:
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


def _set_threshold(predictor: Predictor, coverage: float | None, risk: float | None, choice: ScoreChoice) -> str | None:
    """Choose the threshold that is asked for, or leave the one that the run keeps; a sentence that says which."""
    if coverage is not None or risk is not None:
        return _describe(predictor.threshold(coverage, risk, **choice._asdict()))
    chosen = predictor.chosen
    return None if chosen is None else f"{_describe(chosen)} Saved in the run, by {chosen.asked.name}."


def _describe(chosen: Thresholds) -> str:
    return (
        f"Accepting {chosen.description}: {chosen.coverage:.1%} of the {chosen.images:,} calibration images, "
        f"{chosen.risk:.1%} of those wrong."
    )


def _writes_json(out: Path | None, as_json: bool) -> bool:
    ending = None if out is None else out.suffix.lower()
    if ending not in {None, ".csv", ".jsonl"} or (ending == ".csv" and as_json):
        wanted = "a file ending in .jsonl" if as_json else "a file ending in .csv or .jsonl"
        raise UsageError(f"--out {out} has the wrong ending; name {wanted}.")
    return as_json or ending == ".jsonl"


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


def _to_json(rows: Iterable[PredictionRow]) -> str:
    return "".join(f"{json.dumps(to_json_value(row.record()), allow_nan=False)}\n" for row in rows)
