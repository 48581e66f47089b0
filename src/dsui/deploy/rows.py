"""Predictions of files as rows of a table: one for each file, also for files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsui.data.decode import ImageError
from dsui.data.feature_file import read_feature_file
from dsui.deploy.inputs import from_file, map_ahead
from dsui.deploy.predictor import BATCH, Predictor
from dsui.errors import DataError


class PredictionRow(NamedTuple):
    """The prediction of one file, or of one row of a file of features. Unknown fields are None: all but `file` and
    `error` where the file cannot be read."""

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
    """Rows of every file in order, a batch at a time. Files are decoded in advance, a few batches at most."""
    form = predictor.form

    def read(file: Path) -> tuple[Path, NDArray[np.uint8] | ImageError]:
        try:
            return file, from_file(file, form.channels, form.size, form.preparation)
        except ImageError as error:
            return file, error

    decoded = map_ahead(files, read, 2 * batch)
    while found := list(islice(decoded, batch)):
        readable = [pixels for _, pixels in found if not isinstance(pixels, ImageError)]
        predicted = iter(_predict(predictor, np.stack(readable)) if readable else [])
        yield [
            PredictionRow(str(file), None, None, None, None, None, " ".join(str(pixels).split()))
            if isinstance(pixels, ImageError)
            else next(predicted)._replace(file=str(file))
            for file, pixels in found
        ]


def feature_rows(predictor: Predictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Rows of every vector in files of features, in order; `file` is the name that the file gives it."""
    width = predictor.model.facts.config.channels
    for path in files:
        found = read_feature_file(path)
        if found.features.shape[1] != width:
            raise DataError(
                f"{path} has {found.features.shape[1]:,} features in a row and the model takes {width:,}; name "
                "features of the same network."
            )
        for start in range(0, len(found.features), batch):
            predicted = _predict(predictor, found.features[start : start + batch])
            yield [row._replace(file=found.name_of(start + place)) for place, row in enumerate(predicted)]


def _predict(predictor: Predictor, pixels: NDArray[np.uint8] | Tensor) -> list[PredictionRow]:
    """Rows without the name of their file."""
    prediction = predictor.predict(pixels, len(pixels))
    density, abnormal = prediction.log_density, prediction.abnormal
    columns = (
        prediction.label,
        prediction.max_probability.tolist(),
        prediction.uncertainty.tolist(),
        [None] * len(prediction) if density is None else density.tolist(),
        [None] * len(prediction) if abnormal is None else np.where(abnormal, "reject", "accept").tolist(),
    )
    return [
        PredictionRow("", str(label), probability, uncertainty, log_density, decision, None)
        for label, probability, uncertainty, log_density, decision in zip(*columns, strict=True)
    ]
