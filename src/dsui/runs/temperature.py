"""Temperature scaling (Guo et al., ICML 2017): the T that makes held-out labels most likely under softmax(y / T).

Where every held-out image is right, the plain fit makes T as small as it can be, and the first error afterwards costs
tens of nats. So N labels count as one more image that is half right and half wrong (Krichevsky and Trofimov, 1981):

    T = argmin 1/N sum_n -sum_c t_nc ln softmax(y_n / T)_c,  t = 1 - e on the label, e / (C - 1) elsewhere,
    e = 1 / (2 (N + 1))

In b = 1/T the sum is convex, with slope mean(E_p[y] - E_t[y]) and curvature mean(Var_p[y]), p = softmax(b y).
Newton's steps find the root of the slope; where one would leave the interval that holds it, or is not half as long as
the step before, the interval is halved instead.

One number scales all logits, so labels and accuracy stay as they are. Uncertainties, thresholds and results rows of
rankings are those of the unscaled logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.checks import check_labels
from dsui.detectors.detector import CHUNK_ELEMENTS

RANGE = 1e-3, 1e3
"""The limits of T. For misleading logits the best T is infinity."""
TOLERANCE = 1e-12
FEWEST_IMAGES = 50
"""With fewer held-out images a fitted T is often worse than none: docs/evaluation.md has the figures."""


def temperature_of(logits: Tensor, labels: Tensor) -> float | None:
    """T of held-out images, [N, C] and [N]; None where there are too few of them, or logits without end."""
    if len(logits) < FEWEST_IMAGES or not bool(logits.isfinite().all()):
        return None
    return fit_temperature(logits, labels)


@torch.no_grad()
def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """T within RANGE for logits [N, C] of samples the model was not trained on; 1 if every T is as good."""
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(
            f"logits have shape {list(logits.shape)}; at least one sample in [samples, classes] is needed."
        )
    check_labels(labels.cpu(), *logits.shape)
    if not bool(logits.isfinite().all()):
        raise ValueError("some logits are NaN or infinite; check the model and its input.")
    low, high = 1 / RANGE[1], 1 / RANGE[0]
    scale, last_step = 1.0, math.inf
    slope, curvature = _derivatives(logits, labels, scale)
    if slope == 0:
        return 1.0
    if _derivatives(logits, labels, low)[0] >= 0:
        return RANGE[1]
    if _derivatives(logits, labels, high)[0] <= 0:
        return RANGE[0]
    while slope != 0 and last_step > TOLERANCE * scale:
        low, high = (low, scale) if slope > 0 else (scale, high)
        proposed = scale - slope / curvature if curvature > 0 else low
        if not low < proposed < high or abs(proposed - scale) > last_step / 2:
            proposed = math.sqrt(low * high)
        scale, last_step = proposed, abs(proposed - scale)
        slope, curvature = _derivatives(logits, labels, scale)
    return 1 / scale


def _derivatives(logits: Tensor, labels: Tensor, scale: float) -> tuple[float, float]:
    slope = curvature = 0.0
    samples, classes = logits.shape
    elsewhere = 1 / (2 * (samples + 1)) / max(1, classes - 1)
    step = max(1, CHUNK_ELEMENTS // classes)
    for part, label in zip(logits.split(step), labels.split(step), strict=True):
        distance = part.double() - part.double().gather(1, label[:, None])
        p = (scale * distance).softmax(1)
        mean = (p * distance).sum(1, keepdim=True)
        slope += float(mean.sum() - elsewhere * distance.sum())
        curvature += float((p * (distance - mean).square()).sum())
    return slope / samples, curvature / samples
