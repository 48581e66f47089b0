"""What fewer bits change: size, speed, accuracy, the ranking of errors, decisions. Both graphs see the same images.

Speeds are of one process: the two graphs take turns with one batch, and the medians are compared.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.errors import DsuiError
from dsui.evaluation.selective import aurc
from dsui.export.agreement import graph_outputs
from dsui.export.check_images import CheckImages
from dsui.export.decision_graph import ACCEPTED
from dsui.export.onnx_session import Session

BATCH = 32
ROUNDS, LONGEST = 15, 5.0
"""Turns of each graph, and the seconds after which no further one begins."""
Share = float | None


class Variant(NamedTuple):
    """One graph on the images. None where there are no labels, or no threshold."""

    precision: str
    bytes: int
    images_per_second: float
    accuracy: float | None
    aurc: float | None
    accepted: float | None


class Effects(NamedTuple):
    """`whole` is the graph in float32. The rest are shares of the images, and the largest change of a probability."""

    whole: Variant
    reduced: Variant
    images: int
    source: str
    labels_changed: float
    decisions_flipped: float | None
    probability: float

    @property
    def speed(self) -> float:
        """How many times as many images a second."""
        return self.reduced.images_per_second / self.whole.images_per_second

    def to_mapping(self) -> dict[str, object]:
        return {
            **self._asdict(),
            "whole": self.whole._asdict(),
            "reduced": self.reduced._asdict(),
            "speed": self.speed,
        }


def measure_effects(whole: bytes, reduced: bytes, precision: str, images: CheckImages) -> Effects:
    """Of two files with the same outputs; a DsuiError where the reduced one gives no numbers."""
    sessions = Session(whole), Session(reduced)
    before, after = (graph_outputs(session, images.inputs) for session in sessions)
    if not np.isfinite(after["probabilities"]).all():
        raise DsuiError(
            f"the network overflows in {precision}: some of its probabilities are no numbers; export it without."
        )
    seconds = _take_turns(sessions, images.inputs[:BATCH])
    count = len(images.inputs[:BATCH])
    first, second = (
        Variant(kind, len(content), count / each, *_quality(outputs, images.labels))
        for kind, content, each, outputs in (
            ("fp32", whole, seconds[0], before),
            (precision, reduced, seconds[1], after),
        )
    )
    flipped = float((before[ACCEPTED] != after[ACCEPTED]).mean()) if ACCEPTED in before else None
    return Effects(
        first,
        second,
        images=len(images.inputs),
        source=images.source,
        labels_changed=float((before["label"] != after["label"]).mean()),
        decisions_flipped=flipped,
        probability=float(np.abs(before["probabilities"] - after["probabilities"]).max()),
    )


def _quality(outputs: dict[str, NDArray[Any]], labels: Tensor | None) -> tuple[Share, Share, Share]:
    """Accuracy, AURC of the uncertainty, and the share that is accepted."""
    accepted = float(outputs[ACCEPTED].mean()) if ACCEPTED in outputs else None
    if labels is None:
        return None, None, accepted
    errors = torch.from_numpy(outputs["label"]) != labels
    return 1 - errors.double().mean().item(), aurc(torch.from_numpy(outputs["uncertainty"]), errors), accepted


def _take_turns(sessions: tuple[Session, Session], inputs: Tensor) -> tuple[float, float]:
    """The median seconds of each for one batch."""
    array = np.ascontiguousarray(inputs.permute(0, 2, 3, 1).numpy()) if inputs.ndim == 4 else inputs.numpy()
    times: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    for number in range(ROUNDS):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session(array)
            taken.append(time.perf_counter() - start)
        if number > 1 and time.perf_counter() - begun > LONGEST:
            break
    return median(times[0][1:]), median(times[1][1:])
