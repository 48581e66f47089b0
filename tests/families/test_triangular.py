"""Products with a triangular matrix are those with any matrix, and so are derivatives below the diagonal."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsui.families.triangular import inverse_square_sum, triangular_product


def lower(size: int) -> Tensor:
    torch.manual_seed(size)
    return (torch.randn(size, size).tril(-1) / size + torch.diag(torch.rand(size) + 0.5)).double().requires_grad_()


@pytest.mark.parametrize("size", [1, 64, 65, 150])
def test_products_and_first_derivatives_are_those_of_full_matrices(size: int) -> None:
    factor, x = lower(size), torch.randn(7, size, dtype=torch.float64, requires_grad=True)
    found, expected = triangular_product(x, factor), x @ factor
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(each, (x, factor), weights) for each in (found, expected))
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1].tril(), theirs[1].tril())
    found, expected = inverse_square_sum(factor), torch.linalg.inv(factor).square().sum()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, factor)[0].tril() for each in (found, expected)))


def test_second_derivatives_are_those_of_finite_differences() -> None:
    factor, x = lower(66).detach(), torch.randn(2, 66, dtype=torch.float64, requires_grad=True)
    moved = torch.zeros(3, dtype=torch.float64, requires_grad=True)  # one entry in every kind of block
    places = torch.tensor([[3, 65, 65], [3, 2, 64]])

    def both(x: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
        changed = factor.index_put((places[0], places[1]), moved, accumulate=True)
        return triangular_product(x, changed).sin().sum(), inverse_square_sum(changed)

    assert torch.autograd.gradcheck(both, (x, moved))
    assert torch.autograd.gradgradcheck(both, (x, moved))
