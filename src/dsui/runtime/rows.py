"""Predictions of files as rows of a table: one for each file, also for files that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsui.data.decode import ImageError
from dsui.limits import Limit
from dsui.prediction import Prediction
from dsui.runtime.inputs import ImageForm, map_ahead, pixels_of_file
from dsui.runtime.predictor import BATCH, OnnxPredictor

ReadFile = tuple[Path, NDArray[np.uint8] | ImageError]
SHOWN = ("uncertainty", "log_density")
"""Scores that every row has a column for; that of the density holds the density itself, minus the score."""


@dataclass(frozen=True)
class PredictionRow:
    """The prediction of one file, or of one row of a file of features. Unknown fields are None: all but `file` and
    `error` where the file cannot be read."""

    file: str
    label: str | None = None
    probability: float | None = None
    uncertainty: float | None = None
    log_density: float | None = None
    """None where the method has no density."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Others that the thresholds are of."""
    decision: str | None = None
    """accept or reject; None where there is no threshold."""
    reason: str | None = None
    """Why it is rejected: uncertain, foreign, or uncertain and foreign."""
    error: str | None = None

    def record(self) -> dict[str, object]:
        """By the names of columns; each of the scores has a column of its own."""
        return {
            "file": self.file,
            "label": self.label,
            "probability": self.probability,
            "uncertainty": self.uncertainty,
            "log_density": self.log_density,
            **self.scores,
            "decision": self.decision,
            "reason": self.reason,
            "error": self.error,
        }


def rows(predictor: OnnxPredictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Rows of every file in order, a batch at a time, by an ONNX file."""
    more = further_scores(() if predictor.thresholds is None else predictor.thresholds.limits)
    return rows_of_files(files, predictor.form, lambda pixels: predictor.predict(pixels, batch), more, batch)


def rows_of_files(
    files: Iterable[Path],
    form: ImageForm,
    predict: Callable[[NDArray[np.uint8]], Prediction],
    more: Sequence[str],
    batch: int,
) -> Iterator[list[PredictionRow]]:
    """Rows by any model: `predict` takes [N, C, H, W], and `more` are the scores with a column of their own. Files are
    decoded in advance, a few batches at most."""
    decoded = map_ahead(files, lambda file: read_file(file, form), 2 * batch)
    while found := list(islice(decoded, batch)):
        yield rows_of_read(found, predict, more)


def read_file(file: Path, form: ImageForm) -> ReadFile:
    """A file and its pixels [C, H, W], or why it has none."""
    try:
        return file, pixels_of_file(file, form)
    except ImageError as error:
        return file, error


def rows_of_read(
    found: Sequence[ReadFile], predict: Callable[[NDArray[np.uint8]], Prediction], more: Sequence[str]
) -> list[PredictionRow]:
    """The rows of files that were read; one forward pass for all that could be."""
    readable = [pixels for _, pixels in found if not isinstance(pixels, ImageError)]
    predicted = rows_of(predict(np.stack(readable)), more) if readable else iter(())
    return [
        PredictionRow(str(file), scores=dict.fromkeys(more), error=" ".join(str(pixels).split()))
        if isinstance(pixels, ImageError)
        else replace(next(predicted), file=str(file))
        for file, pixels in found
    ]


def further_scores(limits: Iterable[Limit]) -> list[str]:
    """The scores of thresholds that need a column of their own."""
    return [limit.score for limit in limits if limit.score not in SHOWN]


def rows_of(prediction: Prediction, more: Iterable[str]) -> Iterator[PredictionRow]:
    """Rows without the name of their file; `more` scores are shown."""
    density, abnormal, reason = prediction.log_density, prediction.abnormal, prediction.reason
    for place in range(len(prediction)):
        yield PredictionRow(
            "",
            label=str(prediction.label[place]),
            probability=float(prediction.max_probability[place]),
            uncertainty=float(prediction.uncertainty[place]),
            log_density=None if density is None else float(density[place]),
            scores={name: float(prediction.scores[name][place]) for name in more},
            decision=None if abnormal is None else "reject" if abnormal[place] else "accept",
            reason=None if reason is None else str(reason[place]) or None,
        )
