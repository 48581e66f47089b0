"""The effect of thresholds on images that were not used to choose them: test images, foreign ones, noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsui.errors import DsuiError
from dsui.evaluation.cache import StoredOutputs
from dsui.runs.calibration import Calibration
from dsui.scores import Reference, all_scores


class Criterion(NamedTuple):
    """What a threshold is chosen by: the share of accepted images, the share of wrong ones among them, or nothing."""

    coverage: float | None = None
    risk: float | None = None

    @property
    def name(self) -> str:
        if self.coverage is not None:
            return f"coverage {self.coverage:g}"
        return "no threshold" if self.risk is None else f"risk {self.risk:g}"


class Limit(NamedTuple):
    """The largest uncertainty that a criterion accepts; None, and the reason, where it cannot be met."""

    criterion: Criterion
    value: float | None
    obstacle: str = ""


def largest_accepted(calibration: Calibration, criterion: Criterion) -> Limit:
    """The threshold that the calibration images give; without a criterion every uncertainty is accepted."""
    if criterion == Criterion():
        return Limit(criterion, torch.inf)
    try:
        return Limit(criterion, calibration.threshold(criterion.coverage, criterion.risk).value)
    except DsuiError as error:
        return Limit(criterion, None, str(error))


class SetUncertainties(NamedTuple):
    """The uncertainties [N] of one set's images, and whether each prediction is wrong, [N]; None for foreign images."""

    uncertainties: Tensor
    errors: Tensor | None

    def accepted(self, limit: float) -> float:
        """The share of the images that is accepted up to this uncertainty."""
        return (self.uncertainties <= limit).to(torch.float64).mean().item()

    def wrong(self, limit: float) -> float | None:
        """The share of the accepted images that is predicted wrongly; None where none is accepted."""
        kept = self.uncertainties <= limit
        return self.errors[kept].to(torch.float64).mean().item() if self.errors is not None and kept.any() else None


def set_uncertainties(stored: StoredOutputs, reference: Reference, in_domain: bool) -> SetUncertainties:
    """The uncertainties that `dsui predict` would give; `in_domain` images are of the model's classes."""
    chunks = list(stored.chunks(features=False))
    uncertainties = torch.cat([all_scores(chunk, reference)["uncertainty"] for chunk in chunks])
    if not in_domain:
        return SetUncertainties(uncertainties, None)
    labels = stored.part("labels")
    assert labels is not None
    return SetUncertainties(uncertainties, torch.cat([chunk.predictions for chunk in chunks]) != labels)
