"""Foreign images for a run on features: the network behind the features turns them into features too."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dsui.backbones.preparation import Preparation
from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.decode import pixels
from dsui.data.folder import FolderSet
from dsui.data.pipeline import plain_batches
from dsui.progress import Progress, silent
from dsui.runs.embedding import Embedder

BATCH = 64


def embedded(images: ImageSet, embedder: Embedder, progress: Progress = silent) -> MemorySet:
    """Features [N, M, 1, 1] of a folder's images, which were read as the network wants them, or of published ones."""
    count, parts = len(images.labels), []
    for indices in plain_batches(count, BATCH):
        read = images.read(indices)
        parts.append(embedder(read if isinstance(images, FolderSet) else _prepared(read, embedder.preparation)))
        progress(f"embedding {images.name}", int(indices[-1]) + 1, count)
    return MemorySet(images.name, images.classes, torch.cat(parts)[:, :, None, None], images.labels)


def _prepared(images: Tensor, preparation: Preparation) -> Tensor:
    """uint8 [B, C, H, W] -> uint8 [B, 3, size, size]"""
    squares = (
        pixels(preparation.apply(Image.fromarray(each.squeeze(2) if each.shape[2] == 1 else each).convert("RGB")))
        for each in images.permute(0, 2, 3, 1).numpy()
    )
    return torch.from_numpy(np.stack(list(squares)))
