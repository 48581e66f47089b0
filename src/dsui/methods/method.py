"""What every method is to the training loop and to evaluation: a network that knows its own loss.

Adding a method takes one file with a subclass, its test and a line in the registry. A method that needs more than one
loss per batch declares it here, and the loop provides it:

    phases    stretches of epochs that train differently: `phase_at`, and `begin_phase` when one is entered
    stages    phases with a whole schedule of the rate each: `schedule_starts`
    estimates from the finished network: `complete`
    turns     several updates in each step, each with its own parameters and optimizer: `turns`
    outliers  a batch of foreign images beside each training batch: `learns_from_outliers`
    copies    turned or mixed copies of each batch behind its own images: `takes_copies`, `takes_doubles`, `rows`
    balance   logits adjusted to classes of uneven size: `adjustable`, `adjusted`
    passes    forward passes for one prediction: `passes`, and whether random numbers are drawn for them: `draws`
    options   keyword-only arguments of its constructor; a recipe or `--set NAME=VALUE` gives them
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dsui.errors import DsuiError
from dsui.outputs import Outputs
from dsui.recipe import Recipe

MOST_SAMPLES = 10_000
"""Forward passes for one prediction of a method that samples."""


@dataclass(frozen=True)
class Turn:
    """One update within a step: the parameters that move, the factor on the recipe's rate, and the phase it is for."""

    parameters: Sequence[nn.Parameter]
    rate: float = 1.0
    phase: int | None = None
    """None: in every phase."""
    momentum: float | None = None
    """Of SGD, or Adam's beta_1; None: the recipe's, and Adam's usual 0.9."""


class Method(nn.Module, ABC):
    """Images [B, channels, H, W] to an output of the method's own kind.

    Built as Method(backbone, channels, num_classes, recipe, **options). `terms` holds the parts of the last loss,
    detached. The loop sets `phase` and `turn`, which `forward` and `loss` may read.
    """

    backbones: ClassVar[tuple[str, ...] | None] = None
    """The backbones it can be built on; None means all."""
    needs_images: ClassVar[bool] = False
    """Whether it turns, decodes or transforms images, so that it cannot be trained on features alone."""
    learns_from_outliers: ClassVar[bool] = False
    """Whether it trains on foreign images too: `forward` gets them after the batch's own images, and for `loss` they
    are the rows beyond len(labels)."""
    reads_weights_of: ClassVar[tuple[str, ...]] = ()
    """Other methods that train as it does, so that it can predict with their weights under its own name. Equal shapes
    are not enough for that."""
    options_in_epochs: ClassVar[tuple[str, ...]] = ()
    """Options that are a number of epochs, from 0 to all of them; they shrink with a shortened run."""
    takes_copies: bool = False
    """Whether its loss is a mean over images and can be taken of a part of a batch. Every class says so for itself: a
    subclass may change the loss, so it does not inherit this."""
    takes_doubles: bool = False
    """Whether its classes can have doubles (`dsui.methods.doubles`), because `predict` gives nothing that is made of
    all classes but what `first_classes` knows. Not inherited either."""
    adjustable: bool = False
    """Whether its loss is a cross-entropy of logits that `adjust` can shift. Not inherited either."""
    passes: int = 1
    draws: bool = False
    """Whether `predict` draws random numbers, so that no fixed formula gives its predictions."""
    copies: int = 0
    """Turned copies of each image that it trains on."""
    capturable: bool = True
    """Whether a CUDA graph can hold its step: its loss reads no value back from the device."""
    partial_gradients: bool = False
    """Whether some parameters get no gradient in some epochs."""
    decay_mixture: bool = False
    """Whether `mixture_parameters` decay."""
    phase: int = 0
    turn: int = 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for claim in ("takes_copies", "takes_doubles", "adjustable"):
            if claim not in vars(cls):
                setattr(cls, claim, False)

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, Tensor] = {}
        self.log_shares: Tensor | None = None

    @abstractmethod
    def loss(self, output: Any, labels: Tensor) -> Tensor:
        """The scalar to minimise for a batch in this phase and turn; fills `terms`."""

    @abstractmethod
    def logits(self, output: Any) -> Tensor:
        """[B, C] of the stream that predicts, from what `forward` returned in the first turn."""

    def rows(self, output: Any, rows: slice) -> Any:
        """What `forward` returned, for a part of its images; where `takes_copies`."""
        return output[rows]

    def first_classes(self, outputs: Outputs, count: int, share: float) -> Outputs:
        """Its prediction as if it had only the first `count` classes; see `Outputs.first_classes`."""
        return outputs.first_classes(count, share)

    def seen_turns(self, images: Tensor) -> Tensor:
        """[B] by how many quarter turns, 0 to 3, each image seems to be turned; where it trains on turned `copies`."""
        del images
        raise DsuiError(f"{type(self).__name__} is not trained on turned images, so it knows no turns.")

    @abstractmethod
    def predict(self, images: Tensor) -> Outputs:
        """Everything evaluation needs for a batch, in evaluation mode and without gradients.

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

    def schedule_starts(self) -> Sequence[int]:
        """The epochs in which the recipe's schedule of the rate begins anew, ascending from 0: one for each stage of a
        method that trains its parts one after another."""
        return (0,)

    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Called once after training, in evaluation mode and without gradients, for what is estimated from the final
        weights; `batches` as in `begin_phase`."""

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of a density: all of them decay where `decay_mixture` holds, otherwise none."""
        return ()

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters that must never decay."""
        return ()

    def set_class_counts(self, counts: Tensor) -> None:
        """Called once before training with the number of training samples of each class, and again when it has ended
        if the classes shall count alike from then on."""

    def adjust(self, log_shares: Tensor) -> None:
        """Called once before training, after `set_class_counts`, where the loss shall be that of logits with ln pi
        added, pi [C] the share of each class (Menon et al., ICLR 2021); only where `adjustable`. Predictions are of
        the logits as they are."""
        self.log_shares = log_shares

    def adjusted(self, logits: Tensor) -> Tensor:
        """[B, C] the logits that the loss is of."""
        return logits if self.log_shares is None else logits + self.log_shares

    @classmethod
    def objective_name(cls, options: Mapping[str, Any]) -> str | None:
        """The objective that its options choose, for a method that has several; `options` holds all of them."""
        del options
        return None

    @classmethod
    def option_ranges(cls, options: Mapping[str, Any], recipe: Recipe) -> Iterator[tuple[str, bool, str]]:
        """The option, whether training can use its value, and what is expected of it; `options` holds all of them."""
        del options, recipe
        yield from ()

    def warning(self, epochs: Sequence[Mapping[str, Any]]) -> str | None:
        """A sentence for the user if the log's rows so far show that training goes wrong; a run says it once."""
        del epochs
        return None

    def log_row(self) -> dict[str, object]:
        """What the log keeps of the method's state after an epoch."""
        return {}
