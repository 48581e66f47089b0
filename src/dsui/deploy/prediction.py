"""Predictions from the outputs of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsui.deploy.scorer import Scorer
from dsui.outputs import Outputs
from dsui.prediction import Prediction
from dsui.runs.acceptance import Thresholds
from dsui.scores import entropy, log_density


def prediction_of(
    outputs: Outputs,
    classes: NDArray[Any],
    scorer: Scorer,
    thresholds: Thresholds | None,
    temperature: float | None = None,
) -> Prediction:
    """`classes` [C] are the names of the labels. Probabilities are softmax(logits / temperature), and scores are those
    of the logits."""
    logits = outputs.logits.double() / (temperature or 1.0)
    probabilities = logits.softmax(1).cpu().numpy()
    scores = scorer.scores(outputs)
    limits = () if thresholds is None else thresholds.limits
    return Prediction(
        label=classes[outputs.predictions.cpu().numpy()],
        probabilities=probabilities,
        max_probability=probabilities.max(1),
        entropy=entropy(logits).exp().cpu().numpy(),
        log_density=None if outputs.log_joint is None else -log_density(outputs.log_joint).cpu().numpy(),
        uncertainty=scores["uncertainty"].numpy(),
        abnormal=None if thresholds is None else ~thresholds.accepted(scores).numpy(),
        reason=None if thresholds is None else np.array(thresholds.reasons(scores), dtype=str),
        scores={limit.score: scores[limit.score].numpy() for limit in limits},
        foreignness=scores["foreignness"].numpy() if "foreignness" in scores else None,
    )
