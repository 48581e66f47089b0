"""The authors' layer and loss, against a plain transcription of their formulas in float64 with exp and the floor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsui import DualSupervisedLoss, MoGMMHead
from dsui.objectives import released_regularizer
from dsui.released import ReleasedHead

SIZE, CLASSES, COMPONENTS = 8, 3, 4


def released(components: int = COMPONENTS) -> MoGMMHead:
    torch.manual_seed(0)
    head = ReleasedHead(SIZE, CLASSES, components).double()
    with torch.no_grad():
        head.log_variances.normal_(std=0.3)
        head.set_class_prior([1, 2, 3])
    return head


def transcription(head: MoGMMHead, x: Tensor, y: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and loss with tensors stored [1, M, K, C] as there."""
    mu, log_b = (t.detach().permute(2, 1, 0)[None] for t in (head.means, head.log_variances))
    pi = head.mixing_logits.detach().T[None]
    z = F.leaky_relu(x, 0.2)[:, :, None, None]
    logits = torch.einsum("bmkc,kc->bc", z * mu, pi[0])
    exponent = -0.5 * (log_b.sum(1) + ((z - mu) ** 2 * torch.exp(-log_b)).sum(1))
    density = (pi.softmax(1) * exponent.exp()).sum(1)
    scores = torch.log(prior) + torch.log(density + 1e-8)
    q = scores.softmax(1).gather(1, y[:, None])
    blocks = log_b.contiguous().view(COMPONENTS, SIZE, CLASSES)
    reg = -0.5 * (prior * (pi.softmax(1)[0][:, None] * blocks).sum((0, 1))).sum()
    return logits, F.cross_entropy(logits, y) + (1 - 2 * q).mean() + 1e-4 * reg


def test_layer_and_loss_equal_the_transcription() -> None:
    head = released()
    x, y = torch.randn(11, SIZE, dtype=torch.float64), torch.arange(11) % CLASSES
    out = head(x)
    logits, loss = transcription(head, x, y, head.class_prior)
    torch.testing.assert_close(out.logits, logits)
    torch.testing.assert_close(DualSupervisedLoss("released")(out, y, head), loss)


def test_far_features_have_the_class_prior_as_posterior() -> None:
    head, y = released(), torch.tensor([2])
    out = head(torch.full((1, SIZE), 50.0, dtype=torch.float64))
    loss = DualSupervisedLoss("released")
    loss(out, y, head)
    assert float(loss.terms["dual"]) == pytest.approx(1 - 2 * 3 / 6, abs=1e-6)


def test_both_streams_see_activated_features() -> None:
    head = released()
    x = torch.randn(5, SIZE, dtype=torch.float64)
    torch.testing.assert_close(head(x).features, F.leaky_relu(x, 0.2))
    torch.testing.assert_close(head.project(x), F.leaky_relu(x, 0.2))


def test_start_is_the_authors() -> None:
    torch.manual_seed(0)
    head = ReleasedHead(512, 10, 8)
    bound = (8 * 10) ** -0.5
    assert head.means.abs().max().item() <= bound
    assert head.means.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)  # 41,000 uniform draws
    assert bool((head.mixing_logits == 1).all())
    assert isinstance(head.mixing_logits, nn.Parameter)
    assert head.projection is None
    single = ReleasedHead(512, 10)
    assert single.components == 1
    assert not isinstance(single.mixing_logits, nn.Parameter)
    assert "mixing_logits" in single.state_dict()


def test_every_forward_pass_moves_the_prior() -> None:
    head = released()
    before = head.class_prior.clone()
    head.eval()
    head(torch.randn(2, SIZE, dtype=torch.float64))
    torch.testing.assert_close(
        head.class_prior - before, torch.full((CLASSES,), 1e-8, dtype=torch.float64), rtol=1e-6, atol=0
    )


def test_block_reading_is_right_for_one_component_and_wrong_for_more() -> None:
    for components in (1, COMPONENTS):
        head = released(components)
        with torch.no_grad():
            if components > 1:
                head.mixing_logits.copy_(torch.randn(CLASSES, components))
        meant = -0.5 * (head.class_prior * (head.mixing_weights * head.log_variances.sum(-1)).sum(1)).sum()
        agrees = bool(torch.isclose(released_regularizer(head), meant))
        assert agrees == (components == 1)
