"""Augmented batches per second: dsui's pipeline against a DataLoader that does the same with Pillow.

    python benchmarks/data.py [--out benchmarks/data-cpu.md] [--png batch.png]

In memory, both serve 50,000 random 32x32 colour images in shuffled batches of 256, padded by 4, cropped, flipped and
mapped to [-1, 1], as float32 tensors on the training device. The DataLoader has 8 workers, or 2 on a machine with fewer
than 8 processors, and pinned memory on a GPU. Medians of interleaved repeats, all in one run.

From JPEG files (`jpeg_files.py`), as from a set larger than memory, both serve random resized crops of 224x224 pixels,
flipped, with other colours.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

import jpeg_files
import measuring
from dsui.benchmarks.clock import seconds_each
from dsui.benchmarks.steps import PillowImages
from dsui.data.augment import Transform
from dsui.data.dataset import MemorySet
from dsui.data.pipeline import ResidentLoader, epoch_batches
from dsui.data.registry import load

IMAGES, BATCH, REPEATS = 50_000, 256, 5


def smooth_images() -> MemorySet:
    """Random smooth images, so that padding and crops show in the statistics."""
    coarse = torch.rand(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pixels = (torch.nn.functional.interpolate(coarse, 32, mode="bilinear") * 255).to(torch.uint8)
    return MemorySet("random", ("only",), pixels, torch.zeros(IMAGES, dtype=torch.int64))


def pillow_batches(images: MemorySet, device: torch.device, workers: int) -> Iterator[Tensor]:
    loader = DataLoader(
        PillowImages(images.images),
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


def dsui_batches(images: MemorySet, device: torch.device) -> Iterator[Tensor]:
    source, transform, epoch = ResidentLoader(images, device), Transform().to(device), 0
    while True:
        for batch in source.stream(epoch_batches(IMAGES, BATCH, seed=0, epoch=epoch)):
            yield transform.augmented(batch.images, batch.indices, epoch)
        epoch += 1


def captured_batches(images: MemorySet, device: torch.device) -> Iterator[Tensor]:
    """The same as one CUDA graph, as in a training step: gather, hash, crop, flip, normalise."""
    source, transform = ResidentLoader(images, device), Transform().to(device)
    indices = torch.zeros(BATCH, dtype=torch.int64, device=device)
    now = torch.zeros((), dtype=torch.int64, device=device)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        transform.augmented(source.take(indices).images, indices, now)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        augmented = transform.augmented(source.take(indices).images, indices, now)
    epoch = 0
    while True:
        order = torch.stack(list(epoch_batches(IMAGES, BATCH, seed=0, epoch=epoch))).to(device)
        now.fill_(epoch)
        for step in order:
            indices.copy_(step)
            graph.replay()
            yield augmented
        epoch += 1


def rate(batches: Iterator[Tensor], count: int, device: torch.device) -> float:
    return 1 / seconds_each(batches, count, device, pause=1)


def moments(batches: Iterator[Tensor]) -> tuple[float, float, float]:
    """Mean, deviation and share of padded (exactly black) pixels over 40 batches."""
    x = torch.cat([next(batches).cpu() for _ in range(40)])
    return x.mean().item(), x.std().item(), (x == -1).all(1).float().mean().item()


def report() -> str:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    processors = os.cpu_count() or 1
    workers = 8 if processors >= 8 else 2
    images = smooth_images()
    ways = {
        "dsui": dsui_batches(images, device),
        f"DataLoader, {workers} workers": pillow_batches(images, device, workers),
    }
    if device.type == "cuda":
        ways = {"dsui, one CUDA graph": captured_batches(images, device), **ways}
    statistics_of = {name: moments(batches) for name, batches in ways.items()}  # a warm-up as well
    counts = {"dsui": 500, "dsui, one CUDA graph": 5000}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, batches in ways.items():
            rates[name].append(rate(batches, counts.get(name, 100), device))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    machine = torch.cuda.get_device_name(0) if device.type == "cuda" else platform.machine()
    lines = [
        f"# Augmented batches: {machine}, {processors} processors",
        "",
        f"torch {torch.__version__}; {IMAGES:,} images of 3x32x32, batches of {BATCH}, padding 4, flip, float32 on the "
        f"device; median of {REPEATS} interleaved repeats. Generated by `python benchmarks/data.py`.",
        "",
        "| pipeline | batches/s | images/s | times | mean | deviation | black pixels |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    slowest = min(medians.values())
    for name, found in medians.items():
        mean, deviation, black = statistics_of[name]
        lines.append(
            f"| {name} | {found:,.0f} | {found * BATCH:,.0f} | {found / slowest:.1f} "
            f"| {mean:.4f} | {deviation:.4f} | {100 * black:.2f} % |"
        )
    lines += jpeg_files.report(device, workers)
    return "\n".join(lines) + "\n"


def show(path: Path) -> None:
    """Draw the first photograph patches, unchanged and in three epochs, one row each."""
    images, transform = load("photos", "test"), Transform()
    indices = torch.arange(12)
    pixels = images.read(indices)
    rows = [transform.plain(pixels), *(transform.augmented(pixels, indices, epoch) for epoch in range(3))]
    grid = torch.cat([torch.cat(list(row), dim=2) for row in rows], dim=1)
    eight_bit = ((grid + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(eight_bit).resize((eight_bit.shape[1] * 3, eight_bit.shape[0] * 3), Image.Resampling.NEAREST).save(
        path
    )


def main() -> None:
    parser = measuring.command(__doc__)
    parser.add_argument("--png", type=Path, help="draw augmented photograph patches into this file and measure nothing")
    options = parser.parse_args()
    if options.png:
        show(options.png)
        return
    measuring.show(report, options.out)


if __name__ == "__main__":
    main()
