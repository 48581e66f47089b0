"""Training steps on random images: dsui's, and those of an ordinary loop with a DataLoader.

All train the same network in batches of 256 with Adam. The ordinary loop has a DataLoader whose workers crop and flip
with Pillow, and on a GPU bfloat16 autocast and channels_last.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dsui.benchmarks.clock import seconds_each
from dsui.data.dataset import MemorySet
from dsui.methods.registry import build
from dsui.recipe import Recipe
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.training.distributed import World
from dsui.training.step import Mode
from dsui.training.trainer import Trainer

IMAGES, BATCH, CLASSES = 50_000, 256, 10
Timing = dict[str, float]
"""Milliseconds by the name of a step."""


class PillowImages(Dataset[Tensor]):
    """What common training scripts do for each image in a worker."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels.permute(0, 2, 3, 1).contiguous().numpy()

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Tensor:
        image = ImageOps.expand(Image.fromarray(self.pixels[index]), border=4)
        top, left = (int(place) for place in torch.randint(9, (2,)))
        image = image.crop((left, top, left + 32, top + 32))
        if torch.rand(1).item() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        chw = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return chw.float().div_(255).sub_(0.5).div_(0.5)


class LabelledPillowImages(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: MemorySet) -> None:
        self.pixels, self.labels = PillowImages(images.images), images.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.pixels[index], self.labels[index]


def usual_network(device: torch.device) -> tuple[str, Recipe]:
    """The backbone and the recipe of the steps: ResNet18 as in the paper on a GPU, the small net on a CPU."""
    if device.type == "cuda":
        return "resnet18", load_recipe("paper", "cifar10")
    return "small", load_recipe("demo", "cifar10", {"batch": BATCH, "padding": 4, "flip": True})


def random_images() -> MemorySet:
    """Class patterns with noise, so that there is something to learn."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (IMAGES,), generator=generator)
    shape = (3, 32, 32)
    patterns = torch.randint(0, 128, (CLASSES, *shape), generator=generator, dtype=torch.uint8)
    noise = torch.randint(0, 128, (IMAGES, *shape), generator=generator, dtype=torch.uint8)
    return MemorySet("cifar10", tuple("0123456789"), patterns[labels] + noise, labels)


def ordinary_steps(
    images: MemorySet, backbone: str, recipe: Recipe, device: torch.device, workers: int
) -> Iterator[None]:
    """What a common training script does, with the DS-UI head."""
    on_gpu = device.type == "cuda"
    net = build("dsui", backbone, images.shape[0], CLASSES, recipe).to(device)
    if on_gpu:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(net.parameters(), lr=recipe.peak_rate, weight_decay=recipe.weight_decay)
    loader = DataLoader(
        LabelledPillowImages(images),
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=on_gpu,
        drop_last=True,
        persistent_workers=True,
    )
    net.phase = 1
    while True:
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)  # noqa: PLW2901
            if on_gpu:
                x = x.contiguous(memory_format=torch.channels_last)  # noqa: PLW2901
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16) if on_gpu else nullcontext():
                output = net(x)
            net.loss(output, y).backward()
            optimizer.step()
            yield


def dsui_trainer(
    images: MemorySet, backbone: str, recipe: Recipe, device: torch.device, mode: Mode, method: str = "dsui"
) -> Trainer:
    run = RunConfig(
        data=images.name,
        backbone=backbone,
        method=method,
        seed=0,
        size=images.shape[1],
        channels=images.shape[0],
        recipe=recipe,
    )
    return Trainer(run, images, device, World(), mode=mode)


def dsui_steps(trainer: Trainer) -> Iterator[None]:
    epoch = 0
    while True:
        yield from trainer.epoch_steps(epoch % trainer.recipe.epochs, 0)
        epoch += 1


def milliseconds(steps: Iterator[None], count: int, device: torch.device) -> float:
    return 1000 * seconds_each(steps, count, device, pause=0.5)


def measured(ways: dict[str, Iterator[None]], counts: dict[str, int], repeats: int, device: torch.device) -> Timing:
    for steps in ways.values():
        milliseconds(steps, 10, device)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, steps in ways.items():
            found[name].append(milliseconds(steps, counts[name], device))
    return {name: statistics.median(values) for name, values in found.items()}
