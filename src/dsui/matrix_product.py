"""Matrix products in the type of their operands, forward and backward, whatever the settings for speed are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch, records
from dsui.fused import uncompiled


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T in the operands' own precision, as are derivatives of any order: [B, M], [N, M] -> [B, N]."""
    return _product(left, right, torch.compiler.is_compiling())


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in a backward pass within `true_precision`; it records itself only where it is differentiated."""
    return product(left, right.T) if torch.is_grad_enabled() else left @ right


@uncompiled
def _product(left: Tensor, right: Tensor, compiled: bool) -> Tensor:
    function, facts = (_TransformableProduct, ()) if by_pytorch() else (_Product, (compiled,))
    result: Tensor = function.apply(left, right, *facts)  # type: ignore[no-untyped-call]
    return result


@contextmanager
def true_precision(device: torch.device) -> Iterator[None]:
    """Run matrix products in the type of their operands: no autocast, no TF32, no bfloat16 emulation.

    PyTorch keeps the setting in two interfaces at once (one older, one per backend) and refuses products
    where they disagree, so both are set and both are restored.
    """
    cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    per_backend = cuda.fp32_precision, cpu.fp32_precision
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # the two interfaces already disagree; the older one cannot be read or restored
        legacy = None
    try:
        if legacy is None:
            cuda.fp32_precision = cpu.fp32_precision = "ieee"
        else:
            torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
        cuda.fp32_precision, cpu.fp32_precision = per_backend


class _Product(torch.autograd.Function):
    """`compiled`: called by a compiled model."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, compiled: bool) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.compiled = compiled
        with true_precision(left.device):
            return left @ right.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        records(ctx.compiled)
        return *_gradients(ctx, grad), None


class _TransformableProduct(torch.autograd.Function):
    """The same for `torch.func` and forward mode; its form costs 40 microseconds more a call."""

    generate_vmap_rule = True

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        with true_precision(left.device):
            return left @ right.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        del output
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _gradients(ctx, grad)

    @staticmethod
    def jvp(ctx: Any, d_left: Tensor, d_right: Tensor) -> Tensor:
        left, right = ctx.saved_tensors
        return product(d_left, right) + product(left, d_right)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    left, right = ctx.saved_tensors
    with true_precision(grad.device):
        return (
            multiply(grad, right) if ctx.needs_input_grad[0] else None,
            multiply(grad.T, left) if ctx.needs_input_grad[1] else None,
        )
