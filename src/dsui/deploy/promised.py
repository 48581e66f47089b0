"""What the calibration and the saved thresholds of a run promise of new images, for monitors."""

from __future__ import annotations

from pathlib import Path

from dsui.monitoring.promise import Promise
from dsui.runs.calibration import stored_calibration
from dsui.runs.model import run_facts
from dsui.runs.saved_thresholds import saved_thresholds


def promise_of_run(run: Path) -> Promise:
    """With all calibration scores that the run stores; an error where it has no calibration images."""
    facts = run_facts(run)
    calibration = stored_calibration(facts)
    calibration.check()
    chosen = saved_thresholds(run)
    scores = {name: values.tolist() for name, values in calibration.all_scores.items()}
    images = len(calibration.errors)
    if chosen is None:
        return Promise(images, scores=scores, classes=facts.classes)
    return Promise(
        images,
        limits=tuple(limit.score for limit in chosen.limits),
        asked_coverage=chosen.asked.coverage,
        asked_risk=chosen.asked.risk,
        accepted=chosen.coverage,
        scores=scores,
        most={limit.score: limit.value for limit in chosen.limits},
        classes=facts.classes,
    )
