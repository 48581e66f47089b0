"""Batches from JPEG files: dsui's streamed loader against a DataLoader with the same transforms. `data.py` shows it.

The files are mirrored mosaics of scikit-learn's two photographs, of the size of ImageNet's and of a screen, at quality
90. The DataLoader decodes a file whole, cuts the crop out of it and resizes that, as common training scripts do. dsui
decodes it no larger than twice the final size, resizes its centre, and crops on the device.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dsui.backbones.preparation import Preparation
from dsui.data.augment import Transform
from dsui.data.folder import FolderSet
from dsui.data.pipeline import StreamedLoader, epoch_batches

SIZES = ((500, 375), (1920, 1280))
FILES, BATCH, SIDE = 64, 16, 224
SMALLEST, JITTER = 0.35, 0.2
FIRST, TIMED, REPEATS = 4, 10, 3
"""Batches that are passed over, because workers have to start, and batches that are timed."""


class PillowPhotographs(Dataset[Tensor]):
    """What common training scripts do for each file in a worker."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self.files[index]) as file:
            image = file.convert("RGB")
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=_random_box(*image.size))
        if torch.rand(1).item() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = change(image).enhance(1 + JITTER * (2 * torch.rand(1).item() - 1))
        chw = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return chw.float().div_(255).sub_(0.5).div_(0.5)


def _random_box(width: int, height: int) -> tuple[float, float, float, float]:
    """As torchvision draws it, but for its rounding to whole pixels."""
    while True:
        area = (SMALLEST + (1 - SMALLEST) * torch.rand(1).item()) * width * height
        shape = math.exp((2 * torch.rand(1).item() - 1) * math.log(4 / 3))
        columns, rows = math.sqrt(area * shape), math.sqrt(area / shape)
        if columns <= width and rows <= height:
            left, top = (width - columns) * torch.rand(1).item(), (height - rows) * torch.rand(1).item()
            return left, top, left + columns, top + rows


def write_files(folder: Path, width: int, height: int) -> list[Path]:
    """Different parts of a mosaic, which has no seams because every second tile is mirrored."""
    files = []
    for number in range(FILES):
        photo = load_sample_images().images[number % 2]
        row = np.concatenate([photo, photo[:, ::-1]] * 3, axis=1)
        mosaic = np.concatenate([row, row[::-1]] * 2, axis=0)
        top, left = (37 * number) % (mosaic.shape[0] - height), (53 * number) % (mosaic.shape[1] - width)
        files.append(folder / f"{number:04}.jpg")
        Image.fromarray(mosaic[top : top + height, left : left + width]).save(files[-1], quality=90)
    return files


def pillow_batches(files: list[Path], device: torch.device, workers: int) -> Iterator[Tensor]:
    loader = DataLoader(
        PillowPhotographs(files),
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
        persistent_workers=True,
    )
    while True:
        for batch in loader:
            yield batch.to(device, non_blocking=True)


def dsui_batches(files: list[Path], device: torch.device, workers: int) -> Iterator[Tensor]:
    way = Preparation(size=SIDE, edge=SIDE, fit="centre")
    images = FolderSet(
        "photographs", ("any",), torch.zeros(FILES, dtype=torch.int64), tuple(files), SIDE, 3, (), preparation=way
    )
    source = StreamedLoader(images, device, workers)
    transform = Transform(0, smallest_crop=SMALLEST, jitter=JITTER).to(device)
    for epoch in count():
        for batch in source.stream(epoch_batches(FILES, BATCH, seed=0, epoch=epoch)):
            yield transform.augmented(batch.images, batch.indices, epoch)


def rate(batches: Iterator[Tensor], device: torch.device) -> float:
    """Images per second once the workers are busy."""
    for _ in islice(batches, FIRST):
        pass
    began = time.perf_counter()
    for _ in islice(batches, TIMED):
        pass
    if device.type == "cuda":
        torch.cuda.synchronize()
    return TIMED * BATCH / (time.perf_counter() - began)


def report(device: torch.device, workers: int) -> list[str]:
    """The lines of a table."""
    ways: dict[str, Callable[[list[Path], torch.device, int], Iterator[Tensor]]] = {
        "dsui": dsui_batches,
        "DataLoader": pillow_batches,
    }
    lines = [
        "",
        "## From JPEG files",
        "",
        f"{FILES} files of each size, batches of {BATCH} at 3x{SIDE}x{SIDE}, random resized crops of {SMALLEST:.0%} or "
        f"more, flip, jitter of {JITTER}, float32 on the device; {workers} workers each; median of {REPEATS} "
        "interleaved repeats.",
        "",
        "| files | pipeline | images/s | times |",
        "|---|---|---:|---:|",
    ]
    for width, height in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            files = write_files(Path(folder), width, height)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(REPEATS):
                for name, way in ways.items():
                    rates[name].append(rate(way(files, device, workers), device))
            medians = {name: statistics.median(found) for name, found in rates.items()}
        slowest = min(medians.values())
        for name, found in medians.items():
            lines.append(f"| {width}x{height} | {name} | {found:,.0f} | {found / slowest:.1f} |")
    return lines
