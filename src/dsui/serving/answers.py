"""What a client hears about an image: the columns of `dsui predict --json`, and why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dsui.runtime import Prediction
from dsui.serving.served_model import ServedModel

NEAREST = 5
"""Classes that an answer names."""


def answer_about(
    model: ServedModel, file: str, prediction: Prediction, row: int, every_class: bool = False
) -> dict[str, Any]:
    """About the image of this row; `every_class` lists all probabilities instead of the largest."""
    probabilities = prediction.probabilities[row]
    order = np.argsort(-probabilities, kind="stable")[: None if every_class else NEAREST]
    classes = model.predictor.classes
    abnormal = None if prediction.abnormal is None else bool(prediction.abnormal[row])
    return {
        "file": file,
        "label": str(prediction.label[row]),
        "probability": finite(prediction.max_probability[row]),
        "uncertainty": finite(prediction.uncertainty[row]),
        "percentiles": _percentiles(model, prediction, row),
        "log_density": None if prediction.log_density is None else finite(prediction.log_density[row]),
        "scores": {name: finite(values[row]) for name, values in prediction.scores.items()},
        "decision": None if abnormal is None else "reject" if abnormal else "accept",
        "reason": None if prediction.reason is None else str(prediction.reason[row]) or None,
        "classes": [
            {"label": str(classes[place]), "probability": finite(probabilities[place])} for place in order.tolist()
        ],
        "error": None,
    }


def answer_without(file: str, error: str) -> dict[str, Any]:
    """About a file that cannot be used."""
    return {
        "file": file,
        "label": None,
        "probability": None,
        "uncertainty": None,
        "percentiles": {},
        "log_density": None,
        "scores": {},
        "decision": None,
        "reason": None,
        "classes": [],
        "error": error,
    }


def finite(value: Any) -> float | None:
    """The number, or None for NaN and infinity, which JSON does not have."""
    number = float(value)
    return number if math.isfinite(number) else None


def _percentiles(model: ServedModel, prediction: Prediction, row: int) -> dict[str, float]:
    """The places of the scores that were calibrated."""
    found = {}
    for score in model.scale.scores:
        values = getattr(prediction, score)
        if values is not None and (place := model.scale.percentile(score, float(values[row]))) is not None:
            found[score] = round(place, 2)
    return found
