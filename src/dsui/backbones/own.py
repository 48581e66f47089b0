"""A user's module as a backbone.

A module with an integer `out_features`, the number of its features, is used as it is. From any other, the linear layer
at its end is removed (`dsui.backbones.adapt`); if it does not end in one, its output must be features [B, M]. Outputs
for classes are no features: probabilities, log-probabilities, as many logits as the module says it has classes, as many
as the data has, or as many as ImageNet has. They are refused.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dsui.backbones.adapt import adapt
from dsui.backbones.backbone import Backbone

IMAGENET_CLASSES = (1000, 1001, 21_841, 21_843)
SUM_TOLERANCE = 1e-3
"""Of probabilities in bfloat16, as wide as a softmax over a thousand classes needs it."""


class OwnBackbone(Backbone):
    """`model` as it is: images [B, C, H, W] -> features [B, out_features]."""

    def __init__(self, model: nn.Module, out_features: int) -> None:
        super().__init__()
        self.model, self.out_features = model, out_features

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features


def as_backbone(module: nn.Module, shape: tuple[int, int, int], classes: int | None = None) -> Backbone:
    """A copy of `module` for images of (channels, height, width), on the CPU; its weights are where training starts.

    `classes` is the number of classes of the data, where it is known.
    """
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
            _check_no_classes(model, width, shape, classes)
            return OwnBackbone(model, width)
    if width != stated:
        found = "no features [B, M]" if width is None else f"{width} features"
        raise ValueError(
            f"{type(module).__name__} states {stated} out_features and gives {found} for images of {list(shape)}; "
            "correct one of them."
        )
    return OwnBackbone(model, stated)


def _check_no_classes(model: nn.Module, width: int, shape: tuple[int, int, int], classes: int | None) -> None:
    """Raise where the outputs, which no linear layer gives that could be removed, are those of classes."""
    kind = type(model).__name__
    advice = (
        f"remove what follows its features, or, if these are features, say so with an attribute out_features = {width}."
    )
    config = getattr(model, "config", None)
    counts = (getattr(model, "num_classes", None), getattr(config, "num_labels", None))
    if width in counts:
        raise ValueError(f"{kind} gives {width} outputs, one for each of its classes, and not features; {advice}")
    if width == classes:
        raise ValueError(f"{kind} gives {width} outputs, as many as the data has classes, and not features; {advice}")
    if width in IMAGENET_CLASSES:
        raise ValueError(f"{kind} gives {width:,} outputs, as many as ImageNet has classes, and not features; {advice}")
    outputs = _outputs(model, shape).double()
    sums = {"probabilities": outputs.sum(1) * (outputs >= 0).all(), "log-probabilities": outputs.exp().sum(1)}
    for what, total in sums.items():
        if width > 1 and bool(((total - 1).abs() < SUM_TOLERANCE).all()):
            raise ValueError(f"{kind} gives {what}, which sum to one, and not features; {advice}")


@torch.no_grad()
def _outputs(model: nn.Module, shape: tuple[int, int, int]) -> Tensor:
    """[2, M] for two random images."""
    probe = copy.deepcopy(model).eval()
    with torch.random.fork_rng([]):
        outputs: Tensor = probe(torch.rand((2, *shape), generator=torch.Generator().manual_seed(0)))
    return outputs


def _width(model: nn.Module, shape: tuple[int, int, int]) -> int | None:
    """M where the model turns two images into a floating-point [2, M], else None."""
    try:
        features = _outputs(model, shape)
    except Exception as error:
        raise ValueError(
            f"{type(model).__name__} fails on images of {list(shape)} (channels, height, width): {error}."
        ) from error
    right = isinstance(features, Tensor) and features.ndim == 2 and features.is_floating_point()
    return features.shape[1] if right and len(features) == 2 else None
