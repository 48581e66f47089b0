"""Tiny networks of transformers with random weights, stand-ins for libraries that are not there, and photographs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

SIDE = 32
COLOURS = {"blue": (60, 60, 200), "green": (60, 200, 60), "red": (200, 60, 60)}
OWN_MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    preparation = {"size": 24}

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        return self.fc(self.body(x))

class Soft(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)

def net():
    return Net()

def soft():
    return Soft()

def text():
    return "no module"

def boom():
    raise RuntimeError("no weights here")

def needs(name):
    return Net()

class Votes(Net):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        return (super().forward(x) + self.fc(self.body(x.flip(3)))) / 2

def votes():
    return Votes()
"""


def photos(folder: Path, train: int = 12, test: int = 5, side: tuple[int, int] = (36, 60)) -> Path:
    """folder/photos with train/CLASS and test/CLASS, noisy images of three colours in many sizes."""
    random = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for name, colour in COLOURS.items():
            place = folder / "photos" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(random.normal(colour, 70, (*random.integers(*side, 2), 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    return folder / "photos"


def own_module(folder: Path) -> str:
    """folder/NAME.py with functions such as `net`; the answer is NAME, which no other folder has."""
    name = f"own_networks_{abs(hash(folder))}"
    (folder / f"{name}.py").write_text(OWN_MODULE)
    return name


def tiny_vit(folder: Path, **processor: Any) -> Path:
    """folder/vit: three blocks of width 16 on images of 32 pixels, as transformers saves it."""
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=SIDE, patch_size=8
    )
    ViTModel(config).save_pretrained(folder / "vit")
    ViTImageProcessor(**{"size": {"height": SIDE, "width": SIDE}, **processor}).save_pretrained(folder / "vit")
    return folder / "vit"


class Counted(nn.Module):
    """Images to features [B, 6], and how many images it has seen."""

    def __init__(self, outputs: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 3, 2)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(4, outputs, 3, 2)
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        hidden: Tensor = self.last(self.norm(self.first(images)).relu()).mean((2, 3))
        return hidden


def stand_in_timm(patch: pytest.MonkeyPatch, make: Callable[..., nn.Module], **facts: Any) -> None:
    """A package `timm` whose models `make` gives, and that says this of their images."""
    usual = {
        "input_size": (3, SIDE, SIDE),
        "interpolation": "bicubic",
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.3, 0.4),
        "crop_pct": 0.8,
        "crop_mode": "center",
    }
    timm, data = ModuleType("timm"), ModuleType("timm.data")
    timm.__spec__ = ModuleSpec("timm", None)
    vars(timm).update(create_model=make, data=data)
    vars(data).update(resolve_model_data_config=lambda _model: {**usual, **facts})
    patch.setitem(sys.modules, "timm", timm)
    patch.setitem(sys.modules, "timm.data", data)


def stand_in_torchvision(patch: pytest.MonkeyPatch, make: Callable[..., nn.Module]) -> None:
    """A package `torchvision` with one model, "tiny"."""

    class Interpolation(Enum):
        BICUBIC = "bicubic"

    transforms = SimpleNamespace(
        crop_size=[SIDE], resize_size=[40], interpolation=Interpolation.BICUBIC, mean=[0.4] * 3, std=[0.2] * 3
    )

    def weights(name: str) -> Any:
        if name != "tiny":
            raise ValueError(f"Unknown model {name}")
        return SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: transforms))

    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    package.__spec__ = ModuleSpec("torchvision", None)
    vars(package).update(models=models)
    vars(models).update(get_model_weights=weights, get_model=make)
    patch.setitem(sys.modules, "torchvision", package)
    patch.setitem(sys.modules, "torchvision.models", models)
