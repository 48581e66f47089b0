"""What the thresholds that a run keeps accept of evaluated images, as metrics of the rows of `uncertainty`.

accepted_positive   share of the errors, or of the foreign images, that is accepted
accepted_negative   share of the correctly predicted, or of the in-domain images
accepted_by         the largest accepted value of the first score: which thresholds these were
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from dsui.errors import RunError
from dsui.runs.acceptance import Thresholds
from dsui.runs.model import RunFacts, predicts_as_trained
from dsui.runs.saved_thresholds import saved_thresholds

POSITIVE, NEGATIVE, BY = "accepted_positive", "accepted_negative", "accepted_by"


def usable_thresholds(run: RunFacts, warn: Callable[[str], None] = lambda _sentence: None) -> Thresholds | None:
    """None where the run keeps none, or where another method predicts than it was trained with; thresholds that cannot
    be used are no obstacle to an evaluation, and `warn` gets the sentence."""
    try:
        return saved_thresholds(run.path) if predicts_as_trained(run) else None
    except RunError as error:
        warn(str(error))
        return None


def acceptance(thresholds: Thresholds | None, scores: Mapping[str, Tensor], positive: Tensor) -> dict[str, float]:
    """From scores by name and marks, [N] each; empty where a score of the thresholds was not computed, as that of a
    detector, or where there are images of one kind only."""
    if thresholds is None or any(limit.score not in scores for limit in thresholds.limits):
        return {}
    accepted = thresholds.accepted(scores).to(positive.device).double()
    if not 0 < int(positive.sum()) < len(positive):
        return {}
    return {
        POSITIVE: float(accepted[positive].mean()),
        NEGATIVE: float(accepted[~positive].mean()),
        BY: thresholds.value,
    }
