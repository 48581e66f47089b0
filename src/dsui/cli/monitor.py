"""`dsui monitor`: whether the images of a stream of predictions are still like the calibration images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsui.cli.errors import as_usage_errors
from dsui.cli.json_output import print_json
from dsui.cli.plain_arguments import Json, Quiet, check_positive_share, parse_path
from dsui.cli.terminal import print_line
from dsui.errors import DataError
from dsui.installed import has_everything

if TYPE_CHECKING:
    from dsui.monitoring.promise import Promise

ALARM = 1
"""The exit status; it is 0 without an alarm, and 2 if something is wrong with the command or its files."""


def monitor(
    predictions: Annotated[
        Path,
        typer.Argument(
            metavar="PREDICTIONS",
            parser=parse_path,
            help="What `dsui predict --out` wrote, .csv or .jsonl; its order is that of time.",
        ),
    ],
    run: Annotated[
        Path,
        typer.Option(
            metavar="RUN", parser=parse_path, help="The run that predicted, or the model.onnx exported from it."
        ),
    ],
    coverage: Annotated[
        float | None,
        typer.Option(
            callback=check_positive_share,
            metavar="SHARE",
            help="The --coverage that `dsui predict` was given, if it was not the saved threshold that decided.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=parse_path,
            help="True classes that are known by now: .csv or .jsonl with the columns file and label. The risk among "
            "accepted images is then watched too.",
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            callback=check_positive_share,
            metavar="SHARE",
            help="For --labels: the largest share of errors among accepted images.  [default: what the saved "
            "threshold promised]",
        ),
    ] = None,
    false_alarm: Annotated[
        float,
        typer.Option(
            callback=check_positive_share,
            metavar="CHANCE",
            help="The largest chance of an alarm, over any number of images, if nothing changes.",
        ),
    ] = 0.01,
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle",
            help="The order of the rows means nothing, as in a folder sorted by class; take them in any order.",
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Watch predictions, and raise an alarm when they leave what calibration promised.

    Tests whether images are accepted as often, and their scores are spread as those of the calibration images, at every
    image of the stream at once. The exit status is 0 without an alarm and 1 with one, as of grep and diff; 2 if
    something is wrong with the command or its files.

    Example: dsui monitor predictions.csv --run runs/mine
    """
    del quiet  # this command prints nothing but its result
    with as_usage_errors():
        from dsui.monitoring.predictions import read_labels, read_predictions
        from dsui.monitoring.watch import watch

        found = watch(
            read_predictions(predictions),
            promise_of(run, coverage),
            false_alarm=false_alarm,
            labels=None if labels is None else read_labels(labels),
            risk=risk,
            shuffled=shuffle,
        )
    if as_json:
        print_json(found.to_mapping())
    else:
        for sentence in (found.sentence, *(each.sentence for each in found.monitors)):
            print_line(sentence)
        if found.alarm and not shuffle:
            print_line("If the order of the rows means nothing, as in a folder sorted by class, add --shuffle.")
    raise typer.Exit(ALARM if found.alarm else 0)


def promise_of(run: Path, coverage: float | None) -> Promise:
    """What a run or a model.onnx promised."""
    from dataclasses import replace

    if run.suffix.lower() == ".onnx":
        promise = _promise_of_file(run)
    elif not has_everything():
        raise DataError(f"{run} is no file of `dsui export`, and dsui-runtime reads nothing else; name one.")
    else:
        from dsui.deploy.promised import promise_of_run

        promise = promise_of_run(run)
    if coverage is None:
        return promise
    return replace(promise, limits=("uncertainty",), asked_coverage=coverage, asked_risk=None, most={})


def _promise_of_file(path: Path) -> Promise:
    """From the metadata of a model.onnx."""
    from dsui.monitoring.promise import Promise
    from dsui.runtime.model_file import read_model

    try:
        return Promise.of_metadata(read_model(path).metadata)
    except ValueError as error:
        raise DataError(f"{path} cannot be used ({error}); name a file that `dsui export` wrote.") from error
