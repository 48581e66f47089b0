"""Sharpness-aware minimisation (Foret et al., ICLR 2021).

The gradient is taken at the worst point of a ball around w, to first order:

    e = radius g(w) / |g(w)|,    w <- optimizer step at w with g(w + e)

A step is therefore two passes over the same batch:

    loss().backward(); sharpness.climb(); optimizer.zero_grad()
    with frozen_statistics(model):
        loss().backward()
    sharpness.descend(); optimizer.step()

|g| is the norm over all parameters together. Under data parallelism g is the mean of all processes, so every process
climbs to the same point; in the paper each process climbs by its own gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dsui.checks import check_positive
from dsui.training.batch_norm import batch_norms

EPSILON = 1e-12
"""Added to |g|, so that a vanishing gradient gives no climb instead of 0 / 0; as in the authors' code."""


class SharpnessAware:
    """Moves `parameters` to the worst point within `radius` and back, without host synchronisation.

    It keeps a copy of w and not of e, because w + e - e is not w in floating point.
    """

    def __init__(self, parameters: Iterable[Tensor], radius: float) -> None:
        check_positive("radius", radius)
        self.radius = radius
        self._parameters = list(parameters)
        self._kept = [parameter.detach().clone() for parameter in self._parameters]
        self._is_up = False

    @torch.no_grad()
    def climb(self) -> None:
        """w += radius g / (|g| + 1e-12), after a backward pass; parameters without a gradient stay."""
        if self._is_up:
            raise ValueError("climb() was called twice; call descend() between.")
        moving = [parameter for parameter in self._parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
        if not gradients:
            raise ValueError("no parameter has a gradient; call backward() before climb().")
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_copy_(self._kept, self._parameters)
        torch._foreach_add_(moving, torch._foreach_mul(gradients, self.radius / (norm + EPSILON)))
        self._is_up = True

    @torch.no_grad()
    def descend(self) -> None:
        """Restore w to the last bit; the gradients stay those of w + e."""
        if not self._is_up:
            raise ValueError("descend() without climb(); there are no weights to go back to.")
        torch._foreach_copy_(self._parameters, self._kept)
        self._is_up = False


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Within it, batch norms normalise as usual, in training mode by the batch, but keep their running statistics.

    The statistics at w + e do not belong to the network that is kept.
    """
    tracked = {norm: norm.track_running_stats for norm in batch_norms(model)}
    try:
        for norm in tracked:
            norm.track_running_stats = False
        yield
    finally:
        for norm, flag in tracked.items():
            norm.track_running_stats = flag
