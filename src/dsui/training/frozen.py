"""The features of a frozen backbone, computed once: training needs the backbone no more.

Images are not augmented then, because their features would have to be computed anew in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dsui.backbones.freezing import FrozenBackbone
from dsui.data.augment import Transform
from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.pipeline import open_loader, plain_batches
from dsui.errors import DsuiError
from dsui.progress import Progress, silent

BATCH = 128


def frozen_backbone(method: nn.Module) -> FrozenBackbone | None:
    """The frozen backbone of a method; the members of an ensemble have equal ones."""
    return next((each for each in method.modules() if isinstance(each, FrozenBackbone)), None)


def features_once(
    method: nn.Module, transform: Transform, device: torch.device, progress: Progress = silent
) -> Callable[[ImageSet], ImageSet]:
    """What gives the features of a data set for a method with a frozen backbone, and the data set itself for others."""
    if (backbone := frozen_backbone(method)) is None:
        return lambda images: images
    return lambda images: compute_features(backbone, images, transform, device, progress)


@torch.no_grad()
def compute_features(
    backbone: FrozenBackbone, images: ImageSet, transform: Transform, device: torch.device, progress: Progress = silent
) -> MemorySet:
    """Features [N, M, 1, 1] as a data set, with the labels of the images."""
    count = len(images.labels)
    found = torch.empty(count, backbone.out_features, 1, 1)
    for batch in open_loader(images, device).stream(plain_batches(count, BATCH)):
        where = batch.indices.cpu()
        features = backbone.features(transform.plain(batch.images)).float()
        if not features.isfinite().all():
            raise DsuiError("the backbone gives NaN or infinity; check its weights and what it expects of images.")
        found[where] = features.cpu()[:, :, None, None]
        progress("computing features", int(where[-1]) + 1, count)
    return MemorySet(images.name, images.classes, found, images.labels)
