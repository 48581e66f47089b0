"""A method with doubles without the rows of its turned classes, which no deployed score reads (`dsui.methods.doubles`).

Three quarters of the mixtures or of the output layer are cut off. The prior keeps the share it had among all classes,
because `first_classes` divides by that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from dsui.methods.doubles import Doubles
from dsui.methods.dsui import DualSupervised
from dsui.methods.method import Method
from dsui.methods.msp import MaxSoftmax
from dsui.methods.network import OutputLayer
from dsui.outputs import Outputs

PER_CLASS = ("means", "log_variances", "mixing_logits", "class_prior")
"""What the head holds for each class; its family has parameters [C, K, ...] beside them, and some have no
log-variances."""
PER_LENGTH = ("mean", "deviation")
"""What a density of lengths holds for each class."""


class UprightClasses(nn.Module):
    """`doubles` for the upright classes alone, in place; its own scores that read the turned classes are gone."""

    def __init__(self, doubles: Doubles) -> None:
        super().__init__()
        self.method, self.num_classes, self.share = doubles.method, doubles.num_classes, doubles.upright_share
        _cut(self.method, self.num_classes)

    def predict(self, images: Tensor) -> Outputs:
        return self.method.first_classes(self.method.predict(images), self.num_classes, self.share)


@torch.no_grad()
def _cut(method: Method, classes: int) -> None:
    """Keep the first classes of a method's last layer."""
    if isinstance(method, DualSupervised):
        head, family = method.head, method.head.family
        per_component = head.means.shape[:2]
        own = [name for name, each in family.named_parameters() if each.shape[:2] == per_component]
        _keep_first(head, [name for name in PER_CLASS if getattr(head, name) is not None], classes)
        _keep_first(family, own, classes)
        if method.length is not None:
            _keep_first(method.length, PER_LENGTH, classes)
        head.num_classes = family.classes = classes
    elif isinstance(method, MaxSoftmax):
        whole = method.output
        method.output = OutputLayer(whole.in_features, classes)
        method.output.weight.copy_(whole.weight[:classes])
        method.output.bias.copy_(whole.bias[:classes])


def _keep_first(module: nn.Module, names: Iterable[str], classes: int) -> None:
    for name in names:
        kept = getattr(module, name)[:classes].clone()
        setattr(module, name, nn.Parameter(kept) if name in module._parameters else kept)
