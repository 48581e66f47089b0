"""The outputs of a forward pass: everything that scores, detectors, tasks and figures are computed from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

DEFINITION = 3
"""The version of what outputs hold and scores mean. Stored outputs, calibrations and study cells of another version are
not used."""
SMALLEST_SHARE = 1e-6


def share_of_radius(norm: Tensor, features: int) -> Tensor:
    """min(1, |h| / sqrt(M)): where in the ball of radius sqrt(M) a feature of length |h| lies. [N] -> [N]"""
    return (norm / math.sqrt(features)).clamp(SMALLEST_SHARE, 1.0)


@dataclass(frozen=True, eq=False)
class Outputs:
    """N images after one forward pass (for sampling methods T passes) of one model.

    Parts a method does not have are None. softmax(logits) is what the model predicts, the mean over the passes where
    there are several. `weight` and `bias` are the last layer, logits = features weight^T + bias, where it is linear.
    """

    features: Tensor
    """[N, M], the inputs of the last layer."""
    logits: Tensor
    """[N, C]"""
    labels: Tensor | None = None
    """[N]"""
    norm: Tensor | None = None
    """[N] |h| of features that were trained on a sphere and lie at `share_of_radius` here; else None."""
    class_scores: Tensor | None = None
    """[N, C] tempered ln w_i GMM_i(z)."""
    log_joint: Tensor | None = None
    """[N, C] ln w_i + ln GMM_i(z)."""
    samples: Tensor | None = None
    """[N, T, C] log-probabilities of each pass."""
    own: dict[str, Tensor] = field(default_factory=dict)
    """[N] each: uncertainties that only this method has."""
    weight: Tensor | None = None
    """[C, M]"""
    bias: Tensor | None = None
    """[C]"""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def probabilities(self) -> Tensor:
        """[N, C] in float64."""
        return self.logits.double().softmax(1)

    @property
    def predictions(self) -> Tensor:
        """[N]"""
        return self.logits.argmax(1)

    def tensors(self) -> dict[str, Tensor]:
        """The parts that exist, by name; those of `own` as "own.NAME"."""
        parts = {name: getattr(self, name) for name in (*PER_SAMPLE, *SHARED)}
        parts |= {f"{OWN}{name}": value for name, value in self.own.items()}
        return {name: value for name, value in parts.items() if value is not None}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Outputs:
        """The reverse of `tensors`."""
        own = {name.removeprefix(OWN): value for name, value in tensors.items() if name.startswith(OWN)}
        return cls(own=own, **{name: value for name, value in tensors.items() if not name.startswith(OWN)})

    def select(self, indices: Tensor) -> Outputs:
        """Some of the images."""
        return Outputs.of({name: value if name in SHARED else value[indices] for name, value in self.tensors().items()})

    def first_classes(self, count: int, share: float) -> Outputs:
        """What a model says that knows the first `count` classes alone; `share` is their part of the prior of all.

        The own scores stay as they are.
        """
        log_share = math.log(share)
        return replace(
            self,
            logits=self.logits[:, :count],
            class_scores=None if self.class_scores is None else self.class_scores[:, :count] - log_share,
            log_joint=None if self.log_joint is None else self.log_joint[:, :count] - log_share,
            weight=None if self.weight is None else self.weight[:count],
            bias=None if self.bias is None else self.bias[:count],
        )

    def to(self, device: torch.device | str) -> Outputs:
        return Outputs.of({name: value.to(device) for name, value in self.tensors().items()})

    @classmethod
    def concatenated(cls, parts: Iterable[Outputs]) -> Outputs:
        """Several outputs of one model as one."""
        found = [part.tensors() for part in parts]
        if not found:
            raise ValueError("there are no outputs to join.")
        return cls.of(
            {
                name: value if name in SHARED else torch.cat([part[name] for part in found])
                for name, value in found[0].items()
            }
        )


PER_SAMPLE = ("features", "logits", "labels", "norm", "class_scores", "log_joint", "samples")
SHARED = ("weight", "bias")
OWN = "own."
