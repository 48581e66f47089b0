"""Batches of 8-bit images, or of features, on the training device.

A set that fits into memory lies on the device as one tensor, and a batch is a gather. A larger set streams from disk
through worker processes and pinned buffers. Both give the same batches for the same indices. Augmentation
(`dsui.data.augment`) comes later and is part of the training step.

    loader = open_loader(images, device)
    for batch in loader.stream(epoch_batches(len(images.labels), 256, seed, epoch)):
        x = transform.augmented(batch.images, batch.indices, epoch)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dsui.checks import check_at_least
from dsui.data.augment import splitmix64
from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.features import hold_features
from dsui.data.folder import FolderSet
from dsui.errors import DataError
from dsui.resources import available_memory, usable_processors

BLOCK = 4096
PREFETCHED_BATCHES = 4


class Batch(NamedTuple):
    """On the training device: 8-bit images [B, C, H, W], labels [B], and indices [B] into the data set, or places as in
    `dsui.data.sampling`."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class Loader(Protocol):
    """A source of batches."""

    def stream(self, order: Iterable[Tensor]) -> Iterator[Batch]:
        """One batch for each tensor of indices, in that order. A loader can serve one stream at a time."""
        ...


def epoch_batches(
    samples: int,
    batch: int,
    seed: int,
    epoch: int,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    places: Tensor | None = None,
) -> Iterator[Tensor]:
    """An epoch's shuffled indices in full batches, from step `start` on; the remaining samples are left out. `places`
    [samples] are what is shuffled where it is not every index once (`dsui.data.sampling`).

    `batch` is the global batch; each of `world` processes gets an equal part of it, so that together they see
    what one process would see.
    """
    check_at_least("batch", batch, 1)
    if batch % world:
        raise ValueError(f"a batch of {batch} cannot be shared equally by {world} processes; choose a multiple.")
    if samples < batch:
        raise ValueError(f"{samples} samples do not fill a batch of {batch}; choose a smaller batch.")
    generator = torch.Generator().manual_seed(splitmix64(splitmix64(seed) ^ epoch) >> 1)
    order = torch.randperm(samples, generator=generator)
    order = order if places is None else places[order]
    part = batch // world
    for step in range(start, samples // batch):
        first = step * batch + rank * part
        yield order[first : first + part]


def plain_batches(samples: int, batch: int) -> Iterator[Tensor]:
    """Every index once, in order; the last batch may be smaller."""
    check_at_least("batch", batch, 1)
    yield from torch.arange(samples).split(batch)


class ResidentLoader:
    """All images as one tensor on the device; `take` is a device operation and may be captured in a graph."""

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        self.images = _whole(images).to(device)
        self.labels = images.labels.to(device)

    def take(self, indices: Tensor) -> Batch:
        """The batch at `indices`, which lie on the device."""
        own = indices % len(self.labels)
        return Batch(self.images.index_select(0, own), self.labels.index_select(0, own), indices)

    def stream(self, order: Iterable[Tensor]) -> Iterator[Batch]:
        for indices in order:
            yield self.take(indices.to(self.images.device, non_blocking=True))


class StreamedLoader:
    """Images decoded by worker processes ahead of use; the workers live as long as the loader."""

    def __init__(self, images: ImageSet, device: torch.device, workers: int) -> None:
        self.device = device
        self._order = _Order()
        self._loader: DataLoader[Batch | DataError] = DataLoader(
            _Reader(images),
            batch_size=None,
            sampler=self._order,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            prefetch_factor=PREFETCHED_BATCHES if workers else None,
            persistent_workers=workers > 0,
        )

    def stream(self, order: Iterable[Tensor]) -> Iterator[Batch]:
        self._order.batches = order
        for read in self._loader:
            if isinstance(read, DataError):
                raise read
            yield Batch(*(part.to(self.device, non_blocking=True) for part in read))


def open_loader(
    images: ImageSet, device: torch.device, memory_budget: int | None = None, workers: int | None = None
) -> ResidentLoader | StreamedLoader:
    """Resident if the pixels fit into `memory_budget` bytes, by default half of the device's free memory.

    Otherwise `workers` processes, by default one per processor, read from disk.
    """
    if len(images.labels) == 0:
        raise DataError(f"{images.name} holds no image; add some or choose another data set.")
    channels, height, width = images.shape
    needed = len(images.labels) * channels * height * width * (4 if hold_features(images) else 1)
    if needed <= (memory_budget if memory_budget is not None else _free_memory(device) // 2):
        return ResidentLoader(images, device)
    return StreamedLoader(images, device, usable_processors() if workers is None else workers)


class _Order:
    """The sampler of a `StreamedLoader`: the order of the current stream."""

    batches: Iterable[Tensor] = ()

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batches)


class _Reader(Dataset["Batch | DataError"]):
    """Reads whole batches. An error is returned as a value, because raised in a worker it would bring a traceback."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitem__(self, indices: Tensor) -> Batch | DataError:
        own = indices % len(self.images.labels)
        try:
            return Batch(self.images.read(own), self.images.labels[own], indices)
        except DataError as error:
            return error


def _whole(images: ImageSet) -> Tensor:
    if isinstance(images, MemorySet):
        return images.images
    if isinstance(images, FolderSet):
        return images.in_memory().images
    first, *others = plain_batches(len(images.labels), BLOCK)
    found = images.read(first)
    if not others:
        return found
    whole = found.new_empty(len(images.labels), *found.shape[1:])
    whole[: len(first)] = found
    for block in others:
        whole[block[0] : block[-1] + 1] = images.read(block)
    return whole


def _free_memory(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
