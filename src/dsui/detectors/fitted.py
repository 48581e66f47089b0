"""A detector ready to score outputs, with the moments by which SIRC joins its score with Max.P."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor

from dsui.detectors.detector import Detector
from dsui.detectors.registry import build
from dsui.outputs import Outputs
from dsui.score_table import detector_scores
from dsui.scores import Moments, sirc

MOMENTS = "moments"


class FittedDetector(NamedTuple):
    """`name` is its name in the registry; `moments` are those of its score over training images."""

    name: str
    detector: Detector
    moments: Moments

    def scores(self, outputs: Outputs, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Its own score and the joint one, by name, [N] each. A joint one that the model has itself, among the `known`
        scores of these outputs, stays."""
        return self._with_joint(self.detector.score(outputs), outputs, known)

    def traced_scores(self, outputs: Outputs, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`scores` by formulas alone, for a tracer: nothing is checked, and no value decides what is computed."""
        return self._with_joint(self.detector.formula(outputs), outputs, known)

    def _with_joint(self, values: Tensor, outputs: Outputs, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        own, joint = detector_scores(self.name)
        return {own: values, joint: known[joint] if joint in known else sirc(outputs.logits, values, *self.moments)}

    def tensors(self) -> dict[str, Tensor]:
        """All of it but the name."""
        return self.detector.learned() | {MOMENTS: torch.tensor(self.moments, dtype=torch.float64)}

    @classmethod
    def of(cls, name: str, tensors: Mapping[str, Tensor], device: torch.device) -> Self:
        """The reverse of `tensors`; a ValueError where they are not of this detector."""
        detector = build(name).restore(tensors, device)
        if MOMENTS not in tensors or tensors[MOMENTS].shape != (2,):
            raise ValueError(f"the moments of {name} are missing")
        return cls(name, detector, Moments(*tensors[MOMENTS].tolist()))
