"""ODIN (Liang et al., ICLR 2018): Max.P. at a high temperature, after a step that makes the model more certain.

    n' = n - epsilon sign(grad_n -ln softmax(y(n) / T)_c) / std,  c = argmax y(n);   u = ln(1 - max softmax(y(n') / T))

n are normalised images, so the step is epsilon of a pixel; the sign of 0 counts as +1, as in the authors' code.
A shift of y changes nothing, so log-probabilities serve as well as logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from dsui.checks import check_positive
from dsui.detectors.detector import Detector
from dsui.outputs import Outputs
from dsui.scores import max_probability

if TYPE_CHECKING:
    from dsui.methods.method import Method


class Odin(Detector):
    """Needs no fitting, but the network: `score` takes the outputs of inputs that `perturb` has changed."""

    needs_fit = False

    def __init__(self, temperature: float = 1000.0, epsilon: float = 0.0014) -> None:
        check_positive("temperature", temperature)
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be finite and not negative, got {epsilon}.")
        self.temperature, self.epsilon = temperature, epsilon

    def perturb(self, method: Method, inputs: Tensor, std: Sequence[float]) -> Tensor:
        """n' of normalised images n [B, channels, H, W] that were divided by `std`, one value for each channel.

        No parameter's `.grad` is changed, and the call may stand inside no_grad or inference mode.
        """
        if any(module.training for module in method.modules()):
            raise ValueError("the method is in training mode; call its eval() first.")
        if inputs.ndim != 4 or len(std) != inputs.shape[1]:
            raise ValueError(
                f"inputs have shape {list(inputs.shape)} and std {len(std)} values; "
                "give [batch, channels, height, width] and one value for each channel."
            )
        for value in std:
            check_positive("std", value)
        with torch.inference_mode(False), torch.enable_grad():
            start = inputs.detach().clone().requires_grad_()
            logits = method.predict(start).logits.double() / self.temperature
            if not logits.requires_grad:
                raise ValueError(
                    f"{type(method).__name__} predicts without a gradient by its inputs, which ODIN needs."
                )
            loss = F.cross_entropy(logits, logits.argmax(1), reduction="sum")
            (gradient,) = torch.autograd.grad(loss, start)
        step = self.epsilon / start.new_tensor(std).view(-1, 1, 1)
        with torch.no_grad():
            return torch.where(gradient >= 0, start - step, start + step)

    @torch.no_grad()
    def score_images(self, method: Method, inputs: Tensor, std: Sequence[float]) -> Tensor:
        """[B] in float64: the score of normalised images, from `perturb` to `score`."""
        return self._score(method.predict(self.perturb(method, inputs, std)))

    def _score(self, outputs: Outputs) -> Tensor:
        return max_probability(outputs.logits.double() / self.temperature)
