"""Patches of the two photographs that scikit-learn carries: real images that are not digits.

A patch is a random square crop of 32 to 128 pixels, averaged down to the wanted side.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.info import DatasetInfo, Split
from dsui.data.resize import LUMA

SMALLEST_CROP, LARGEST_CROP = 32, 128
SET_IMAGES, SET_SIDE, SET_SEED = 1500, 32, 0


def photo_patches(count: int, side: int, seed: int) -> Tensor:
    """[count, 1, side, side] grey patches in [0, 1]."""
    photos = [np.tensordot(photo / 255, LUMA, axes=1)[None] for photo in _photographs()]
    return _patches([torch.from_numpy(photo).float() for photo in photos], count, side, seed)


def photo_set() -> MemorySet:
    """1,500 colour patches, 8-bit [1500, 3, 32, 32], always the same; all of the one class "photo"."""
    photos = [torch.from_numpy(photo.transpose(2, 0, 1) / 255).float() for photo in _photographs()]
    pixels = (_patches(photos, SET_IMAGES, SET_SIDE, SET_SEED) * 255).round().to(torch.uint8)
    return MemorySet("photos", ("photo",), pixels, torch.zeros(SET_IMAGES, dtype=torch.int64))


def _patches(photos: list[Tensor], count: int, side: int, seed: int) -> Tensor:
    """[count, channels, side, side] from photographs [channels, height, width]."""
    rng = np.random.default_rng(seed)
    patches = []
    for _ in range(count):
        photo = photos[rng.integers(len(photos))]
        crop = int(rng.integers(SMALLEST_CROP, LARGEST_CROP + 1))
        top, left = (int(rng.integers(extent - crop + 1)) for extent in photo.shape[1:])
        patch = photo[:, top : top + crop, left : left + crop]
        # Channel by channel: for several, torch wakes its threads, which takes longer than the work on a busy machine.
        patches.append(torch.cat([F.adaptive_avg_pool2d(channel[None], side) for channel in patch]))
    return torch.stack(patches)


PHOTOS = DatasetInfo(
    name="photos",
    load=lambda _root, _split: photo_set(),
    classes=1,
    shape=(3, SET_SIDE, SET_SIDE),
    splits={"test": Split(SET_IMAGES, (0.4195, 0.4338, 0.3860))},  # means: measured
    page="https://scikit-learn.org/stable/datasets/loading_other_datasets.html",
    licence="CC BY 2.0",
)


def _photographs() -> list[NDArray[np.uint8]]:
    from sklearn.datasets import load_sample_images  # slow to load

    images: list[NDArray[np.uint8]] = load_sample_images().images
    return images
