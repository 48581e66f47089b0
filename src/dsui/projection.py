"""Features on a sphere: h = batch norm of x without affine, z = sqrt(M) h / |h|.

Foreign images give short features. Left alone they lie nearer to every mean than in-domain features do
and look dense; on a sphere all features are equally long, and what the sphere drops, |h|, is kept beside it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

EPSILON = 1e-6
"""Added to the mean square of h, so that z and its gradient are finite at h = 0."""


class SphereProjection(nn.BatchNorm1d):
    """Batch norm without affine parameters, then a projection to the sphere of radius sqrt(M)."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, features: int) -> None:
        super().__init__(features, affine=False)

    def project(self, x: Tensor, batch_statistics: bool, update: bool) -> tuple[Tensor, Tensor]:
        """z [B, M] and |h| [B], by the batch's own statistics or the running ones; `update` moves the latter."""
        z, norm = _Sphere.apply(self._normalise(x, batch_statistics, update))  # type: ignore[no-untyped-call]
        return z, norm

    def _normalise(self, x: Tensor, batch_statistics: bool, update: bool) -> Tensor:
        if batch_statistics and not (update and self.track_running_stats):
            return self._batch_norm(x, None, None, training=True)
        mean, var = self.running_mean.to(x.dtype), self.running_var.to(x.dtype)
        h = self._batch_norm(x, mean, var, training=batch_statistics)
        if not batch_statistics:
            return h
        self.num_batches_tracked.add_(1)
        if mean.dtype != self.running_mean.dtype:
            self.running_mean.copy_(mean)
            self.running_var.copy_(var)
        return h

    def _batch_norm(self, x: Tensor, mean: Tensor | None, var: Tensor | None, training: bool) -> Tensor:
        """By the statistics of x in training, which move `mean` and `var`; else by `mean` and `var`."""
        if training and len(x) < 2:
            raise ValueError(
                f"a training batch of {len(x)} cannot be normalised; use at least two samples "
                "(drop the last incomplete batch) or call eval() first."
            )
        return F.batch_norm(x, mean, var, training=training, momentum=self.momentum or 0.0, eps=self.eps)


class _Sphere(torch.autograd.Function):
    """z = h r with r = (|h|^2 / M + epsilon)^(-1/2), and |h|: [B, M] -> [B, M], [B].

    d h = r (d z - z <z, d z> / M) + d|h| h / |h|. Written out, because a composition of a dozen operations would read
    and write the batch three times as often.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(h, dim=1)
        shrink = torch.rsqrt(norm.square() / h.shape[1] + EPSILON)[:, None]
        z = h * shrink
        ctx.save_for_backward(z, shrink, norm)
        ctx.set_materialize_grads(False)
        return z, norm

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z: Tensor | None, d_norm: Tensor | None) -> Tensor | None:
        z, shrink, norm = ctx.saved_tensors
        d_h = None
        if d_z is not None:
            along = torch.linalg.vecdot(z, d_z)[:, None]
            d_h = shrink * torch.addcmul(d_z, z, along, value=-1 / z.shape[1])
        if d_norm is not None:
            unit = z / (shrink * norm[:, None]).clamp(min=torch.finfo(z.dtype).tiny)
            d_h = d_norm[:, None] * unit if d_h is None else torch.addcmul(d_h, d_norm[:, None], unit)
        return d_h
