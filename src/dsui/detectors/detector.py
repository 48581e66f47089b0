"""The base class of post-hoc detectors: fitted to the outputs of training samples, a detector scores other outputs.

A subclass says what it needs and fills in `_fit` and `_score`. The checks, the conversion to float64 and the loop over
chunks of samples are here, so that no detector holds more than a chunk beside the outputs it was given. Several
detectors describe a class by the samples that the model classifies correctly: `examples` and `class_means`.

What `_fit` learned can be kept as tensors, so that a file of it holds no code: `learned` and `restore`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.checks import check_labels
from dsui.detectors.learned import from_tensors, to_tensors
from dsui.errors import DsuiError
from dsui.outputs import Outputs

CHUNK_ELEMENTS = 2**21
"""Values of a chunk of samples, features or logits."""


SIZES = "sizes"
"""The name under which `learned` keeps the numbers of features and classes."""
OTHERS = "use energy, gen or knn, which need neither labels nor a last layer"
"""Advice for outputs that lack what a detector needs."""


class Detector(ABC):
    """Larger scores mean that a sample is more likely foreign."""

    needs_fit: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    """Whether it needs labels of the training samples; then every class must have a sample."""
    needs_weight: ClassVar[bool] = False
    """Whether it needs the weight of a linear last layer."""
    needs_scale: ClassVar[bool] = False
    """Whether it needs the scale of the logits, which log-probabilities do not have."""
    learns: ClassVar[Mapping[str, type]] = {}
    """The attributes that `_fit` sets, and what each is: see `dsui.detectors.learned`."""
    _fitted_to: tuple[int, int, torch.device] | None = None

    @torch.no_grad()
    def fit(self, train: Outputs) -> Self:
        """Learn from training samples, which must not be changed while the detector is used."""
        if len(train) == 0:
            raise ValueError(f"{type(self).__name__} was given no training samples.")
        self._check(train)
        if self.needs_labels:
            _check_classes(train, type(self).__name__)
        self._fit(train)
        self._fitted_to = _kind(train)
        # laid out as in a file, because products of other layouts round otherwise
        tensors = {name: each.contiguous() for name, each in to_tensors(vars(self), self.learns).items()}
        vars(self).update(from_tensors(tensors, self.learns))
        return self

    @torch.no_grad()
    def score(self, outputs: Outputs) -> Tensor:
        """[N] in float64."""
        if self.needs_fit and self._fitted_to is None:
            raise ValueError(
                f"{type(self).__name__} is not fitted; call fit with the outputs of training samples first."
            )
        self._check(outputs)
        if self._fitted_to is not None and self._fitted_to != _kind(outputs):
            raise ValueError(
                f"{type(self).__name__} was fitted to {_words(self._fitted_to)} and these outputs have "
                f"{_words(_kind(outputs))}; score outputs of the same model on the same device."
            )
        parts = [self._score(part) for part in rows(outputs)]
        return torch.cat([outputs.logits.new_zeros(0, dtype=torch.float64), *parts])

    def formula(self, outputs: Outputs) -> Tensor:
        """[N] in float64 like `score`, for a tracer: without checks, and all samples at once."""
        weight, bias = (None if part is None else part.double() for part in (outputs.weight, outputs.bias))
        return self._score(Outputs(outputs.features.double(), outputs.logits.double(), weight=weight, bias=bias))

    def learned(self) -> dict[str, Tensor]:
        """What `fit` learned, on the CPU; empty for a detector that needs no fitting."""
        if not self.needs_fit:
            return {}
        if self._fitted_to is None:
            raise ValueError(f"{type(self).__name__} is not fitted; call fit before learned.")
        tensors = {name: each.cpu() for name, each in to_tensors(vars(self), self.learns).items()}
        return tensors | {SIZES: torch.tensor(self._fitted_to[:2])}

    def restore(self, learned: Mapping[str, Tensor], device: torch.device) -> Self:
        """Be as after the `fit` that learned this; a ValueError where it was another detector's."""
        if self.needs_fit:
            try:
                features, classes = learned[SIZES].tolist()
                # tensors of a file may lie at any address, and products round by how their factors lie in memory
                copies = {name: each.to(device, copy=True) for name, each in learned.items()}
                vars(self).update(from_tensors(copies, self.learns))
            except (KeyError, TypeError, RuntimeError) as error:
                raise ValueError(f"this is not what {type(self).__name__} learns") from error
            exact = torch.empty(0, device=device).device  # cuda is cuda:0
            self._fitted_to = int(features), int(classes), exact
        return self

    def _fit(self, train: Outputs) -> None:
        """Learn from outputs that are checked but not yet float64."""
        del train

    @abstractmethod
    def _score(self, outputs: Outputs) -> Tensor:
        """The scores [N] of a chunk of samples in float64."""

    def _check(self, outputs: Outputs) -> None:
        features, logits = outputs.features, outputs.logits
        if features.ndim != 2 or logits.ndim != 2 or len(features) != len(logits):
            raise ValueError(
                f"features have shape {list(features.shape)} and logits {list(logits.shape)}; "
                "[samples, features] and [samples, classes] are needed."
            )
        for name, values in (("features", features), ("logits", logits)):
            bad = sum(int((~part.isfinite()).any(1).sum()) for part in values.split(_chunk_rows(outputs)))
            if bad:
                raise ValueError(
                    f"the {name} of {bad} of {len(values)} samples hold NaN or infinity; check the model and its input."
                )
        if self.needs_weight and outputs.weight is None:
            raise DsuiError(
                f"{type(self).__name__} needs a linear last layer and these outputs hold no weight; {OTHERS}."
            )


