"""Products with a lower triangular matrix L [M, M], for little more than half of a full product's operations.

Columns are taken in blocks, and of each block only the rows that are not zero:

    x L = ( x_{I:} L_{I:,I} )  for all blocks I,    x_{I:}: the columns of x from the first of I on

So are the derivatives, d x = d L^T and d L = the lower part of x^T d, and those of the trace of the inverse of L L^T:

    |L^-1|^2,    d L = -2 the lower part of X^T X X^T,    X = L^-1

What a derivative has above the diagonal is of no meaning. Second derivatives, `torch.func` and compiled models get full
products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch, records
from dsui.fused import uncompiled
from dsui.matrix_product import product, true_precision

BLOCK = 64
"""Columns; smaller blocks save operations, and their products are slower."""


def triangular_product(x: Tensor, factor: Tensor) -> Tensor:
    """x L in the operands' own precision: [N, M], [M, M] -> [N, M]."""
    return _triangular_product(x, factor, torch.compiler.is_compiling())


def inverse_square_sum(factor: Tensor) -> Tensor:
    """|L^-1|^2, a scalar."""
    return _inverse_square_sum(factor, torch.compiler.is_compiling())


@uncompiled
def _triangular_product(x: Tensor, factor: Tensor, compiled: bool) -> Tensor:
    if by_pytorch() or len(factor) <= BLOCK:
        return product(x, factor.T)
    result: Tensor = _TriangularProduct.apply(x, factor, compiled)  # type: ignore[no-untyped-call]
    return result


@uncompiled
def _inverse_square_sum(factor: Tensor, compiled: bool) -> Tensor:
    if by_pytorch() or len(factor) <= BLOCK:
        return _inverse(factor).square().sum()
    result: Tensor = _InverseSquareSum.apply(factor, compiled)  # type: ignore[no-untyped-call]
    return result


class _TriangularProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor, compiled: bool) -> Tensor:
        ctx.save_for_backward(x, factor)
        ctx.compiled = compiled
        with true_precision(x.device):
            return _times(x, factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, factor = ctx.saved_tensors
        if records(ctx.compiled):
            return product(grad, factor), product(x.T, grad.T).tril(), None
        with true_precision(grad.device):
            return (
                _times_transposed(grad, factor) if ctx.needs_input_grad[0] else None,
                _lower_part(x, grad) if ctx.needs_input_grad[1] else None,
                None,
            )


class _InverseSquareSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, factor: Tensor, compiled: bool) -> Tensor:
        inverse = _inverse(factor)
        ctx.save_for_backward(factor, inverse)
        ctx.compiled = compiled
        return inverse.square().sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        factor, inverse = ctx.saved_tensors
        if records(ctx.compiled):
            inverse = _inverse(factor)
            covariance = product(inverse.T, inverse.T)
            return -2 * grad * product(covariance, inverse).tril(), None
        with true_precision(grad.device):
            return -2 * grad * _covariance_by_transposed(inverse), None


def _inverse(factor: Tensor) -> Tensor:
    eye = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse


def _blocks(size: int) -> Iterator[tuple[int, int]]:
    """First and last + 1 of each block."""
    return ((first, min(first + BLOCK, size)) for first in range(0, size, BLOCK))


def _times(x: Tensor, factor: Tensor) -> Tensor:
    """x L."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    for first, end in _blocks(len(factor)):
        torch.mm(x[:, first:], factor[first:, first:end], out=result[:, first:end])
    return result


def _times_transposed(x: Tensor, factor: Tensor) -> Tensor:
    """x L^T."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    for first, end in _blocks(len(factor)):
        torch.mm(x[:, :end], factor[first:end, :end].T, out=result[:, first:end])
    return result


def _lower_part(x: Tensor, y: Tensor) -> Tensor:
    """x^T y below the diagonal and within the blocks on it, else zero: [N, M], [N, M] -> [M, M]."""
    result = x.new_zeros(x.shape[1], y.shape[1])
    for first, end in _blocks(y.shape[1]):
        torch.mm(x[:, first:].T, y[:, first:end], out=result[first:, first:end])
    return result


def _covariance_by_transposed(inverse: Tensor) -> Tensor:
    """X^T X X^T below the diagonal and within the blocks on it, of a lower triangular X; zero above."""
    covariance, result = torch.empty_like(inverse), torch.zeros_like(inverse)
    for first, end in _blocks(len(inverse)):
        torch.mm(inverse[first:, first:].T, inverse[first:, first:end], out=covariance[first:, first:end])
        torch.mm(covariance[first:, :end], inverse[first:end, :end].T, out=result[first:, first:end])
    return result
