"""Predictions of files as rows of a table: one for each file, also for files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsui.data.decode import ImageError
from dsui.deploy.inputs import from_file, map_ahead
from dsui.deploy.predictor import BATCH, Predictor

SHOWN = ("uncertainty", "log_density")
"""Scores that every row has a column for; that of the density holds the density itself, minus the score."""


@dataclass(frozen=True)
class PredictionRow:
    """The prediction of one file. Unknown fields are None: all but `file` and `error` where the file cannot be read."""

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


def rows(predictor: Predictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Rows of every file in order, a batch at a time. Files are decoded in advance, a few batches at most."""
    config = predictor.model.facts.config
    limits = predictor.chosen.limits if predictor.chosen else ()
    more = [limit.score for limit in limits if limit.score not in SHOWN]

    def read(file: Path) -> tuple[Path, NDArray[np.uint8] | ImageError]:
        try:
            return file, from_file(file, config.channels, config.size)
        except ImageError as error:
            return file, error

    decoded = map_ahead(files, read, 2 * batch)
    while found := list(islice(decoded, batch)):
        readable = [pixels for _, pixels in found if not isinstance(pixels, ImageError)]
        predicted = _predict(predictor, np.stack(readable), more) if readable else iter(())
        yield [
            PredictionRow(str(file), scores=dict.fromkeys(more), error=" ".join(str(pixels).split()))
            if isinstance(pixels, ImageError)
            else replace(next(predicted), file=str(file))
            for file, pixels in found
        ]


def _predict(predictor: Predictor, pixels: NDArray[np.uint8], more: Iterable[str]) -> Iterator[PredictionRow]:
    """Rows without the name of their file; `more` scores are shown."""
    prediction = predictor.predict(pixels, len(pixels))
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
