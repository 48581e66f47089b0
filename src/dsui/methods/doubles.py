"""Doubles: every class gets three more, for its own images turned by 90, 180 and 270 degrees.

    class i turned by r quarter turns is class i + r C,    r = 0, 1, 2, 3

The paper's push knows negatives of other classes only. A turned image has the colours and textures of its class and not
its form, so a network that tells the two apart has to know the form. Joint labels of class and turn are those of Lee et
al. (ICML 2020). Behind every training batch come turned copies of its images (`dsui.training.copies`).

At test time an image is taken as upright: one pass, and the C upright classes alone. Their prior is made to sum to one.
The turned classes are there to have been pushed from; only `turned_evidence` still reads them:

    logsumexp_{i >= C} s_i - logsumexp_{i < C} s_i,    s the class scores, or the logits of a method without mixtures
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dsui.methods.method import Method, Turn
from dsui.outputs import Outputs

TURNS = 4
"""Quarter turns of an image, none included."""
TURNED_EVIDENCE = "turned_evidence"


class Doubles(Method):
    """`method`, built for 4 C classes, seen as a method for C of them. `copies` turned copies of each image are trained
    on: one in a random turn, so that an upright class is met three times as often as one of its doubles, or all three.
    """

    takes_copies: bool = True

    def __init__(self, method: Method, num_classes: int, copies: int) -> None:
        super().__init__()
        self.method, self.num_classes, self.copies = method, num_classes, copies
        self.passes, self.draws, self.capturable = method.passes, method.draws, method.capturable
        self.adjustable = method.adjustable
        self.partial_gradients, self.decay_mixture = method.partial_gradients, method.decay_mixture

    @property
    def phase(self) -> int:
        return self.method.phase

    @phase.setter
    def phase(self, phase: int) -> None:
        self.method.phase = phase

    @property
    def turn(self) -> int:
        return self.method.turn

    @turn.setter
    def turn(self, turn: int) -> None:
        self.method.turn = turn

    def forward(self, images: Tensor) -> Any:
        return self.method(images)

    def loss(self, output: Any, labels: Tensor) -> Tensor:
        """`labels` are among the 4 C."""
        value = self.method.loss(output, labels)
        self.terms = self.method.terms
        return value

    def rows(self, output: Any, rows: slice) -> Any:
        return self.method.rows(output, rows)

    def logits(self, output: Any) -> Tensor:
        return self.method.logits(output)[:, : self.num_classes]

    def predict(self, images: Tensor) -> Outputs:
        whole = self.method.predict(images)
        scores = (whole.logits if whole.class_scores is None else whole.class_scores).double()
        own, others = scores[:, : self.num_classes], scores[:, self.num_classes :]
        upright = self.method.first_classes(whole, self.num_classes, self.upright_share)
        return replace(upright, own={**upright.own, TURNED_EVIDENCE: others.logsumexp(1) - own.logsumexp(1)})

    def seen_turns(self, images: Tensor) -> Tensor:
        """argmax_r logsumexp_i y_{i + r C}."""
        logits = self.method.predict(images).logits.double()
        return logits.view(len(images), TURNS, self.num_classes).logsumexp(2).argmax(1)

    @property
    def upright_share(self) -> float:
        """The part of the upright classes in the prior."""
        upright = self._upright_weight
        return upright / (upright + TURNS - 1)

    @property
    def _upright_weight(self) -> int:
        """How often a class is met upright for each time it is met in one of the other turns."""
        return (TURNS - 1) // self.copies

    def set_class_counts(self, counts: Tensor) -> None:
        self.method.set_class_counts(torch.cat([self._upright_weight * counts, *[counts] * (TURNS - 1)]))

    def adjust(self, log_shares: Tensor) -> None:
        """A class has the same share in every turn."""
        self.method.adjust(log_shares.repeat(TURNS))

    def turns(self) -> Sequence[Turn]:
        return self.method.turns()

    def phase_at(self, epoch: int) -> int:
        return self.method.phase_at(epoch)

    def begin_phase(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.method.begin_phase(batches)

    def schedule_starts(self) -> Sequence[int]:
        return self.method.schedule_starts()

    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.method.complete(batches)

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        return self.method.mixture_parameters()

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        return self.method.undecayed_parameters()

    def warning(self, epochs: Sequence[Mapping[str, Any]]) -> str | None:
        return self.method.warning(epochs)

    def log_row(self) -> dict[str, object]:
        return self.method.log_row()
