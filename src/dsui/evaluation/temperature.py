"""Temperature scaling (Guo et al., ICML 2017): the T that makes held-out labels most likely under softmax(y / T).

In b = 1/T the mean NLL is convex, with slope mean(E_p[y] - y_label) and curvature mean(Var_p[y]), p = softmax(b y).
Newton's steps find the root of the slope; where one would leave the interval that holds it, or is not half as long as
the step before, the interval is halved instead.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.checks import check_labels
from dsui.detectors.detector import CHUNK_ELEMENTS

RANGE = 1e-3, 1e3
"""The limits of T. For logits that are right for every sample the best T is 0, for misleading logits infinity."""
TOLERANCE = 1e-12


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
    step = max(1, CHUNK_ELEMENTS // logits.shape[1])
    for part, label in zip(logits.split(step), labels.split(step), strict=True):
        distance = part.double() - part.double().gather(1, label[:, None])
        p = (scale * distance).softmax(1)
        mean = (p * distance).sum(1, keepdim=True)
        slope += float(mean.sum())
        curvature += float((p * (distance - mean).square()).sum())
    return slope / len(logits), curvature / len(logits)
