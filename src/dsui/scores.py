"""Uncertainties from one forward pass: larger means more likely wrong or foreign.

`dsui.score_table` lists the scores and `dsui.score_formulas` holds their formulas, which can be imported from here too.

`uncertainty` is the one to use when there is no reason for another. It joins two questions, is the prediction wrong and
is the image foreign, as SIRC does (Xia and Bouganis, ACCV 2022): with S a confidence that the image is not foreign, and
m and s its mean and deviation over training images,

    u = ln(1 - max p) + softplus(-(S - (m - 3 s)) / s)

so that S counts only where it is unusually low. Where a model has no S, u is ln(1 - max p).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from dsui.outputs import Outputs
from dsui.score_formulas import (
    Moments,
    Reference,
    energy,
    entropy,
    floored_posterior,
    log_density,
    log_mean_exp,
    max_logit,
    max_probability,
    mutual_information,
    sirc,
    sphere_logits,
)
from dsui.score_table import JOINT, PLAIN, RECOMMENDED, SECONDARY, detector_scores
from dsui.score_table import NAMES as COMMON
from dsui.spelling import nearest

__all__ = [
    "COMMON",
    "RECOMMENDED",
    "SECONDARY",
    "Moments",
    "Reference",
    "all_scores",
    "detector_scores",
    "energy",
    "entropy",
    "floored_posterior",
    "is_misspelled",
    "log_density",
    "log_mean_exp",
    "max_logit",
    "max_probability",
    "mutual_information",
    "reference",
    "sirc",
    "sphere_logits",
]

FLOOR_QUANTILE = 0.01
TYPO = 0.85
"""How similar a name must be to that of a score to count as a misspelling of it."""


def reference(training: Iterable[Outputs]) -> Reference:
    """From the training images' outputs, chunk by chunk."""
    found: dict[str, list[Tensor]] = {name: [] for name in SECONDARY}
    densities: list[Tensor] = []
    for chunk in training:
        for name, compute in SECONDARY.items():
            if (values := compute(chunk)) is not None:
                found[name].append(values)
        if chunk.log_joint is not None:
            densities.append(chunk.log_joint.double().amax(1))
    moments = {name: Moments.of(torch.cat(values)) for name, values in found.items() if values}
    floor = torch.cat(densities).sort().values[int(FLOOR_QUANTILE * sum(map(len, densities)))] if densities else None
    return Reference(moments, None if floor is None else floor.item())


def all_scores(outputs: Outputs, training: Reference) -> dict[str, Tensor]:
    """Every score these outputs allow, by name and in the order of results rows; [N] each.

    Where a method has a score of its own under the name of a plain one, its own counts.
    """
    found: dict[str, Tensor] = {}
    for score in PLAIN:
        if (values := score.compute(outputs, training, found)) is not None:
            found[score.name] = values
    found |= {name: value.double() for name, value in outputs.own.items()}
    for score in JOINT:
        if (values := score.compute(outputs, training, found)) is not None:
            found[score.name] = values
    return found


def is_misspelled(name: str, more: Iterable[str] = ()) -> bool:
    """Whether `name` is none of COMMON and `more`, but so similar to one of them that it can hardly be a score that
    only one method has."""
    known = (*COMMON, *more)
    return name not in known and nearest(name, known, TYPO) is not None
