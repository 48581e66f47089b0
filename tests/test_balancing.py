"""Balanced responsibilities: equal shares for all components, Sinkhorn's solution, and a bound of the class score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from dsui.balancing import balanced, balanced_shares
from dsui.head import MoGMMHead
from dsui.objectives import DualSupervisedLoss


def test_shares_are_those_of_sinkhorn_for_each_class_alone() -> None:
    """The oracle scales rows and columns of exp(x) of one class in turn, a thousand times."""
    torch.manual_seed(0)
    own, y = 0.5 * torch.randn(30, 3).double(), torch.arange(30) % 2
    found = balanced_shares(own, y, classes=3)
    for row in range(2):
        plan = own[y == row].exp().numpy()
        for _ in range(1000):
            plan *= len(plan) / plan.shape[1] / plan.sum(0)
            plan /= plan.sum(1, keepdims=True)
        # ten iterations leave less than this of the imbalance
        np.testing.assert_allclose(found[y == row].numpy(), plan, atol=1e-4)
    torch.testing.assert_close(found.sum(1), torch.ones(30).double())


def test_the_balanced_score_is_a_lower_bound_that_touches_where_shares_are_even() -> None:
    torch.manual_seed(0)
    head, y = MoGMMHead(4, 3, components=2), torch.arange(12) % 3
    out = head(torch.randn(12, 4))
    scores = balanced(out, y, head.temperature).class_scores
    own = scores.gather(1, y[:, None])
    assert (own <= out.class_scores.gather(1, y[:, None]) + 1e-5).all()  # float32
    others = torch.arange(3) != y[:, None]
    torch.testing.assert_close(scores[others], out.class_scores[others])
    head.means.data[:, 1] = head.means.data[:, 0]  # equal components have even shares
    out = head(torch.randn(12, 4))
    torch.testing.assert_close(balanced(out, y, head.temperature).class_scores, out.class_scores, rtol=1e-5, atol=1e-5)


def test_a_component_that_explains_nothing_gets_a_gradient() -> None:
    torch.manual_seed(0)
    gradients = []
    for balance in (False, True):
        head, y = MoGMMHead(4, 2, components=2, temperature=1.0), torch.arange(8) % 2
        head.means.data[:, 1] = 5.0
        DualSupervisedLoss(balanced_components=balance, regularizer=None)(head(torch.randn(8, 4)), y, head).backward()
        gradients.append(head.log_variances.grad[:, 1].abs().sum().item())  # type: ignore[index]
    assert gradients[0] < 1e-6
    assert gradients[1] > 1e-2


def test_components_of_digits_stay_alive_that_die_without_it() -> None:
    """Without it 69 % of them were alive when written, with it all."""
    alive = [share_of_living_components(balance) for balance in (False, True)]
    assert alive[0] < 0.8
    assert alive[1] > 0.95


def share_of_living_components(balance: bool) -> float:
    """How many explain at least 1 % of their class's images."""
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16 - 0.3, dtype=torch.float32)[:1000], torch.tensor(digits)[:1000]
    torch.manual_seed(0)
    head = MoGMMHead(64, 10, components=8)
    loss = DualSupervisedLoss("sgvb", balanced_components=balance)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.03)
    for _ in range(150):
        optimizer.zero_grad()
        loss(head(x), y, head).backward()
        optimizer.step()
    out = head.eval()(x)
    own = out.component_log_prob[torch.arange(1000), y] / head.temperature + out.log_mixing[y]
    held = torch.zeros(10, 8, dtype=own.dtype).index_add(0, y, own.detach().softmax(1))
    return ((held / held.sum(1, keepdim=True)) >= 0.01).double().mean().item()


def test_objectives_of_untempered_densities_have_no_balance() -> None:
    with pytest.raises(ValueError, match="choose bounded or posterior or sgvb"):
        DualSupervisedLoss("literal", balanced_components=True)
