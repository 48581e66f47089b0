"""All monitors of one file of predictions: the core of `dsui monitor`, without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsui.errors import DataError
from dsui.monitoring.acceptance import AcceptanceMonitor
from dsui.monitoring.alarm import count
from dsui.monitoring.origin import check_origin
from dsui.monitoring.predictions import Predictions
from dsui.monitoring.promise import Monitor, Promise
from dsui.monitoring.risk import RiskMonitor
from dsui.monitoring.uncertainty import UncertaintyMonitor


@dataclass(frozen=True)
class Watch:
    """What the monitors found. If nothing changed, any of them has an alarm with a chance of at most `false_alarm`."""

    monitors: list[Monitor]
    images: int
    skipped: int
    false_alarm: float

    @property
    def alarm(self) -> bool:
        return any(monitor.alarm for monitor in self.monitors)

    @property
    def sentence(self) -> str:
        """The headline for people."""
        skipped = f", {self.skipped:,} that could not be read left out" if self.skipped else ""
        if not self.alarm:
            return f"No alarm over {count(self.images)}{skipped}."
        return (
            f"ALARM over {count(self.images)}{skipped}: they are not like the calibration images. Look at the latest "
            "ones, and choose a new threshold on images like them."
        )

    def to_mapping(self) -> dict[str, object]:
        """For JSON."""
        return {
            "alarm": self.alarm,
            "false_alarm": self.false_alarm,
            "images": self.images,
            "skipped": self.skipped,
            "sentence": self.sentence,
            "monitors": [monitor.to_mapping() for monitor in self.monitors],
        }


def watch(
    found: Predictions,
    promise: Promise,
    *,
    false_alarm: float = 0.01,
    labels: Mapping[str, str] | None = None,
    risk: float | None = None,
    shuffled: bool = False,
) -> Watch:
    """Run every monitor over the rows, in their order or, if `shuffled`, in an order by chance with a fixed seed.

    With the true `labels` of files, accepted images must not be wrong more often than `risk`, or than the threshold
    promised; images without a label are left out of that. A DataError where nothing can be watched.
    """
    check_origin(found, promise)
    promised_risk = promise.asked_risk if risk is None else risk
    if labels is not None and promised_risk is None:
        raise DataError("no risk was promised for this threshold; name the one to watch with --risk 0.02.")
    parts = 2 if labels is not None else 1
    decided = bool(found.decisions) and None not in found.decisions
    monitors = promise.monitors(false_alarm / parts, decided=decided, scored=list(found.scores))
    order = np.random.default_rng(0).permutation(found.images) if shuffled else np.arange(found.images)
    for monitor in monitors:
        if isinstance(monitor, AcceptanceMonitor):
            monitor.update(np.array(found.decisions, dtype=bool)[order])
        elif isinstance(monitor, UncertaintyMonitor):
            monitor.update(np.array(found.scores[monitor.score], dtype=np.float64)[order])
    if labels is not None:
        assert promised_risk is not None
        monitors.append(_risk(found, labels, promised_risk, false_alarm / (parts if monitors else 1), order.tolist()))
    if not monitors:
        raise DataError(
            "nothing can be watched: the rows have neither decisions nor a score whose calibration values are known; "
            "predict with a threshold, or with a run that has ten calibration images or more."
        )
    return Watch(monitors, found.images, found.skipped, false_alarm)


def _risk(
    found: Predictions, labels: Mapping[str, str], promised: float, false_alarm: float, order: list[int]
) -> RiskMonitor:
    monitor = RiskMonitor(promised, false_alarm=false_alarm)
    kept = [place for place in order if found.decisions[place] is not False and found.files[place] in labels]
    if not kept:
        raise DataError("no accepted image has a label; write the names of files as the predictions have them.")
    monitor.update(np.array([found.labels[place] != labels[found.files[place]] for place in kept]))
    return monitor
