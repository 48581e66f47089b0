"""Fast gradient sign method (Goodfellow et al., ICLR 2015): one step up the classifier's loss for every image.

With pixels x in [0, 1], n = (x - mean) / std as the model takes them, and the loss -ln p(label | n):

    space="pixel"        x' = clip(x + eps sign(grad_x loss), 0, 1),  n' = (x' - mean) / std
    space="normalised"   n' = n + eps sign(grad_n loss),  not clipped

std is positive, so both gradients have the same signs, and up to clipping eps of pixels is eps / std of n. A pixel
whose gradient is exactly 0 does not change. This happens where the model is so sure that its number format cannot
express it: attack in float32, not in half precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.checks import check_choice, check_labels, check_positive

HALF = (0.5,)


def fgsm(
    log_probabilities: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    space: Literal["pixel", "normalised"] = "pixel",
    mean: Sequence[float] = HALF,
    std: Sequence[float] = HALF,
) -> Tensor:
    """Attacked images [B, C, H, W], float32 and normalised, ready for the model in either space.

    `images` are uint8 [B, C, H, W] and `labels` the true int64 [B]; `mean` and `std` have a value for each channel, or
    one for all. `log_probabilities` maps normalised images [B, C, H, W] to ln p [B, classes]; for a method that samples
    it returns `mean_log_probabilities`. It must be in evaluation mode: batch norm with batch statistics lets images
    change each other's gradients. It is called once, so it draws from the random generators as one prediction does;
    nothing else here does. No parameter's `.grad` changes, and the call works under no_grad and inference mode too.
    """
    check_choice("space", space, ("pixel", "normalised"))
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and not negative, got {epsilon}.")
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(
            f"images are {images.dtype} {list(images.shape)}; give uint8 [batch, channels, height, width]."
        )
    with torch.inference_mode(False), torch.enable_grad():
        centre, scale = _per_channel("mean", mean, images), _per_channel("std", std, images)
        for value in std:
            check_positive("std", value)
        pixels = images.float() / 255
        normalised = ((pixels - centre) / scale).requires_grad_()
        direction = _loss_gradient(log_probabilities, normalised, labels.clone()).sign()
        if space == "normalised":
            return normalised.detach() + epsilon * direction
        return ((pixels + epsilon * direction).clamp(0, 1) - centre) / scale


def mean_log_probabilities(sample_logits: Tensor) -> Tensor:
    """[B, C] ln of the mean over samples of softmax(logits), for logits [S, B, C]."""
    return torch.logsumexp(sample_logits.log_softmax(2), 0) - math.log(len(sample_logits))


def _loss_gradient(log_probabilities: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the sum over images, so that an image's gradient does not depend on the others in its batch."""
    predicted = log_probabilities(inputs)
    if predicted.ndim != 2 or len(predicted) != len(inputs):
        raise ValueError(
            f"log_probabilities returned {list(predicted.shape)} for {len(inputs)} images; return [batch, classes]."
        )
    if not predicted.requires_grad:
        raise ValueError("log_probabilities cuts the gradient; call the model without no_grad, detach or numpy.")
    check_labels(labels, len(inputs), predicted.shape[1])
    (gradient,) = torch.autograd.grad(F.nll_loss(predicted, labels, reduction="sum"), inputs)
    if not bool(gradient.isfinite().all()):
        raise ValueError("The loss has no finite gradient; use log_softmax, not the logarithm of a softmax.")
    return gradient


def _per_channel(name: str, values: Sequence[float], images: Tensor) -> Tensor:
    channels = images.shape[1]
    if len(values) not in {1, channels}:
        raise ValueError(f"{name} has {len(values)} values; give one, or one for each of {channels} channels.")
    return torch.tensor(values, dtype=torch.float32, device=images.device).view(-1, 1, 1)
