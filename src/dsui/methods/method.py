"""What every method is to the training loop and to evaluation: a network that knows its own loss.

Adding a method is one file with a class of this kind, its test and a line in the registry. What a method needs beyond
one loss per batch it declares here, and the loop serves it:

    phases    stretches of epochs that train differently: `phase_at`, and `begin_phase` when one is entered
    turns     several updates in each step, each with its own parameters and optimizer: `turns`
    outliers  a batch of foreign images beside each training batch: `learns_from_outliers`
    passes    forward passes for one prediction: `passes`
    options   keyword-only arguments of its constructor, which `--set NAME=VALUE` gives
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dsui.outputs import Outputs
from dsui.recipe import Recipe


@dataclass(frozen=True)
class Turn:
    """One update within a step: the parameters that move, how fast beside the recipe's rate, and in which phase."""

    parameters: Sequence[nn.Parameter]
    rate: float = 1.0
    phase: int | None = None
    """None: in every phase."""
    momentum: float | None = None
    """Of SGD, or Adam's beta_1; None: the recipe's, and Adam's usual 0.9."""


class Method(nn.Module, ABC):
    """Images [B, channels, H, W] to an output of the method's own kind.

    Built as Method(backbone, channels, num_classes, recipe, **options). `terms` holds the parts of the last loss,
    detached. The loop sets `phase` and `turn`, which `forward` and `loss` may look at.
    """

    backbones: ClassVar[tuple[str, ...] | None] = None
    """The backbones it can be built on; None means all."""
    learns_from_outliers: ClassVar[bool] = False
    """Whether foreign training images are of use to it: then `forward` gets them behind the batch's own images, and
    `loss` knows them as the rows beyond len(labels)."""
    reads_weights_of: ClassVar[tuple[str, ...]] = ()
    """Other methods that train as it does, whose runs it may predict with under its own name; equal shapes say nothing
    of that."""
    passes: int = 1
    phase: int = 0
    turn: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, Tensor] = {}

    @abstractmethod
    def loss(self, output: Any, labels: Tensor) -> Tensor:
        """The scalar to minimise for a batch in this phase and turn; fills `terms`."""

    @abstractmethod
    def logits(self, output: Any) -> Tensor:
        """[B, C] of the stream that predicts, of what `forward` gave in the first turn."""

    @abstractmethod
    def predict(self, images: Tensor) -> Outputs:
        """Everything evaluation needs of a batch, in evaluation mode and without gradients.

        A sampling method draws from the global generator of the images' device, which the caller has seeded.
        """

    def turns(self) -> Sequence[Turn]:
        """The updates of a step, in order."""
        return (Turn(tuple(self.parameters())),)

    def phase_at(self, epoch: int) -> int:
        """The phase an epoch belongs to; never falls."""
        del epoch
        return 0

    def begin_phase(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Called once when a phase is entered, not when a run resumes in it; `batches` are an epoch's training inputs
        with their labels."""

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of a density, which decay only where a recipe says so."""
        return ()

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters that must never decay."""
        return ()

    def set_class_counts(self, counts: Tensor) -> None:
        """Told once, before training, how many training samples each class has."""

    @classmethod
    def objective_name(cls, recipe: Recipe) -> str | None:
        """Which of its objectives the recipe chooses, for a method that has several."""
        del recipe
        return None

    def log_row(self) -> dict[str, object]:
        """What the log should hold of the method's state after an epoch."""
        return {}
