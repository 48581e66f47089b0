"""Backbones that stay as they are, wholly or up to a layer, and how deep in a network a parameter lies.

A frozen part runs in evaluation mode also in training: its batch norms keep the statistics that they came with.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from dsui.backbones.backbone import Backbone
from dsui.backbones.features import StandardizedFeatures
from dsui.backbones.registry import HEAD

MOST_LISTED = 12


class FrozenBackbone(Backbone):
    """Images [B, C, H, W] -> standardised features [B, out_features] of a frozen `model`.

    It also takes features of that model, [B, out_features, 1, 1], which training computes once.
    """

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.out_features = model.out_features
        self.model = model.requires_grad_(False).eval()
        self.standardized = StandardizedFeatures(model.out_features)

    def features(self, images: Tensor) -> Tensor:
        """[B, out_features] of images, as the model gives them."""
        found: Tensor = self.model(images)
        return found

    def forward(self, images: Tensor) -> Tensor:
        are_features = images.shape[1:] == (self.out_features, 1, 1)
        standardized: Tensor = self.standardized(images if are_features else self.features(images))
        return standardized

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.model.eval()
        return self


class PartlyFrozenBackbone(Backbone):
    """`model` with every layer before `layer` frozen; layers are in the order in which the model registers them."""

    def __init__(self, model: Backbone, layer: str) -> None:
        super().__init__()
        self.out_features, self.model = model.out_features, model
        self.frozen, around = _before(model, layer)
        for name in self.frozen:
            model.get_submodule(name).requires_grad_(False).eval()
        for name in around:  # their own parameters, such as a transformer's embeddings of positions
            for parameter in model.get_submodule(name).parameters(recurse=False):
                parameter.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self.frozen:
            self.model.get_submodule(name).eval()
        return self


def frozen_until(backbone: Backbone, layer: str) -> Backbone:
    """The backbone with every layer before `layer` frozen; all of them for "head"."""
    return FrozenBackbone(backbone) if layer == HEAD else PartlyFrozenBackbone(backbone, layer)


def depths(model: nn.Module) -> dict[str, int]:
    """For each parameter by name, which layer it belongs to, counted from the input: 0, 1, ...

    A layer is a module whose name ends in the first number of the parameter's, as encoder.layer.3 and layer1.0 do. What
    has no number is one layer up to the next that has, as the embeddings before the blocks of a transformer and the
    norm behind them. Where nothing has a number, every module is a layer.
    """
    names = [name.split(".")[:-1] for name, _ in model.named_parameters()]
    numbered = any(part.isdecimal() for parts in names for part in parts)
    found: dict[str, int] = {}
    order: dict[str, int] = {}
    layer = ""
    for (name, _), parts in zip(model.named_parameters(), names, strict=True):
        number = next((place for place, part in enumerate(parts) if part.isdecimal()), None)
        if number is not None:
            layer = ".".join(parts[: number + 1])
        elif not numbered or layer.rpartition(".")[2].isdecimal() or not layer:
            layer = ".".join(parts) or name
        found[name] = order.setdefault(layer, len(order))
    return found


def _before(model: nn.Module, layer: str) -> tuple[list[str], list[str]]:
    """The names of the modules before a layer, none of them inside another, and of those around it."""
    names = [name for name, _ in model.named_modules() if name]
    ending = next((name for name in names if name == layer or name.endswith(f".{layer}")), None)
    if ending is None:
        raise ValueError(f"the backbone has no layer {layer!r} to freeze until; it has {_listed(names)}.")
    before = names[: names.index(ending)]
    outside = [name for name in before if not ending.startswith(f"{name}.")]
    around = ["", *(name for name in before if ending.startswith(f"{name}."))]
    return [name for name in outside if not any(name.startswith(f"{other}.") for other in outside)], around


def _listed(names: list[str]) -> str:
    """The modules whose names end in a number or, where there are none, all of them."""
    inner = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    numbered = [name for name in names if name.rpartition(".")[2].isdecimal()] or inner
    outermost = [name for name in numbered if not any(name.startswith(f"{other}.") for other in numbered)]
    shown = list(dict.fromkeys(".".join(name.split(".")[-2:]) for name in outermost))  # "layers.3" tells more than "3"
    return ", ".join(shown[:MOST_LISTED]) + (", ..." if len(shown) > MOST_LISTED else "")
