"""Batch norms of a whole model, including the head's: statistics estimated again, or shared by all processes.

Sharing, with n values per channel over all processes and x^ = (x - mean) / sqrt(var + eps):

    mean = sum_r n_r mean_r / n,   n var = sum_r { n_r var_r + n_r (mean_r - mean)^2 }    (Chan et al., 1979)
    dL/dx = weight / sqrt(var + eps) { dy - (sum dy + x^ sum dy x^) / n }                 sums over all processes

Not E[x^2] - E[x]^2, which loses the variance of channels with a large mean. On GPUs the network's norms become
`torch.nn.SyncBatchNorm`, which does the same with kernels of its own. It refuses tensors on a CPU and does not know the
head's projection, so there the functions of this file serve.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from dsui.projection import SphereProjection


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@torch.no_grad()
def reestimate(model: nn.Module, inputs: Iterable[Tensor]) -> None:
    """Estimate the running statistics again, as the plain mean over batches of batch means and unbiased variances.

    For weights that were never trained with their statistics, such as averaged ones. Calls `model` on every input in
    training mode without dropout; batches of equal size weight all samples equally.
    """
    norms = batch_norms(model)
    training = {module: module.training for module in model.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    count = 0
    try:
        model.train()
        for module in training:
            if isinstance(module, _DropoutNd):
                module.eval()
        for count, x in enumerate(inputs, start=1):
            for norm in norms:
                if count == 1:
                    norm.reset_running_stats()
                norm.momentum = 1 / count
            model(x)
    finally:
        for module, flag in training.items():
            module.training = flag
        for norm, momentum in momenta.items():
            norm.momentum = momentum
    if count == 0:
        raise ValueError("there is no batch to estimate statistics from, so the old ones were kept; pass some inputs.")


def synchronise(model: nn.Module, device: torch.device) -> None:
    """Let every batch norm of `model`, in place, use the statistics of all processes in training mode on `device`.

    Parameters, buffers and state-dict keys stay. From then on all processes must run the model in training mode
    together, including the head's `project` and `log_prob`; batches may differ in size. Without other processes nothing
    changes.
    """
    for norm in batch_norms(model):
        if isinstance(norm, _Synced | SyncedSphereProjection | nn.SyncBatchNorm):
            continue
        if type(norm) not in SYNCED:
            raise ValueError(f"a {type(norm).__name__} cannot be synchronised; replace it by a plain batch norm.")
        if device.type == "cuda" and not isinstance(norm, SphereProjection):
            norm.__class__ = nn.SyncBatchNorm
            norm.__dict__["process_group"] = None  # the last thing that PyTorch's own conversion would change
        else:
            norm.__class__ = SYNCED[type(norm)]


def synced_batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """`F.batch_norm` in training, over the batches [B, C, ...] of all processes."""
    with torch.no_grad():
        mean, var, count = _global_statistics(x)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * (count / (count - 1))).to(running_var.dtype), momentum)
    y: Tensor = _Normalise.apply(x, weight, bias, mean, var, count, eps)  # type: ignore[no-untyped-call]
    return y


class _Synced(_BatchNorm):
    """Mixed into a batch-norm class, makes it synchronised."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's name)
        if not self.training or _alone():
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        running_mean = running_var = None
        momentum = self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            running_mean, running_var = self.running_mean, self.running_var
            self.num_batches_tracked.add_(1)
            momentum = 1 / int(self.num_batches_tracked) if momentum is None else momentum
        return synced_batch_norm(input, running_mean, running_var, self.weight, self.bias, momentum or 0.0, self.eps)


class SyncedBatchNorm1d(_Synced, nn.BatchNorm1d):
    """For [B, C] or [B, C, L]."""


class SyncedBatchNorm2d(_Synced, nn.BatchNorm2d):
    """For [B, C, H, W]."""


class SyncedSphereProjection(SphereProjection):
    """The head's projection, with statistics of all processes."""

    def _batch_norm(self, x: Tensor, mean: Tensor | None, var: Tensor | None, training: bool) -> Tensor:
        if not training or _alone():
            return super()._batch_norm(x, mean, var, training)
        return synced_batch_norm(x, mean, var, None, None, self.momentum or 0.0, self.eps)


SYNCED: dict[type[_BatchNorm], type[_BatchNorm]] = {
    nn.BatchNorm1d: SyncedBatchNorm1d,
    nn.BatchNorm2d: SyncedBatchNorm2d,
    SphereProjection: SyncedSphereProjection,
}


class _Normalise(torch.autograd.Function):
    """weight (x - mean) / sqrt(var + eps) + bias, where mean and var depend on the x of every process."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
        mean, var, count, eps = rest
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps), count)
        return F.batch_norm(x, mean, var, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise ValueError(
                "second derivatives through batch norms that several processes share are not supported; "
                "call eval() first, or train with one process."
            )
        x, weight, mean, scale, count = ctx.saved_tensors
        dims, shape = _over_channels(x)
        normalised = (x - mean.view(shape)) * scale.view(shape)
        own = torch.stack([dy.sum(dims, dtype=mean.dtype), (dy * normalised).sum(dims)])
        sums = own.clone()
        dist.all_reduce(sums)
        constant, slope = sums / count
        gain = scale if weight is None else scale * weight
        dx = gain.view(shape) * (dy - constant.view(shape) - normalised * slope.view(shape))
        _, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        # a parameter's gradient is this process's share, and is reduced with those of all other parameters
        return dx.to(x.dtype), own[1] if needs_weight else None, own[0] if needs_bias else None, *[None] * 4


def _global_statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean [C] and biased variance [C] over all processes, and n, in float32 or wider."""
    dims, _ = _over_channels(x)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    own_var, own_mean = torch.var_mean(wide, dims, correction=0)
    own_count = own_mean.new_full((1,), x.numel() // x.shape[1])
    rows = own_mean.new_zeros(dist.get_world_size(), 2 * x.shape[1] + 1)
    rows[dist.get_rank()] = torch.cat([own_mean, own_var, own_count])
    # a sum over otherwise empty rows, because every backend can sum on every device but not every one can gather
    dist.all_reduce(rows)
    means, variances, counts = rows.split([x.shape[1], x.shape[1], 1], dim=1)
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    return mean, (counts * (variances + (means - mean).square())).sum(0) / count, count


def _over_channels(x: Tensor) -> tuple[list[int], list[int]]:
    """The dimensions that statistics of x [B, C, ...] are taken over, and the shape that broadcasts them to x."""
    return [0, *range(2, x.ndim)], [-1 if dim == 1 else 1 for dim in range(x.ndim)]


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
