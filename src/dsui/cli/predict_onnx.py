"""`dsui predict` by an ONNX file; the whole of that command where PyTorch is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.errors import UsageError
from dsui.cli.plain_arguments import Json, Quiet, parse_path
from dsui.cli.prediction_rows import Batch, RowsFile, RowWriter, asks_for_json
from dsui.errors import DsuiError

if TYPE_CHECKING:
    from dsui.runtime.predictor import OnnxPredictor
    from dsui.runtime.rows import PredictionRow

    FeatureRows = Callable[[OnnxPredictor, list[Path], int], Iterator[list[PredictionRow]]]

ENDING = ".onnx"


def predict(
    model: Annotated[Path, typer.Argument(help="File of `dsui export`.", metavar="FILE.onnx", parser=parse_path)],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Image files, and folders of them; folders are searched at any depth.",
            metavar="PATH",
            parser=parse_path,
        ),
    ],
    out: RowsFile = None,
    batch: Batch = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images, and accept or reject them.

    Prints a row for each image: class, probability, uncertainty, log-density, decision and the reason of a rejection,
    as CSV or, with --json, as JSON lines. The row of a file that cannot be read says why, and the exit status is then
    1. The threshold inside the file decides, if it has one. The verdict of `dsui evaluate` comes first, on stderr.

    Example: dsui predict model.onnx photos --out predictions.csv
    """
    as_json = asks_for_json(out, as_json)
    if model.is_dir():
        raise UsageError(
            f"{model} is a folder, and dsui-runtime reads files of `dsui export` alone; a run needs pip install dsui."
        )
    predict_by_file(model, paths, out, batch, as_json, quiet)


def predict_by_file(
    model: Path,
    paths: list[Path],
    out: Path | None,
    batch: int | None,
    as_json: bool,
    quiet: bool,
    feature_rows: FeatureRows | None = None,
) -> None:
    """Write the rows of all images, or of files of features; `feature_rows` reads these where PyTorch is installed."""
    from dsui.cli.terminal import stderr_console
    from dsui.data.image_files import image_files
    from dsui.runtime.predictor import BATCH, OnnxPredictor
    from dsui.runtime.rows import rows

    predictor = OnnxPredictor(model)
    facts, console = predictor.facts, stderr_console(quiet)
    on_features = facts.input == "features"
    if on_features and feature_rows is None:
        raise DsuiError(
            f"{model} takes features and no images; use OnnxPredictor({str(model)!r}).predict(features) in Python."
        )
    if facts.saved_threshold is not None:
        console.print(facts.saved_threshold, soft_wrap=True)
    found = feature_rows(predictor, paths, batch or BATCH) if on_features and feature_rows is not None else None
    RowWriter(out, as_json, console, "row" if on_features else "image").write(
        found or rows(predictor, image_files(paths), batch or BATCH),
        paths,
        lambda: None if on_features else sum(1 for _ in image_files(paths)),
        lambda: facts.short_verdict,
    )
