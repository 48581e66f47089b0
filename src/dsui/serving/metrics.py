"""What the server counts, in the form that Prometheus reads.

Every server has a registry of its own. Paths are those of the routes, and all others are one, so that a client cannot
fill the memory with names. Scores are counted by their place among the calibration images (`dsui.serving.scale`): while
the images are like those, every twentieth lies in each of the twenty steps, whatever the model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

PREFIX = "dsui"
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
STEPS = tuple(range(5, 100, 5))
"""Percentiles."""
PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class Tally(Collector):
    """Histograms that are filled a batch at a time: `Histogram.observe` takes one value after the other."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name, self._text = name, text
        self._bounds = np.array(bounds, dtype=np.float64)
        self._filled: dict[tuple[str, str], tuple[NDArray[np.int64], float]] = {}

    def add(self, model: str, score: str, values: NDArray[np.float64]) -> None:
        places = np.searchsorted(self._bounds, values, side="left")
        counts, total = self._filled.get((model, score), (np.zeros(len(self._bounds) + 1, dtype=np.int64), 0.0))
        more = np.bincount(places, minlength=len(counts))
        self._filled[model, score] = (counts + more, total + float(np.nan_to_num(values).sum()))

    def collect(self) -> list[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=["model", "score"])
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for labels, (counts, total) in list(self._filled.items()):
            cumulative = [float(count) for count in counts.cumsum()]
            family.add_metric(labels, list(zip(names, cumulative, strict=True)), total)
        return [family]


class Metrics:
    """The series of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the lines
        self.registry = CollectorRegistry()
        new = self.registry
        self.requests = Counter(
            f"{PREFIX}_requests", "Requests by route and status.", ["method", "path", "status"], registry=new
        )
        self.seconds = Histogram(
            f"{PREFIX}_request_seconds", "From the head of a request to its answer.", ["path"], buckets=LATENCIES,
            registry=new,
        )  # fmt: skip
        self.open_requests = Gauge(f"{PREFIX}_requests_open", "Requests that are being answered.", registry=new)
        self.batches = Histogram(
            f"{PREFIX}_batch_images", "Images in a forward pass.", ["model"], buckets=BATCHES, registry=new
        )
        self.batch_seconds = Histogram(
            f"{PREFIX}_batch_seconds", "Of a forward pass.", ["model"], buckets=LATENCIES, registry=new
        )
        self.queue = Gauge(f"{PREFIX}_queue_images", "Images that wait for their batch.", ["model"], registry=new)
        self.admitted = Gauge(f"{PREFIX}_admitted_images", "Images not answered yet.", ["model"], registry=new)
        self.images = Counter(
            f"{PREFIX}_images",
            "Images by what became of them: accepted, rejected, undecided where there is no threshold, unreadable.",
            ["model", "decision"],
            registry=new,
        )
        self.refused = Counter(
            f"{PREFIX}_refused", "Requests that were not answered, by status.", ["status"], registry=new
        )
        self.info = Gauge(f"{PREFIX}_model_info", "1 for the model in use.", ["model", "version"], registry=new)
        self.reloads = Counter(f"{PREFIX}_reloads", "Reloads by result.", ["model", "result"], registry=new)
        self.stale = Gauge(
            f"{PREFIX}_reload_failed", "1 where the last reload failed and the model before it goes on.", ["model"],
            registry=new,
        )  # fmt: skip
        self.wealth = Gauge(
            f"{PREFIX}_monitor_wealth",
            "Evidence that the world is no more as promised; an alarm where it reaches 1 / false-alarm rate.",
            ["model", "monitor"],
            registry=new,
        )
        self.alarm = Gauge(f"{PREFIX}_monitor_alarm", "1 from an alarm on.", ["model", "monitor"], registry=new)
        self.percentiles = Tally(
            f"{PREFIX}_score_percentile", "Scores by their place among the calibration images, in percent.", STEPS
        )
        self.probabilities = Tally(f"{PREFIX}_probability", "Probability of the label.", PROBABILITIES)
        new.register(self.percentiles)
        new.register(self.probabilities)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
