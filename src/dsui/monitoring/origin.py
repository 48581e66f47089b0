"""Whether rows can be those of a run: predictions of another run would raise an alarm that means nothing."""

from __future__ import annotations

import numpy as np

from dsui.errors import DataError
from dsui.excerpt import excerpt
from dsui.monitoring.predictions import Predictions
from dsui.monitoring.promise import Promise

ROUNDING = 1e-3
"""Of a limit: scores as near as this to it may be decided either way by an ONNX file, which has fewer digits."""


def check_origin(found: Predictions, promise: Promise) -> None:
    """Raise a DataError where labels are no classes of the run, or decisions not those of its threshold."""
    if found.images == 0:
        raise DataError("there is no predicted image in the rows; name a file that `dsui predict` wrote.")
    if promise.classes and (unknown := set(found.labels).difference(promise.classes)):
        raise DataError(f"the label {excerpt(min(unknown))} is no class of this run; name the run that predicted.")
    if not promise.most or None in found.decisions or not set(promise.most) <= set(found.scores):
        return
    scores = np.array([found.scores[name] for name in promise.most])  # [limits, images]
    most = np.array(list(promise.most.values()))[:, None]
    near = np.abs(scores - most) <= ROUNDING * np.maximum(1, np.abs(most))
    wrong = ((scores <= most).all(0) != np.array(found.decisions, dtype=bool)) & ~near.any(0)
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} of {found.images:,} decisions are not those of the threshold that this run keeps; "
            "name the run that predicted, or give the --coverage that `dsui predict` was given."
        )
