"""Rows of a table (`dsui.runtime.rows`) by a trained run: for each file, or each row of a file of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from dsui.data.feature_file import read_feature_file
from dsui.deploy.predictor import BATCH, Predictor
from dsui.errors import DataError
from dsui.prediction import Prediction
from dsui.runtime.predictor import OnnxPredictor
from dsui.runtime.rows import PredictionRow, further_scores, rows_of, rows_of_files


def rows(predictor: Predictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Rows of every file in order, a batch at a time."""
    return rows_of_files(
        files, predictor.form, lambda pixels: predictor.predict(pixels, len(pixels)), _further_scores(predictor), batch
    )


def feature_rows(predictor: Predictor, files: Iterable[Path], batch: int = BATCH) -> Iterator[list[PredictionRow]]:
    """Rows of every vector in files of features, in order; `file` is the name that the file gives it."""
    width, more = predictor.model.facts.config.channels, _further_scores(predictor)
    return _feature_rows(files, width, lambda features: predictor.predict(features, len(features)), more, batch)


def exported_feature_rows(
    predictor: OnnxPredictor, files: Iterable[Path], batch: int = BATCH
) -> Iterator[list[PredictionRow]]:
    """The same by an ONNX file that takes features."""
    more = further_scores(() if predictor.thresholds is None else predictor.thresholds.limits)
    return _feature_rows(files, predictor.facts.channels, lambda each: predictor.predict(each.numpy()), more, batch)


def _feature_rows(
    files: Iterable[Path], width: int, predict: Callable[[Tensor], Prediction], more: Sequence[str], batch: int
) -> Iterator[list[PredictionRow]]:
    for path in files:
        found = read_feature_file(path)
        if found.features.shape[1] != width:
            raise DataError(
                f"{path} has {found.features.shape[1]:,} features in a row and the model takes {width:,}; name "
                "features of the same network."
            )
        for start in range(0, len(found.features), batch):
            predicted = rows_of(predict(found.features[start : start + batch].float()), more)
            yield [replace(row, file=found.name_of(start + place)) for place, row in enumerate(predicted)]


def _further_scores(predictor: Predictor) -> list[str]:
    return further_scores(predictor.chosen.limits if predictor.chosen else ())
