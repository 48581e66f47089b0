"""The place of a model in the server, where a new version takes over while the old one answers what it took."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np

from dsui.errors import DsuiError
from dsui.monitoring import AcceptanceMonitor, UncertaintyMonitor
from dsui.monitoring.uncertainty import LEAST
from dsui.runtime import Prediction
from dsui.serving.logs import write_event
from dsui.serving.metrics import Metrics
from dsui.serving.served_model import ServedModel
from dsui.serving.settings import ServerSettings
from dsui.serving.source import exported

RISK_CHOICES = 20
"""Coverages among which `--risk` chooses (`dsui.runs.threshold`)."""
ACCEPTED, REJECTED, UNDECIDED, UNREADABLE = "accepted", "rejected", "undecided", "unreadable"


class ModelSlot:
    """A model by name; `folder` is for the temporary files of runs."""

    def __init__(self, name: str, source: Path, folder: Path, settings: ServerSettings, metrics: Metrics) -> None:
        self.name, self.source, self.metrics = name, source, metrics
        self._folder, self._settings = folder, settings
        self._retiring: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self.counts = dict.fromkeys((ACCEPTED, REJECTED, UNDECIDED, UNREADABLE), 0)
        """Images by what became of them, since the server began."""
        self.reload_failed = False
        self.current = self._load()
        self.monitors = self._new_monitors()
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
            self.monitors = self._new_monitors()
            self.reload_failed = False
            new.batcher.start()
            self.metrics.stale.labels(self.name).set(0)
            self.metrics.reloads.labels(self.name, "done").inc()
            if new.version != old.version:
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

    def count_unreadable(self) -> None:
        self.counts[UNREADABLE] += 1
        self.metrics.images.labels(self.name, UNREADABLE).inc()

    @property
    def acceptance_rate(self) -> float | None:
        """The share of the decided images that were accepted; None before the first."""
        decided = self.counts[ACCEPTED] + self.counts[REJECTED]
        return self.counts[ACCEPTED] / decided if decided else None

    def _load(self) -> ServedModel:
        file = exported(self.source, self._folder)
        try:
            return ServedModel(self.name, file, self._settings, self._after)
        finally:
            if file != self.source:
                file.unlink(missing_ok=True)

    def _new_monitors(self) -> dict[str, Any]:
        """They begin anew with every model, because each has promises of its own."""
        thresholds, calibration = self.current.facts.thresholds, self.current.facts.calibration
        monitors: dict[str, Any] = {}
        if thresholds is not None:
            rank = round(thresholds.coverage * thresholds.images)
            choices = 1 if thresholds.asked.risk is None else RISK_CHOICES
            monitors["acceptance"] = AcceptanceMonitor.at_rank(rank, thresholds.images, choices=choices)
        if calibration is not None and calibration.images >= LEAST:
            monitors["uncertainty"] = UncertaintyMonitor.of_quantiles(calibration.uncertainty, calibration.images)
        return monitors

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
        if model is not self.current:
            return  # its monitors ended with it
        if "acceptance" in self.monitors and prediction.abnormal is not None:
            self._watch("acceptance", ~prediction.abnormal)
        if "uncertainty" in self.monitors:
            self._watch("uncertainty", prediction.uncertainty)

    def _count(self, decision: str, images: int) -> None:
        self.counts[decision] += images
        self.metrics.images.labels(self.name, decision).inc(images)

    def _watch(self, kind: str, values: Any) -> None:
        monitor = self.monitors[kind]
        known = monitor.alarm
        monitor.update(values)
        self.metrics.wealth.labels(self.name, kind).set(monitor.value)
        self.metrics.alarm.labels(self.name, kind).set(int(monitor.alarm))
        if monitor.alarm and not known:
            write_event(logging.WARNING, "alarm", model=self.name, monitor=kind, sentence=monitor.sentence)
