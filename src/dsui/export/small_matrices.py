"""The Cholesky factor of small matrices and the solution of a triangular system in plain operations, which ONNX lacks.

    L_:j = v / sqrt(v_j),   v = A_:j - sum_{k < j} L_:k L_jk,   zero above the diagonal
    x_i  = (b_i - sum_{k < i} L_ik x_k) / L_ii

One step for each column: for matrices as small as the rank of a covariance (`dsui.families.low_rank_gaussian`). What
depends on parameters alone is computed before a graph is written, so none of it is left in the file.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cholesky_ex(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`torch.linalg.cholesky_ex`: L [..., r, r] of positive definite matrices, and zeros for what went wrong."""
    if upper or check_errors:
        raise NotImplementedError("only lower factors, without a check")
    size, columns = matrix.shape[-1], list[Tensor]()
    rows = torch.arange(size, device=matrix.device)
    for j in range(size):
        column = matrix[..., j]
        for earlier in columns:
            column = column - earlier * earlier[..., j : j + 1]
        columns.append(torch.where(rows >= j, column / column[..., j : j + 1].sqrt(), 0.0))
    return torch.stack(columns, -1), torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)


def solve_triangular(
    factor: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """L^-1 B of lower triangular matrices [..., r, r] and [..., r, n]: `torch.linalg.solve_triangular`."""
    if upper or not left or unitriangular:
        raise NotImplementedError("only lower factors on the left")
    rows: list[Tensor] = []
    for i in range(factor.shape[-1]):
        row = right[..., i, :]
        for k, earlier in enumerate(rows):
            row = row - factor[..., i, k, None] * earlier
        rows.append(row / factor[..., i, i, None])
    return torch.stack(rows, -2)
