"""MC dropout: the baseline's network, predicting with its dropout on (Gal and Ghahramani, ICML 2016).

    p = 1/T sum_t softmax(y_t),  y_t the logits under the t-th dropout mask
    I = H[p] - 1/T sum_t H[p_t]

It trains as the baseline does and reads the baseline's weights. Dropout sits in the neck alone, so the backbone runs
once and neck and output layer T times. I, "mutual_information", is large where the passes disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from dsui.checks import check_between
from dsui.errors import DsuiError
from dsui.excerpt import excerpt
from dsui.methods.method import MOST_SAMPLES
from dsui.methods.msp import MaxSoftmax
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.scores import log_mean_exp, mutual_information


class MCDropout(MaxSoftmax):
    """`samples` is T, the number of passes."""

    reads_weights_of: ClassVar[tuple[str, ...]] = ("msp",)
    takes_copies: bool = True
    draws: bool = True
    adjustable: bool = True

    def __init__(self, backbone: str, channels: int, num_classes: int, recipe: Recipe, *, samples: int = 50) -> None:
        check_between("samples", samples, 1, MOST_SAMPLES)
        if not recipe.neck or recipe.dropout == 0:
            raise DsuiError(
                f"mc-dropout samples the dropout of the neck, and recipe {excerpt(recipe.name)} has none; "
                "choose one with a neck and dropout above 0, or --set neck=true --set dropout=0.2."
            )
        super().__init__(backbone, channels, num_classes, recipe)
        self.passes = samples

    def predict(self, images: Tensor) -> Outputs:
        return predict_by_sampling(self, images, [layer for layer in self.modules() if isinstance(layer, nn.Dropout)])


def predict_by_sampling(method: MaxSoftmax, images: Tensor, layers: Iterable[nn.Module]) -> Outputs:
    """The mean over `method.passes` passes through neck and output layer in which only `layers` are in training mode.

    The features are those of the pass without noise.
    """
    neck = nn.Identity() if method.network.neck is None else method.network.neck
    backbone_features = method.network.backbone(images)
    features = neck(backbone_features)
    with in_training_mode(layers):
        passes = [method.output(neck(backbone_features)).double().log_softmax(1) for _ in range(method.passes)]
    samples = torch.stack(passes, 1)
    own = {"mutual_information": mutual_information(samples)}
    return Outputs(features, log_mean_exp(samples), samples=samples.float(), own=own)


@contextmanager
def in_training_mode(layers: Iterable[nn.Module]) -> Iterator[None]:
    """A context in which these layers are in training mode; afterwards each is in its former mode again."""
    modes = {layer: layer.training for layer in layers}
    try:
        for layer in modes:
            layer.train()
        yield
    finally:
        for layer, mode in modes.items():
            layer.train(mode)
