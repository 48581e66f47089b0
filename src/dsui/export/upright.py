"""A method with doubles without the rows of its turned classes, which no deployed score reads (`dsui.methods.doubles`).

Three quarters of the mixtures or of the output layer are cut off. The prior keeps the share it had among all classes,
because `first_classes` divides by that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsui.density import Precision
from dsui.families.family import Family
from dsui.methods.doubles import Doubles
from dsui.methods.dsui import DualSupervised
from dsui.methods.method import Method
from dsui.methods.msp import MaxSoftmax
from dsui.methods.network import OutputLayer
from dsui.outputs import Outputs

OF_HEAD, OF_LENGTH = ("means", "log_variances", "mixing_logits", "class_prior"), ("mean", "deviation")
"""What the head and the density of lengths hold for each class."""


class UprightClasses(nn.Module):
    """`doubles` for the upright classes alone, in place; its own scores that read the turned classes are gone."""

    def __init__(self, doubles: Doubles) -> None:
        super().__init__()
        self.method, self.num_classes, self.share = doubles.method, doubles.num_classes, doubles.upright_share
        _cut(self.method, self.num_classes)

    def predict(self, images: Tensor) -> Outputs:
        return self.method.first_classes(self.method.predict(images), self.num_classes, self.share)


class FirstClasses(nn.Module):
    """A family of components for the first classes alone."""

    def __init__(self, family: Family, classes: int) -> None:
        super().__init__()
        self.family, self.rows = family, slice(classes)

    def log_prob(self, z: Tensor, means: Tensor, log_variances: Tensor | None, precision: Precision) -> Tensor:
        return self.family.log_prob(z, means, log_variances, precision, self.rows)


@torch.no_grad()
def _cut(method: Method, classes: int) -> None:
    """Keep the first classes of a method's last layer."""
    if isinstance(method, DualSupervised):
        _cut_rows(method.head, OF_HEAD, classes)
        method.head.num_classes = classes
        method.head.family = FirstClasses(method.head.family, classes)  # type: ignore[assignment]
        if method.length is not None:
            _cut_rows(method.length, OF_LENGTH, classes)
    elif isinstance(method, MaxSoftmax):
        whole = method.output
        method.output = OutputLayer(whole.in_features, classes)
        method.output.weight.copy_(whole.weight[:classes])
        method.output.bias.copy_(whole.bias[:classes])


def _cut_rows(module: nn.Module, names: tuple[str, ...], classes: int) -> None:
    for name in names:
        whole = getattr(module, name)
        if whole is not None:
            kept = whole[:classes].clone()
            setattr(module, name, nn.Parameter(kept) if isinstance(whole, nn.Parameter) else kept)
