"""Deep ensemble: one method several times, each with another random start (Lakshminarayanan et al., NeurIPS 2017).

    p(y | x) = 1/T sum_t p_t(y | x),    I = H[p] - 1/T sum_t H[p_t] = 1/T sum_t KL(p_t | p) >= 0

All members see the same batches in one step. The loss is the sum of theirs, and because they share no parameter, each
gets the gradient it would get alone. I, "mutual_information", is large where the members disagree. Where members report
their own mutual information, its mean is added: by the chain rule, the sum is that of member and member's draw
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, tee
from typing import Any, cast

import torch
from torch import Tensor, nn

from dsui.checks import check_at_least, check_between
from dsui.errors import DsuiError
from dsui.methods.method import Method, Turn
from dsui.methods.registry import build, find
from dsui.outputs import Outputs
from dsui.recipe import Recipe
from dsui.scores import log_mean_exp, mutual_information

INFORMATION = "mutual_information"
MOST_MEMBERS = 100
"""Each is a network of its own; far more than any ensemble has."""


class Ensemble(Method):
    """`members` times the method named `member`, with the options the recipe gives it, built one after another from
    torch's global generator. An ensemble does not learn from outliers."""

    def __init__(
        self,
        backbone: str,
        channels: int,
        num_classes: int,
        recipe: Recipe,
        *,
        members: int = 5,
        member: str = "msp",
    ) -> None:
        check_between("members", members, 1, MOST_MEMBERS)
        if issubclass(find(member), Ensemble):
            raise DsuiError("an ensemble cannot be a member of an ensemble; give `members` a larger number instead.")
        super().__init__()
        self._gather([build(member, backbone, channels, num_classes, recipe) for _ in range(members)])

    @classmethod
    def of(cls, methods: Sequence[Method]) -> Ensemble:
        """An ensemble of methods that were trained separately for the same classes; they are not copied."""
        check_at_least("the number of methods", len(methods), 1)
        ensemble = cls.__new__(cls)
        Method.__init__(ensemble)
        ensemble._gather(methods)
        return ensemble

    def _gather(self, methods: Sequence[Method]) -> None:
        self.members = nn.ModuleList(methods)
        self.copies = methods[0].copies
        self.takes_copies = all(each.takes_copies for each in methods)
        self.adjustable = all(each.adjustable for each in methods)
        self.passes = sum(each.passes for each in methods)
        self.draws = any(each.draws for each in methods)
        self.capturable = all(each.capturable for each in methods)
        self.partial_gradients = any(each.partial_gradients for each in methods)
        self.decay_mixture = any(each.decay_mixture for each in methods)

    @property
    def _methods(self) -> Sequence[Method]:
        return cast("Sequence[Method]", self.members)

    @property
    def phase(self) -> int:
        return self._methods[0].phase

    @phase.setter
    def phase(self, phase: int) -> None:
        for each in self._methods:
            each.phase = phase

    @property
    def turn(self) -> int:
        return self._methods[0].turn

    @turn.setter
    def turn(self, turn: int) -> None:
        for each in self._methods:
            each.turn = turn

    def forward(self, images: Tensor) -> list[Any]:
        return [each(images) for each in self._methods]

    def loss(self, output: list[Any], labels: Tensor) -> Tensor:
        losses = [each.loss(own, labels) for each, own in zip(self._methods, output, strict=True)]
        self.terms = {
            name: torch.stack([each.terms[name] for each in self._methods]).mean() for name in self._methods[0].terms
        }
        return torch.stack(losses).sum()

    def rows(self, output: list[Any], rows: slice) -> list[Any]:
        return [each.rows(own, rows) for each, own in zip(self._methods, output, strict=True)]

    def seen_turns(self, images: Tensor) -> Tensor:
        """Those that the first member sees; all are trained on the same copies."""
        return self._methods[0].seen_turns(images)

    def logits(self, output: list[Any]) -> Tensor:
        logits = [each.logits(own).float() for each, own in zip(self._methods, output, strict=True)]
        return log_mean_exp(torch.stack([own.log_softmax(1) for own in logits], 1))

    def predict(self, images: Tensor) -> Outputs:
        parts = [each.predict(images) for each in self._methods]
        samples = torch.stack([part.logits.double().log_softmax(1) for part in parts], 1)
        log_joint, class_scores, norm = (_stack(parts, name) for name in ("log_joint", "class_scores", "norm"))
        shared = set.intersection(*(set(part.own) for part in parts))
        own = {name: torch.stack([part.own[name] for part in parts], 1).mean(1) for name in sorted(shared)}
        own[INFORMATION] = mutual_information(samples) + own.get(INFORMATION, 0)
        return Outputs(
            torch.cat([part.features for part in parts], 1),
            log_mean_exp(samples),
            norm=None if norm is None else norm.mean(1),
            class_scores=None if class_scores is None else _mean_posterior(class_scores),
            log_joint=None if log_joint is None else log_mean_exp(log_joint),
            samples=samples.float(),
            own=own,
        )

    def turns(self) -> Sequence[Turn]:
        return [
            replace(same[0], parameters=tuple(chain(*(turn.parameters for turn in same))))
            for same in zip(*(each.turns() for each in self._methods), strict=True)
        ]

    def phase_at(self, epoch: int) -> int:
        return self._methods[0].phase_at(epoch)

    def begin_phase(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        # once a member reads the batches, tee keeps them for the others; if none reads, nothing is kept
        for each, own in zip(self._methods, tee(batches, len(self._methods)), strict=True):
            each.begin_phase(own)

    def schedule_starts(self) -> Sequence[int]:
        return self._methods[0].schedule_starts()

    def complete(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        for each, own in zip(self._methods, tee(batches, len(self._methods)), strict=True):
            each.complete(own)

    def mixture_parameters(self) -> Iterable[nn.Parameter]:
        return chain(*(each.mixture_parameters() for each in self._methods))

    def undecayed_parameters(self) -> Iterable[nn.Parameter]:
        return chain(*(each.undecayed_parameters() for each in self._methods))

    def set_class_counts(self, counts: Tensor) -> None:
        for each in self._methods:
            each.set_class_counts(counts)

    def adjust(self, log_shares: Tensor) -> None:
        for each in self._methods:
            each.adjust(log_shares)

    def log_row(self) -> dict[str, object]:
        rows = [each.log_row() for each in self._methods]
        return {"members": rows} if any(rows) else {}


def _mean_posterior(class_scores: Tensor) -> Tensor:
    """Scores whose softmax is the mean of the members' softmax and whose logsumexp is the logarithm of their mean
    evidence. In a mean of exp(scores) the largest member would decide alone. [B, T, C] -> [B, C]"""
    evidence = class_scores.logsumexp(2, keepdim=True)
    return log_mean_exp(class_scores - evidence) + log_mean_exp(evidence)


def _stack(parts: Sequence[Outputs], name: str) -> Tensor | None:
    """[B, T, ...] of one field of the outputs; None unless every member has it."""
    found = [getattr(part, name) for part in parts]
    return None if any(value is None for value in found) else torch.stack(found, 1)
