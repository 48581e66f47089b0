"""The backbone and, if the recipe has one, the paper's neck: images [B, C, H, W] to features [B, M]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dsui.backbones.freezing import frozen_until
from dsui.backbones.neck import Ending, Neck
from dsui.backbones.registry import build
from dsui.recipe import Recipe


class FeatureNetwork(nn.Module):
    """`ending`: how the neck ends, which depends on the output layer after it; see `dsui.backbones.neck`."""

    def __init__(self, backbone: str, channels: int, recipe: Recipe, ending: Ending) -> None:
        super().__init__()
        options = {"released_start": True} if recipe.released_start and backbone == "resnet18" else {}
        self.backbone = build(backbone, channels, **options)
        if recipe.freeze_until:
            self.backbone = frozen_until(self.backbone, recipe.freeze_until)
        self.neck = Neck(self.backbone.out_features, dropout=recipe.dropout, ending=ending) if recipe.neck else None
        self.out_features = self.neck.out_features if self.neck is not None else self.backbone.out_features

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(images)
        return features if self.neck is None else self.neck(features)


class OutputLayer(nn.Linear):
    """y = W z + b in float32, also where autocast lowers the layers before it, because y in bfloat16 would change the
    gradient of a loss by one or two per cent."""

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float())


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Within it, a module in training mode neither updates batch-norm statistics nor applies dropout."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
