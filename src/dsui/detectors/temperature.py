"""Temperature scaling (Guo et al., ICML 2017): the T for which softmax(y / T) is likeliest on held-out samples.

In b = 1/T the mean NLL is convex, with slope mean(E_p[y] - y_label) and curvature mean(Var_p[y]), p = softmax(b y).
Newton's steps find the root of the slope; where one would leave the interval that holds it, this is halved instead.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsui.checks import check_labels
from dsui.detectors.detector import CHUNK_ELEMENTS

RANGE = 1e-3, 1e3
"""T stays in here. Logits that are right for every sample have their best T at 0, logits that mislead at infinity."""
STEPS = 100
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
    low, high = -math.log(RANGE[1]), -math.log(RANGE[0])
    position = 0.0
    for _ in range(STEPS):
        scale = math.exp(position)
        slope, curvature = _derivatives(logits, labels, scale)
        if slope == 0:
            break
        low, high = (low, position) if slope > 0 else (position, high)
        newton = scale - slope / curvature if curvature > 0 else 0.0
        proposed = math.log(newton) if newton > 0 else -math.inf
        previous, position = position, proposed if low < proposed < high else (low + high) / 2
        if abs(position - previous) < TOLERANCE:
            break
    return math.exp(-position)


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
