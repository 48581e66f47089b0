"""What every method is to the training loop and to evaluation: a network that knows its own loss.

Adding a method is one file with a class of this kind, its test and a line in the registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


class Method(nn.Module, ABC):
    """Images to an output of the method's own kind.

    `terms` holds the parts of the last loss, detached. `warming_up` is set by the loop: while it is true a method
    with density terms trains without them.
    """

    warming_up: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, Tensor] = {}

    @abstractmethod
    def loss(self, output: Any, labels: Tensor) -> Tensor:
        """The scalar to minimise for a batch; fills `terms`."""

    @abstractmethod
    def logits(self, output: Any) -> Tensor:
        """[B, C] of the stream that predicts."""

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of a density, which decay only where a recipe says so."""
        return ()

    def set_class_counts(self, counts: Tensor) -> None:
        """Told once, before training, how many training samples each class has."""

    def end_warm_up(self, images: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Called when the density terms are about to begin; `images` are training batches with their labels."""

    def log_row(self) -> dict[str, object]:
        """What the log should hold of the method's state after an epoch."""
        return {}
