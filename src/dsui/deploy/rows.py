"""Predictions of files as rows of a table: one for each file, also where it cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsui.data.decode import ImageError
from dsui.deploy.inputs import ahead, from_file
from dsui.deploy.predictor import BATCH, Predictor


class PredictionRow(NamedTuple):
    """What is not known is None: all but `file` and `error` where a file cannot be read."""

    file: str
    label: str | None
    probability: float | None
    uncertainty: float | None
    log_density: float | None
    """None where the method has no density."""
    decision: str | None
    """accept or reject; None where no threshold was chosen."""
    error: str | None


def rows(predictor: Predictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Of every file in order, a batch at a time; decoded ahead, and no more than a few batches in memory."""
    config = predictor.model.facts.config

    def read(file: Path) -> tuple[Path, NDArray[np.uint8] | ImageError]:
        try:
            return file, from_file(file, config.channels, config.size)
        except ImageError as error:
            return file, error

    pairs = ahead(files, read, 2 * batch)
    while found := list(islice(pairs, batch)):
        good = [pixels for _, pixels in found if not isinstance(pixels, ImageError)]
        predicted = iter(_predicted(predictor, np.stack(good)) if good else [])
        yield [
            PredictionRow(str(file), None, None, None, None, None, " ".join(str(pixels).split()))
            if isinstance(pixels, ImageError)
            else next(predicted)._replace(file=str(file))
            for file, pixels in found
        ]


def _predicted(predictor: Predictor, pixels: NDArray[np.uint8]) -> list[PredictionRow]:
    """Rows whose `file` is to be filled in."""
    made = predictor.predict(pixels, len(pixels))
    densities = [None] * len(made) if made.log_density is None else made.log_density.tolist()
    decisions = [None] * len(made) if made.abnormal is None else np.where(made.abnormal, "reject", "accept").tolist()
    columns = (made.label, made.max_probability.tolist(), made.uncertainty.tolist(), densities, decisions)
    return [
        PredictionRow("", str(label), probability, uncertainty, density, decision, None)
        for label, probability, uncertainty, density, decision in zip(*columns, strict=True)
    ]
