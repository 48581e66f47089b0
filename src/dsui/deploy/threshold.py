"""Which uncertainties to accept, chosen by n calibration images the model was not trained on.

By coverage c: the k-th smallest of their uncertainties, k = ceil((n + 1) c). A new image of the same kind is then
accepted with a probability of at least c and, without ties, below c + 1 / (n + 1): split conformal prediction
(Papadopoulos et al., ECML 2002), over the draw of the calibration images and of the new one.

By risk r: the largest of the coverages 5 %, 10 %, ..., 100 % at which the share of wrong predictions among accepted
images is at most r by a Clopper-Pearson bound. Each of the 20 bounds holds with 1 - 5 % / 20, so that with 95 % over
the draw of the calibration images all hold, and with them the one that is chosen (Bonferroni). At 100 % the threshold
is the largest calibration uncertainty and not infinity: risk is a promise for images of the same kind alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.special import betaincinv
from torch import Tensor

from dsui.errors import DsuiError

CONFIDENCE = 0.95
LEVELS = 20
DIGITS = 9
"""Decimals of (n + 1) c that count: 20 * 0.95 must be 19 whatever its last bits."""


class Threshold(NamedTuple):
    """Uncertainties up to `value` are accepted; the rest says what that does to the calibration images."""

    value: float
    coverage: float
    """Share of them that is accepted."""
    risk: float
    """Share of the accepted ones that is predicted wrongly."""
    images: int
    """How many there are."""


def at_coverage(uncertainties: Tensor, errors: Tensor, coverage: float) -> Threshold:
    """From [N] uncertainties and whether each prediction was wrong."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be a share of the images between 0 and 1, as in 0.95, got {coverage}.")
    count = len(uncertainties)
    kept = math.ceil(round((count + 1) * coverage, DIGITS))
    if kept > count:
        needed = math.ceil(round(coverage / (1 - coverage), DIGITS))
        raise DsuiError(
            f"a coverage of {coverage} takes at least {needed} calibration images and there are {count}; "
            "choose a lower one, or train with more images or a larger --calibration."
        )
    return _keeping(kept, uncertainties, errors)


def at_risk(uncertainties: Tensor, errors: Tensor, risk: float) -> Threshold:
    """From [N] uncertainties and whether each prediction was wrong."""
    if not 0 < risk < 1:
        raise ValueError(f"risk must be a share of wrong predictions between 0 and 1, as in 0.02, got {risk}.")
    count = len(uncertainties)
    wrong = errors[uncertainties.argsort()].cumsum(0)
    for level in range(LEVELS, 0, -1):
        kept = -(-level * count // LEVELS)
        if upper_bound(int(wrong[kept - 1]), kept, 1 - (1 - CONFIDENCE) / LEVELS) <= risk:
            return _keeping(kept, uncertainties, errors)
    needed = math.ceil(math.log((1 - CONFIDENCE) / LEVELS) / math.log1p(-risk))
    raise DsuiError(
        f"{count} calibration images, {int(wrong[-1])} of them predicted wrongly, cannot assure a risk of {risk}: that "
        f"takes {needed} accepted ones without an error, or more with errors; allow a larger risk, or train with more "
        "images or a larger --calibration."
    )


def upper_bound(errors: int, samples: int, confidence: float) -> float:
    """Clopper and Pearson: the largest error rate at which so few errors still have a chance of 1 - confidence."""
    return 1.0 if errors == samples else float(betaincinv(errors + 1, samples - errors, confidence))


def _keeping(count: int, uncertainties: Tensor, errors: Tensor) -> Threshold:
    """That accepts the `count` smallest, and any that tie with the last of them."""
    value = uncertainties.sort().values[count - 1]
    accepted = uncertainties <= value
    risk = errors[accepted].to(torch.float64).mean().item()
    return Threshold(value.item(), accepted.to(torch.float64).mean().item(), risk, len(uncertainties))
