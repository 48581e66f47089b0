"""Post-hoc detectors fitted to the outputs of training images, with the moments by which SIRC joins their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dsui.detectors import registry
from dsui.detectors.detector import Detector
from dsui.detectors.fitted import FittedDetector
from dsui.evaluation.cache import StoredOutputs
from dsui.outputs import Outputs
from dsui.scores import Moments

FIT_IMAGES = 50_000
"""The most training images a detector is fitted to: a random choice from a larger set."""
MOMENT_STEP, FEW_IMAGES = 10, 100
"""The moments of a detector's score are those of every tenth of these images, because kNN would take long over all; of
fewer than a hundred images, all count."""


def choose_fit_images(count: int) -> Tensor:
    """Ascending indices of at most FIT_IMAGES of `count` images, chosen at random: data sets may be sorted by class."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:FIT_IMAGES].sort().values


def moment_images(count: int) -> Tensor:
    """Which of `count` fitted images give the moments of a detector's score."""
    return torch.arange(0, count, MOMENT_STEP if count >= FEW_IMAGES else 1)


def fit_detectors(
    unfitted: Mapping[str, Detector],
    stored: StoredOutputs,
    method: str,
    device: torch.device,
    warn: Callable[[str], None],
) -> dict[str, FittedDetector]:
    """Detectors by name, fitted on `device` to the stored outputs of a method's training images.

    One that the outputs do not allow is left out, and `warn` is called with the reason.
    """
    training = _outputs_to_fit(stored).to(device)
    sample = training.select(moment_images(len(training)).to(device))
    fitted = {}
    for name, detector in unfitted.items():
        if obstacle := registry.obstacle(name, training):
            warn(f"{method} has {obstacle}, so {name} is left out.")
            continue
        try:
            detector.fit(training)
            fitted[name] = FittedDetector(name, detector, Moments.of(detector.score(sample)))
        except ValueError as error:  # too few images for this one, for example; the others may still be fitted
            warn(f"{name} is left out: {error}")
    return fitted


def _outputs_to_fit(stored: StoredOutputs) -> Outputs:
    """Chunk by chunk, so that no more than the chosen images are in memory."""
    chosen, parts, start = choose_fit_images(stored.count), [], 0
    for chunk in stored.chunks():
        inside = (chosen >= start) & (chosen < start + len(chunk))
        parts.append(_without_samples(chunk).select(chosen[inside] - start))
        start += len(chunk)
    return Outputs.concatenated(parts)


def _without_samples(outputs: Outputs) -> Outputs:
    """The parts that detectors read. Of the samples of a sampling method they need to know only that there are some."""
    samples = None if outputs.samples is None else outputs.samples[:, :0]
    return Outputs(
        outputs.features, outputs.logits, outputs.labels, samples=samples, weight=outputs.weight, bias=outputs.bias
    )
