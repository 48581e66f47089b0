"""A user's module as a backbone.

A module with an integer `out_features`, the number of its features, is used as it is. From any other, the linear layer
at its end is removed (`dsui.backbones.adapt`); if it does not end in one, its output must be features [B, M].
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dsui.backbones.adapt import adapt
from dsui.backbones.backbone import Backbone


class OwnBackbone(Backbone):
    """`model` as it is: images [B, C, H, W] -> features [B, out_features]."""

    def __init__(self, model: nn.Module, out_features: int) -> None:
        super().__init__()
        self.model, self.out_features = model, out_features

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features


def as_backbone(module: nn.Module, shape: tuple[int, int, int]) -> Backbone:
    """A copy of `module` for images of (channels, height, width), on the CPU; its weights are where training starts."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"the backbone is {type(module).__name__}; give a name or a torch.nn.Module.")
    model = copy.deepcopy(module).cpu()
    stated, width = getattr(model, "out_features", None), _width(model, shape)
    if not isinstance(stated, int):
        try:
            return adapt(model, shape)
        except ValueError:
            if width is None:
                raise
            return OwnBackbone(model, width)
    if width != stated:
        found = "no features [B, M]" if width is None else f"{width} features"
        raise ValueError(
            f"{type(module).__name__} states {stated} out_features and gives {found} for images of {list(shape)}; "
            "correct one of them."
        )
    return OwnBackbone(model, stated)


@torch.no_grad()
def _width(model: nn.Module, shape: tuple[int, int, int]) -> int | None:
    """M where the model turns two images into a floating-point [2, M], else None."""
    probe = copy.deepcopy(model).eval()
    with torch.random.fork_rng([]):
        try:
            features = probe(torch.rand((2, *shape), generator=torch.Generator().manual_seed(0)))
        except Exception as error:
            raise ValueError(
                f"{type(model).__name__} fails on images of {list(shape)} (channels, height, width): {error}."
            ) from error
    right = isinstance(features, Tensor) and features.ndim == 2 and features.is_floating_point()
    return features.shape[1] if right and len(features) == 2 else None
