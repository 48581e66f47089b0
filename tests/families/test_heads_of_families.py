"""The MoGMM-FC layer with every family: the tie, training, EM, regularisers, autocast and what does not go together."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from dsui.families import registry
from dsui.head import MoGMMHead, Regularizer
from dsui.objectives import DualSupervisedLoss, Objective
from tests.families.test_families import FAMILIES
from tests.test_head import clumps


def settings_of(name: str) -> dict[str, Any]:
    """What the layer is told for a family of the registry."""
    covariance = {"gaussian-tied": "tied", "gaussian-low-rank": "low-rank"}.get(name)
    if covariance is None:
        return {"family": name}
    return {"covariance": covariance, **({"rank": 2} if covariance == "low-rank" else {})}


def made_head(name: str, width: int = 6, classes: int = 3, components: int = 2) -> MoGMMHead:
    torch.manual_seed(0)
    return MoGMMHead(width, classes, components, temperature=2.0, **settings_of(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_class_weights_are_tied_to_the_means_and_scores_to_the_densities(name: str) -> None:
    head = made_head(name).eval()
    out = head(torch.randn(5, 6))
    torch.testing.assert_close(head.class_weights, (head.mixing_weights[..., None] * head.means).sum(1))
    expected = head.class_prior.log() + torch.logsumexp(out.log_mixing + out.component_log_prob / 2, 2)
    torch.testing.assert_close(out.class_scores, expected)
    torch.testing.assert_close(head.log_prob(torch.zeros(2, 6) + 1).ndim, 1)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("objective", [each for each in get_args(Objective) if each != "released"])
def test_every_objective_gives_every_parameter_a_gradient(name: str, objective: Objective) -> None:
    head = made_head(name)
    loss = DualSupervisedLoss(objective)
    loss(head(torch.randn(8, 6)), torch.arange(8) % 3, head).backward()
    for label, each in head.named_parameters():
        assert each.grad is not None, label
        assert each.grad.isfinite().all(), label
        assert each.grad.abs().sum() > 0 or "mixing" in label, label


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", get_args(Regularizer))
def test_the_regularizer_falls_to_zero_at_the_prior_and_never_raises(name: str, kind: Regularizer) -> None:
    """Means 0 and variances 1 are the prior of Gaussians; the other families come near it."""
    head = made_head(name)
    before = head.regularizer(kind)
    with torch.no_grad():
        head.means.zero_()
        for each in head.family.parameters():
            each.zero_()
    if name == "von-mises-fisher":
        with torch.no_grad():
            head.family.log_concentration.fill_(math.log(1e-2))  # type: ignore[operator]
    if name == "student-t":
        with torch.no_grad():
            head.family.log_freedom.fill_(math.log(1e4))  # type: ignore[operator]
    at_prior = head.regularizer(kind)
    assert at_prior.abs() < 1e-3
    assert at_prior < before


@pytest.mark.parametrize("name", FAMILIES)
def test_autocast_changes_nothing(name: str) -> None:
    head = made_head(name)
    x = torch.randn(8, 6)
    plain = head(x)
    with torch.autocast("cpu", torch.bfloat16):
        cast = head(x)
    torch.testing.assert_close(cast.component_log_prob, plain.component_log_prob, rtol=0, atol=0)
    torch.testing.assert_close(cast.logits, plain.logits, rtol=0, atol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_fitted_mixtures_classify_clumps_and_are_likelier_than_before(name: str) -> None:
    x, y = clumps(classes=3, width=6, per_class=60)
    head = made_head(name).double().eval()
    before = head.log_prob(x.double()).mean()
    head.initialize(x.double(), y)
    fitted = head.log_prob(x.double()).mean()
    assert fitted > before + 0.5
    assert (head(x.double()).log_joint.argmax(1) == y).double().mean() > 0.9
    head.refit(x.double(), y)
    assert head.log_prob(x.double()).mean() >= fitted - 1e-6


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_class_of_few_samples_starts_with_the_variances_of_all(name: str, count: int) -> None:
    x, y = clumps(classes=3, width=6, per_class=60)
    few = torch.cat([(y == row).nonzero()[:number, 0] for row, number in enumerate((60, count, 60))])
    torch.manual_seed(0)
    head = MoGMMHead(6, 3, 4, **settings_of(name)).double().eval()
    head.initialize(x[few].double(), y[few])
    assert all(each.isfinite().all() for each in head.parameters())
    if head.log_variances is not None:
        within = head.project(x[few].double())
        centres = torch.stack([within[y[few] == row].mean(0) for row in range(3)])
        expected = (within - centres[y[few]]).square().mean(0).clamp(min=head.variance_floor).log()
        torch.testing.assert_close(head.log_variances[1], expected.expand(4, 6))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_frozen_densities_are_the_same_and_move_features_alone(name: str) -> None:
    head = made_head(name)
    out = head(torch.randn(4, 6))
    features = out.features.detach().requires_grad_()
    frozen = head.frozen_log_joint(features)
    torch.testing.assert_close(frozen, out.log_joint, rtol=1e-5, atol=1e-4)  # float32, products in another order
    frozen.sum().backward()
    assert features.grad is not None
    assert all(each.grad is None for each in head.parameters())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_head_is_restored_from_its_state_dict(name: str) -> None:
    head, other = made_head(name), made_head(name)
    for each in head.parameters():
        each.data += 0.1
    other.load_state_dict(head.state_dict())
    x = torch.randn(3, 6)
    torch.testing.assert_close(other.eval()(x).log_joint, head.eval()(x).log_joint, rtol=0, atol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_head_gives_the_same_values_and_gradients(name: str) -> None:
    head = made_head(name)
    x = torch.randn(8, 6)
    y = torch.arange(8) % 3

    def value(x: Tensor) -> Tensor:
        out = head(x)
        return DualSupervisedLoss()(out, y, head)

    plain = torch.autograd.grad(value(x), list(head.parameters()), allow_unused=True)
    compiled = torch.autograd.grad(torch.compile(value, backend="eager")(x), list(head.parameters()), allow_unused=True)
    for expected, found in zip(plain, compiled, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "student"}, "did you mean student-t"),
        ({"family": "student-t", "covariance": "tied"}, "covariance is a setting of Gaussians"),
        ({"rank": 2}, "rank is a setting of covariance low-rank"),
        ({"covariance": "low-rank", "rank": 6}, "rank must be at least 1 and below the 6 features"),
        ({"family": "von-mises-fisher", "project": False}, "lives on the sphere"),
        ({"covariance": "full"}, "covariance must be one of"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MoGMMHead(6, 3, **settings)


def test_the_default_is_the_gaussian_of_the_paper() -> None:
    head = MoGMMHead(4, 2)
    assert registry.name_of("gaussian", "diagonal", None, True) == "gaussian"
    assert set(dict(head.named_parameters())) == {"means", "log_variances", "mixing_logits", "log_logit_scale"}
