"""Cholesky factors and triangular systems in plain operations are those of LAPACK."""

from __future__ import annotations

import torch

from dsui.export.small_matrices import cholesky_ex, solve_triangular


def test_factor_and_solution_are_those_of_lapack() -> None:
    torch.manual_seed(0)
    root = torch.randn(3, 2, 5, 9, dtype=torch.float64)
    matrix, right = root @ root.mT, torch.randn(3, 2, 5, 4, dtype=torch.float64)
    factor, wrong = cholesky_ex(matrix)
    torch.testing.assert_close(factor, torch.linalg.cholesky(matrix))
    assert wrong.shape == (3, 2)
    assert not wrong.any()
    expected = torch.linalg.solve_triangular(factor, right, upper=False)
    torch.testing.assert_close(solve_triangular(factor, right, upper=False), expected)
