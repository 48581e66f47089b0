"""The images that an exported file is tried on: those that the run held out, or noise where they are gone.

Held-out images were not trained on, so that what fewer bits change can be measured on them. Noise shows only whether
the graph computes what the run computes: half of it are independent uniform pixels, half are smooth patches.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.backbones.features import StandardizedFeatures
from dsui.data.dataset import ImageSet
from dsui.deploy.predictor import Predictor
from dsui.errors import DsuiError
from dsui.evaluation.sources import ImageSources
from dsui.export.description import Input
from dsui.runs.calibration import even_choice

MOST_IMAGES = 1000
"""Of the held-out images, evenly chosen: the standard error of a share is then at most 1.6 points."""
NOISE_IMAGES, NOISE_SEED = 128, 0
PATCHES = 4


class CheckImages(NamedTuple):
    """`inputs` are 8-bit images [N, C, size, size] or features [N, M]; `labels` [N] are None for noise. `source` says
    in words what they are."""

    inputs: Tensor
    labels: Tensor | None
    source: str
    originals: ImageSet | None = None
    """The data set of held-out images, whose files may be larger."""

    def check_can_calibrate(self) -> None:
        """Raise where there are no held-out images, whose activations have the ranges that 8 bits are for."""
        if self.labels is None:
            raise DsuiError(
                "int8 needs held-out images for the ranges of activations; train with --calibration 0.1 and keep the "
                "images where they are, or export with --fp16."
            )

    def halves(self) -> tuple[Tensor | None, CheckImages]:
        """Every second held-out image, to calibrate with, and the others, to measure on; noise is not divided."""
        if self.labels is None:
            return None, self
        half = self._replace(inputs=self.inputs[1::2], labels=self.labels[1::2])
        return self.inputs[::2], half._replace(source=f"{len(half.inputs):,} held-out images")


def images_to_check(predictor: Predictor, made_from: Input, root: Path | None = None) -> CheckImages:
    """Held-out images, or noise."""
    facts = predictor.model.facts
    noise = _noise_features(predictor) if made_from == "features" else _noise_images(predictor)
    if facts.config.on_features and made_from == "images":
        return CheckImages(noise, None, f"{len(noise)} images of noise, because the run was trained on features")
    if facts.config.held_out == 0:
        return CheckImages(noise, None, f"{len(noise)} samples of noise, because the run held none out")
    try:
        sources = ImageSources(facts.config, facts.classes, "held-out", root, trained_on=facts.images)
        held_out = sources.own().load()
        chosen = even_choice(len(held_out.labels), MOST_IMAGES)
        found, labels = held_out.read(chosen), held_out.labels[chosen]
    except (DsuiError, ValueError, OSError) as error:
        return CheckImages(noise, None, f"{len(noise)} samples of noise, because the held-out ones are gone ({error})")
    inputs = found.flatten(1) if made_from == "features" else found
    return CheckImages(
        inputs, labels, f"{len(labels):,} held-out {'samples' if found.is_floating_point() else 'images'}", held_out
    )


def _noise_images(predictor: Predictor) -> Tensor:
    form = predictor.form
    generator = torch.Generator().manual_seed(NOISE_SEED)
    half, side = NOISE_IMAGES // 2, form.size
    pixels = torch.randint(256, (half, form.channels, side, side), generator=generator)
    patches = 255 * torch.rand((half, form.channels, PATCHES, PATCHES), generator=generator)
    smooth = F.interpolate(patches, (side, side), mode="bilinear").round()
    return torch.cat([pixels, smooth]).to(torch.uint8)


def _noise_features(predictor: Predictor) -> Tensor:
    """Normal, with the mean and deviation of the training features."""
    (norm,) = (each.norm for each in predictor.model.method.modules() if isinstance(each, StandardizedFeatures))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    generator = torch.Generator().manual_seed(NOISE_SEED)
    normal = torch.randn((NOISE_IMAGES, len(norm.running_mean)), generator=generator)
    return norm.running_mean.cpu() + normal * norm.running_var.cpu().sqrt()
