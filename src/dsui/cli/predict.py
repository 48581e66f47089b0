"""`dsui predict`: classes and uncertainties of image files; a calibrated threshold accepts or rejects them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.arguments import Device, OwnFunction, allow_function, check_name, select_device
from dsui.cli.errors import UsageError
from dsui.cli.plain_arguments import Json, Quiet, check_positive_share, parse_path
from dsui.cli.predict_onnx import ENDING, predict_by_file
from dsui.cli.predict_ray import check_options, predict_by_ray
from dsui.cli.prediction_rows import Batch, RowsFile, RowWriter, asks_for_json
from dsui.cli.score_options import DetectorName, ForeignScore, Score, Two, parse_choice
from dsui.hub import fetch, is_hub_name

if TYPE_CHECKING:
    from dsui.deploy.predictor import Predictor
    from dsui.deploy.score_choice import ScoreChoice

ENGINES = ("local", "ray")


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a trained run, a file of `dsui export`, or a model of the hub, hf:USER/NAME.",
            metavar="RUN|FILE.onnx",
            parser=parse_path,
        ),
    ],
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
    out: RowsFile = None,
    batch: Batch = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local, or ray: a cluster, which writes Parquet to --out FOLDER.")
    ] = "local",
    device: Device = "auto",
    own_function: OwnFunction = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images, and accept or reject them.

    Prints a row for each image: class, probability, uncertainty, log-density, decision and the reason of a rejection,
    as CSV or, with --json, as JSON lines. The row of a file that cannot be read says why, and the exit status is then
    1. Without --coverage or --risk, the threshold that `dsui threshold --save` keeps in the run decides, if there is
    one. An ONNX file has its threshold inside. The verdict of `dsui evaluate` comes first, on stderr.
    --engine ray answers for millions of files on a cluster, and goes on where it was stopped.

    Example: dsui predict runs/mine photos --coverage 0.95 --out predictions.csv
    """
    if coverage is not None and risk is not None:
        raise UsageError("choose --coverage or --risk, not both.")
    choice = parse_choice(score, foreign_score, two, detector)
    run = fetch(str(run), quiet) if is_hub_name(run) else run
    if check_name("engine", engine, ENGINES) == "ray":
        other_threshold = coverage is not None or risk is not None or any(choice)
        folder = check_options(out, as_json, other_threshold, own_function)
        predict_by_ray(run, paths, folder, batch, device, quiet)
        return
    as_json = asks_for_json(out, as_json)
    if run.suffix.lower() == ENDING:
        _check_options_of_a_file(run, coverage is not None or risk is not None or any(choice), device, own_function)
        from dsui.deploy.rows import exported_feature_rows

        predict_by_file(run, paths, out, batch, as_json, quiet, exported_feature_rows)
        return
    if coverage is None and risk is None and any(choice):
        raise UsageError("a score needs a threshold; add --coverage 0.95 or --risk 0.02.")
    allow_function(own_function)
    from dsui.cli.progress import print_note
    from dsui.cli.terminal import stderr_console
    from dsui.data.feature_file import ENDINGS
    from dsui.data.image_files import image_files
    from dsui.deploy.predictor import BATCH, Predictor
    from dsui.deploy.rows import feature_rows, rows
    from dsui.evaluation.verdict import short_verdict

    predictor = Predictor.load(run, select_device(device))
    console = stderr_console(quiet)
    for sentence in predictor.model.facts.notes:
        print_note(console, sentence)
    if (accepting := _set_threshold(predictor, coverage, risk, choice)) is not None:
        console.print(accepting, soft_wrap=True)
    on_features = predictor.model.facts.config.on_features and all(path.suffix.lower() in ENDINGS for path in paths)
    found = feature_rows(predictor, paths, batch or BATCH) if on_features else None
    RowWriter(out, as_json, console, "row" if on_features else "image").write(
        found or rows(predictor, image_files(paths), batch or BATCH),
        paths,
        lambda: None if on_features else sum(1 for _ in image_files(paths)),
        lambda: short_verdict(predictor.model.facts),
    )


def _check_options_of_a_file(file: Path, other_threshold: bool, device: str, own_function: str | None) -> None:
    """Raise if an option cannot be kept by an ONNX file."""
    if other_threshold:
        raise UsageError(
            f"the threshold is inside {file}, so --coverage, --risk and scores cannot change it; choose one with "
            "dsui threshold RUN --save, and export again."
        )
    if device not in {"auto", "cpu"}:
        raise UsageError(f"{file} is computed by ONNX Runtime on the CPU; leave out --device.")
    if own_function is not None:
        raise UsageError(f"{file} holds its network; leave out --backbone.")


def _set_threshold(predictor: Predictor, coverage: float | None, risk: float | None, choice: ScoreChoice) -> str | None:
    """Choose the threshold that is asked for, or leave the one that the run keeps; a sentence that says which."""
    if coverage is not None or risk is not None:
        return predictor.threshold(coverage, risk, **choice._asdict()).sentence
    return None if predictor.chosen is None else predictor.chosen.saved_sentence
