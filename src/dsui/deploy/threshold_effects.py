"""What thresholds do to images that had no part in choosing them: the test images, foreign ones, noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsui.errors import DsuiError
from dsui.evaluation.cache import StoredOutputs
from dsui.runs.calibration import Calibration
from dsui.scores import Reference, all_scores


class Demand(NamedTuple):
    """What a threshold is chosen by: a share of accepted images, of wrong ones among them, or nothing at all."""

    coverage: float | None = None
    risk: float | None = None

    @property
    def name(self) -> str:
        if self.coverage is not None:
            return f"coverage {self.coverage:g}"
        return "no threshold" if self.risk is None else f"risk {self.risk:g}"


class Limit(NamedTuple):
    """The largest uncertainty that is accepted to meet a demand; None and why where it cannot be met."""

    demand: Demand
    value: float | None
    obstacle: str = ""


def limit(calibration: Calibration, demand: Demand) -> Limit:
    if demand == Demand():
        return Limit(demand, torch.inf)
    try:
        return Limit(demand, calibration.threshold(demand.coverage, demand.risk).value)
    except DsuiError as error:
        return Limit(demand, None, str(error))


class Judged(NamedTuple):
    """N images of one kind: [N] uncertainties, and [N] whether the prediction is wrong where labels can tell."""

    uncertainties: Tensor
    errors: Tensor | None

    def accepted(self, value: float) -> float:
        """Share of the images."""
        return (self.uncertainties <= value).to(torch.float64).mean().item()

    def wrong(self, value: float) -> float | None:
        """Share of the accepted ones; None where none is."""
        kept = self.uncertainties <= value
        return self.errors[kept].to(torch.float64).mean().item() if self.errors is not None and kept.any() else None


def judged(stored: StoredOutputs, reference: Reference, own: bool) -> Judged:
    """With the uncertainties that `dsui predict` would give; `own` images are of the model's classes."""
    chunks = list(stored.chunks(features=False))
    uncertainties = torch.cat([all_scores(chunk, reference)["uncertainty"] for chunk in chunks])
    if not own:
        return Judged(uncertainties, None)
    labels = stored.part("labels")
    assert labels is not None
    return Judged(uncertainties, torch.cat([chunk.predictions for chunk in chunks]) != labels)