def rows(outputs: Outputs) -> Iterator[Outputs]:
    """All samples in order, a chunk at a time, in float64."""
    weight, bias = (None if part is None else part.double() for part in (outputs.weight, outputs.bias))
    step = _chunk_rows(outputs)
    for begin in range(0, len(outputs), step):
        part = slice(begin, begin + step)
        labels = None if outputs.labels is None else outputs.labels[part]
        features, logits = outputs.features[part].double(), outputs.logits[part].double()
        yield Outputs(features, logits, labels, weight=weight, bias=bias)


def last_layer(outputs: Outputs, features: Tensor) -> Tensor:
    """Logits [N, C] that the model's last layer gives for other features [N, M]."""
    assert outputs.weight is not None
    return F.linear(features, outputs.weight, outputs.bias)


def examples(train: Outputs) -> Tensor:
    """[N] marks the training samples that stand for their class: those that the model classifies correctly. Where a
    class has none, all its samples stand for it."""
    assert train.labels is not None
    correct = train.predictions == train.labels
    found = torch.bincount(train.labels[correct], minlength=train.logits.shape[1])
    return correct | (found == 0)[train.labels]


def class_means(train: Outputs, values: Tensor) -> Tensor:
    """[C, D] in float64: the mean over each class's examples of values [N, D], features or logits."""
    assert train.labels is not None
    classes = train.logits.shape[1]
    total = torch.zeros(classes, values.shape[1], dtype=torch.float64, device=values.device)
    chosen = examples(train)
    step = max(1, CHUNK_ELEMENTS // values.shape[1])
    for part, label, used in zip(values.split(step), train.labels.split(step), chosen.split(step), strict=True):
        total.index_add_(0, label[used], part[used].double())
    return total / torch.bincount(train.labels[chosen], minlength=classes)[:, None]


def _kind(outputs: Outputs) -> tuple[int, int, torch.device]:
    return outputs.features.shape[1], outputs.logits.shape[1], outputs.features.device


def _words(kind: tuple[int, int, torch.device]) -> str:
    return "{} features and {} classes on {}".format(*kind)


def _chunk_rows(outputs: Outputs) -> int:
    return max(1, CHUNK_ELEMENTS // max(outputs.features.shape[1], outputs.logits.shape[1]))


def _check_classes(train: Outputs, who: str) -> None:
    if train.labels is None:
        raise DsuiError(f"{who} needs the labels of the training samples and there are none; {OTHERS}.")
    classes = train.logits.shape[1]
    check_labels(train.labels.cpu(), len(train), classes)
    fewest, label = torch.bincount(train.labels, minlength=classes).min(0)
    if fewest == 0:
        raise ValueError(f"class {int(label)} has no training sample; {who} needs one of every class.")
