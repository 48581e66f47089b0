"""Features on a sphere: h = batch norm of x without affine, z = sqrt(M) h / |h|.

Foreign images give short features. Without a projection these lie nearer to every mean than in-domain features do, and
their density looks high. On a sphere all features are equally long, and |h|, which the sphere drops, is kept beside it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        """z [B, M] and |h| [B], with the batch's own statistics or the running ones, which `update` updates.

        z = h (|h|^2 / M + epsilon)^(-1/2), which is h over its root mean square.
        """
        h = self._normalise(x, batch_statistics, update)
        return F.rms_norm(h, h.shape[1:], eps=EPSILON), torch.linalg.vector_norm(h, dim=1)

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
        """With the statistics of x in training, which update `mean` and `var`; otherwise with `mean` and `var`."""
        if training and len(x) < 2:
            raise ValueError(
                f"a training batch of {len(x)} cannot be normalised; use at least two samples "
                "(drop the last incomplete batch) or call eval() first."
            )
        return F.batch_norm(x, mean, var, training=training, momentum=self.momentum or 0.0, eps=self.eps)
