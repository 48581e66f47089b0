"""Batches from JPEG files: dsui's streamed loader against a DataLoader with the same transforms. `data.py` shows it.

The files are mirrored mosaics of scikit-learn's two photographs, of the size of ImageNet's, of a screen and of a
camera, at quality 90. The DataLoader decodes a file whole, cuts the crop out of it and resizes that, as common training
scripts do. dsui decodes it no smaller than twice the final size, resizes its centre, and crops on the device.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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

SIZES = ((500, 375), (1920, 1280), (4000, 3000))
FILES, BATCH, SIDE, REPEATS = 64, 16, 224, 3
SMALLEST, JITTER = 0.35, 0.2


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
        row = np.concatenate([photo, photo[:, ::-1]] * 4, axis=1)
        mosaic = np.concatenate([row, row[::-1]] * 4, axis=0)
        top, left = (37 * number) % (mosaic.shape[0] - height), (53 * number) % (mosaic.shape[1] - width)
        files.append(folder / f"{number:04}.jpg")
        Image.fromarray(mosaic[top : top + height, left : left + width]).save(files[-1], quality=90)
    return files


def pillow_epoch(files: list[Path], device: torch.device, workers: int) -> Iterator[Tensor]:
    loader = DataLoader(
        PillowPhotographs(files), BATCH, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda"
    )
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def dsui_epoch(files: list[Path], device: torch.device, workers: int) -> Iterator[Tensor]:
    way = Preparation(size=SIDE, edge=SIDE, fit="centre")
    labels = torch.zeros(len(files), dtype=torch.int64)
    images = FolderSet("photographs", ("any",), labels, tuple(files), SIDE, 3, (), preparation=way)
    source = StreamedLoader(images, device, workers)
    transform = Transform(0, smallest_crop=SMALLEST, jitter=JITTER).to(device)
    for batch in source.stream(epoch_batches(len(files), BATCH, seed=0, epoch=0)):
        yield transform.augmented(batch.images, batch.indices, 0)


def seconds(epoch: Iterator[Tensor], device: torch.device) -> tuple[float, float]:
    """Of an epoch with the start and the end of its workers: by the clock, and of processors."""
    began, used = time.perf_counter(), os.times()
    for _ in epoch:
        pass
    if device.type == "cuda":
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    del epoch
    gc.collect()  # which ends the workers, so that their time is known
    return elapsed, sum(os.times()[:4]) - sum(used[:4])


def report(device: torch.device, workers: int) -> list[str]:
    """The lines of a table."""
    ways: dict[str, Callable[[list[Path], torch.device, int], Iterator[Tensor]]] = {
        "dsui": dsui_epoch,
        "DataLoader": pillow_epoch,
    }
    lines = [
        "",
        "## From JPEG files",
        "",
        f"An epoch of {FILES} files, batches of {BATCH} at 3x{SIDE}x{SIDE}, random resized crops of {SMALLEST:.0%} or "
        f"more, flip, jitter of {JITTER}, float32 on the device; {workers} workers each; medians of {REPEATS} "
        "interleaved repeats. The time of processors is that of all processes, and other work on the machine changes "
        "it little.",
        "",
        "| files | pipeline | images/s | times | processor ms/image | times |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for width, height in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            files = write_files(Path(folder), width, height)
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for _ in range(REPEATS):
                for name, way in ways.items():
                    found[name].append(seconds(way(files, device, workers), device))
        medians = {name: [statistics.median(part) for part in zip(*each, strict=True)] for name, each in found.items()}
        longest = [max(part) for part in zip(*medians.values(), strict=True)]
        for name, (elapsed, used) in medians.items():
            lines.append(
                f"| {width}x{height} | {name} | {FILES / elapsed:,.0f} | {longest[0] / elapsed:.1f} "
                f"| {1000 * used / FILES:,.0f} | {longest[1] / used:.1f} |"
            )
    return lines
