"""The place of a model in the server, where a new version takes over while the old one answers what it took."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import numpy as np

from dsui.errors import DsuiError
from dsui.monitoring.acceptance import AcceptanceMonitor
from dsui.monitoring.promise import Monitor, Promise
from dsui.monitoring.uncertainty import UncertaintyMonitor
from dsui.runtime import Prediction
from dsui.serving.logs import write_event
from dsui.serving.metrics import Metrics
from dsui.serving.served_model import ServedModel
from dsui.serving.settings import ServerSettings
from dsui.serving.source import exported

FALSE_ALARM = 0.01
"""The chance that any monitor of a model ever raises an alarm while nothing has changed, at most."""
CALIBRATED = ("uncertainty", "foreignness")
"""Scores whose quantiles a model may know."""
ACCEPTED, REJECTED, UNDECIDED, UNREADABLE = "accepted", "rejected", "undecided", "unreadable"


class ModelSlot:
    """A model by name."""

    def __init__(self, name: str, source: Path, settings: ServerSettings, metrics: Metrics) -> None:
        self.name, self.source, self.metrics = name, source, metrics
        self._settings = settings
        self._retiring: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self.counts = dict.fromkeys((ACCEPTED, REJECTED, UNDECIDED, UNREADABLE), 0)
        """Images by what became of them, since the server began."""
        self.reload_failed = False
        self.current = self._load()
        self.monitors: dict[str, Monitor] = {}
        self._begin_watching()
        metrics.queue.labels(name).set_function(lambda: self.current.batcher.queued)
        metrics.admitted.labels(name).set_function(lambda: self.current.batcher.admitted)
        metrics.info.labels(name, self.current.version).set(1)
        metrics.stale.labels(name).set(0)

    async def reload(self) -> bool:
        """Put the file's present content in use; where it cannot be used, the model before it goes on."""
        async with self._reloading:
            try:
                new = await asyncio.to_thread(self._load)
            except (DsuiError, ValueError, OSError) as error:
                self.reload_failed = True
                self.metrics.stale.labels(self.name).set(1)
                self.metrics.reloads.labels(self.name, "failed").inc()
                write_event(
                    logging.ERROR, "reload failed", model=self.name, version=self.current.version, reason=str(error),
                    kept=True,
                )  # fmt: skip
                return False
            old, self.current = self.current, new
            self.reload_failed = False
            new.batcher.start()
            self.metrics.stale.labels(self.name).set(0)
            self.metrics.reloads.labels(self.name, "done").inc()
            if new.version != old.version:  # the same file keeps its alarms
                self._begin_watching()
                self.metrics.info.remove(self.name, old.version)
                self.metrics.info.labels(self.name, new.version).set(1)
            write_event(logging.INFO, "reloaded", model=self.name, version=new.version, before=old.version)
            task = asyncio.create_task(old.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            return True

    async def close(self) -> None:
        """Answer what was let in, by this version and those before it."""
        await asyncio.gather(self.current.retire(), *self._retiring)

    def count_unreadable(self, images: int) -> None:
        self._count(UNREADABLE, images)

    @property
    def acceptance_rate(self) -> float | None:
        """The share of the decided images that were accepted; None before the first."""
        decided = self.counts[ACCEPTED] + self.counts[REJECTED]
        return self.counts[ACCEPTED] / decided if decided else None

    def _load(self) -> ServedModel:
        with exported(self.source) as file:
            return ServedModel(self.name, file, self._settings, self._after)

    def _begin_watching(self) -> None:
        """Anew with another model, because it has promises of its own."""
        for kind in self.monitors:
            self.metrics.wealth.remove(self.name, kind)
            self.metrics.alarm.remove(self.name, kind)
        self.monitors = self._new_monitors()
        for kind, monitor in self.monitors.items():
            self._show(kind, monitor)

    def _new_monitors(self) -> dict[str, Monitor]:
        """Of the promises of the current model."""
        thresholds, calibration = self.current.facts.thresholds, self.current.facts.calibration
        if (known := calibration or thresholds) is None:
            return {}
        quantiles = {} if calibration is None else calibration._asdict()
        promise = Promise(
            images=known.images,
            limits=() if thresholds is None else tuple(limit.score for limit in thresholds.limits),
            asked_coverage=None if thresholds is None else thresholds.asked.coverage,
            asked_risk=None if thresholds is None else thresholds.asked.risk,
            accepted=None if thresholds is None else thresholds.coverage,
            quantiles={name: quantiles[name] for name in CALIBRATED if quantiles.get(name) is not None},
        )
        found = promise.monitors(FALSE_ALARM, decided=thresholds is not None, scored=CALIBRATED)
        return {getattr(monitor, "score", monitor.kind): monitor for monitor in found}

    def _after(self, model: ServedModel, prediction: Prediction, images: int, seconds: float) -> None:
        """Count a batch."""
        metrics, name = self.metrics, self.name
        metrics.batches.labels(name).observe(images)
        metrics.batch_seconds.labels(name).observe(seconds)
        metrics.probabilities.add(name, "max_probability", prediction.max_probability)
        for score in model.scale.scores:
            values = getattr(prediction, score, None)
            places = None if values is None else model.scale.percentiles(score, values)
            if places is not None:
                metrics.percentiles.add(name, score, places)
        if prediction.abnormal is None:
            self._count(UNDECIDED, images)
        else:
            rejected = int(np.count_nonzero(prediction.abnormal))
            self._count(ACCEPTED, images - rejected)
            self._count(REJECTED, rejected)
        if model.version == self.current.version:  # the monitors of an older one ended with it
            for kind, monitor in self.monitors.items():
                self._watch(kind, monitor, prediction)

    def _count(self, decision: str, images: int) -> None:
        self.counts[decision] += images
        self.metrics.images.labels(self.name, decision).inc(images)

    def _watch(self, kind: str, monitor: Monitor, prediction: Prediction) -> None:
        known = monitor.alarm
        if isinstance(monitor, AcceptanceMonitor) and prediction.abnormal is not None:
            monitor.update(~prediction.abnormal)
        elif isinstance(monitor, UncertaintyMonitor):
            monitor.update(getattr(prediction, kind))
        self._show(kind, monitor)
        if monitor.alarm and not known:
            write_event(logging.WARNING, "alarm", model=self.name, monitor=kind, sentence=monitor.sentence)

    def _show(self, kind: str, monitor: Monitor) -> None:
        self.metrics.wealth.labels(self.name, kind).set(monitor.value)
        self.metrics.alarm.labels(self.name, kind).set(int(monitor.alarm))
