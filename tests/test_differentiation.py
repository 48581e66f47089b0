"""Second derivatives of all that has a backward pass of its own, against finite differences and PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.functional import hessian

from dsui import DualSupervisedLoss
from dsui.density import (
    Precision,
    gaussian_log_prob,
    mixture_log_prob,
)
from dsui.divergence import divergence_from_standard_normal, mixture_divergence
from dsui.head import Regularizer
from dsui.matrix_product import product
from tests.test_head import features, made_head, mixtures


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def gaussians(precision: Precision, floor: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda z, means, log_variances: gaussian_log_prob(z, means, log_variances, precision, floor)


@pytest.mark.parametrize("precision", ["fast", "exact"])
@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.parametrize("floor", [-20.0, -0.3])  # below all log-variances, and above some
def test_densities_have_right_second_derivatives(precision: Precision, width: int, floor: float) -> None:
    inputs = leaves((3, width), (2, 2, width), (2, 2, width))
    fast = width == 40
    assert gradgradcheck(gaussians(precision, floor), inputs, fast_mode=fast, check_batched_grad=True)


@pytest.mark.parametrize("temperature", [None, 3.0])
def test_mixtures_have_right_second_derivatives(temperature: float | None) -> None:
    tau = None if temperature is None else torch.tensor(temperature, dtype=torch.float64)
    inputs = leaves((3, 2, 4), (2, 4))
    assert gradgradcheck(lambda components, weights: mixture_log_prob(components, weights, tau), inputs)


def test_a_temperature_that_is_learned_has_a_gradient() -> None:
    components, weights = leaves((3, 2, 4), (2, 4))
    tau = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(mixture_log_prob, (components, weights, tau))


def test_products_and_divergences_have_right_second_derivatives() -> None:
    assert gradgradcheck(product, leaves((3, 4), (5, 4)), check_batched_grad=True, check_fwd_over_rev=True)
    means, log_variances, mixing = leaves((2, 3, 4), (2, 3, 4), (2, 3))
    omega = torch.tensor([0.3, 0.7], dtype=torch.float64)
    assert gradgradcheck(divergence_from_standard_normal, (means, log_variances))
    assert gradgradcheck(
        lambda a, v, x: mixture_divergence(a, v, x.log_softmax(1), omega, through_mixing=True),
        (means, log_variances, mixing),
    )


def test_reg_is_differentiated_twice_with_its_multiplier_held() -> None:
    """Against the formula in PyTorch's operations, where the multiplier is detached."""
    head = made_head()

    def written_out() -> Tensor:
        log_eta = head.mixing_logits.log_softmax(1)
        gaussian = 0.5 * (head.log_variances.exp() + head.means.square() - head.log_variances - 1).sum(-1)
        each = log_eta.exp() * (log_eta + torch.tensor(3.0).log()) + log_eta.exp().detach() * gaussian
        return (head.class_prior * each.sum(1)).sum()

    expected = penalty(written_out(), [head.means, head.log_variances, head.mixing_logits])
    found = penalty(head.regularizer("reg"), [head.means, head.log_variances, head.mixing_logits])
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-9)  # omega was a float32


def penalty(value: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradient of |d value|^2."""
    slopes = torch.autograd.grad(value, leaves, create_graph=True)
    return torch.autograd.grad(torch.stack([slope.square().sum() for slope in slopes]).sum(), leaves)


@pytest.mark.parametrize("precision", ["fast", "exact"])
@pytest.mark.parametrize("project", [True, False])
def test_the_hessian_of_the_log_density_is_that_of_finite_differences(precision: Precision, project: bool) -> None:
    head = made_head(evaluation_precision=precision, project=project).eval()
    x, step = features(head, batch=1)[0], 1e-5

    def density(point: Tensor) -> Tensor:
        return head.log_prob(point[None])[0]

    def slope(point: Tensor) -> Tensor:
        point = point.clone().requires_grad_()
        return torch.autograd.grad(density(point), point)[0]

    differences = torch.stack([(slope(x + d) - slope(x - d)) / (2 * step) for d in step * torch.eye(6).double()])
    for found in (hessian(density, x), hessian(density, x, vectorize=True), torch.func.hessian(density)(x)):
        # central differences: step^2, and roundings of a slope divided by the step
        torch.testing.assert_close(found, differences, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("regularizer", ["reg", "reg-paper", "kl", None])
def test_gradient_penalties_of_the_whole_loss_equal_those_of_plain_operations(regularizer: Regularizer | None) -> None:
    """d |d loss / d x|^2 for all parameters, in training mode, with projection and temperature."""
    head = made_head(temperature=2.5).train()
    x, y = features(head).requires_grad_(), torch.arange(7) % 4

    def written_out() -> Tensor:
        z = F.rms_norm(F.batch_norm(x, None, None, training=True), (6,), eps=1e-6)
        eta = head.mixing_logits.log_softmax(1)
        components = mixtures(head).component_distribution.log_prob(z[:, None, None])
        scores = head.class_prior.log() + torch.logsumexp(eta + components / head.temperature, -1)
        logits = head.logit_scale * z @ torch.einsum("ck,ckm->mc", eta.exp(), head.means)
        return F.cross_entropy(logits, y) + F.cross_entropy(scores, y)

    def by_input(value: Tensor) -> tuple[Tensor, ...]:
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), list(head.parameters()))

    loss = DualSupervisedLoss(gamma=0.3, regularizer=regularizer)
    for ours, plain in zip(by_input(loss(head(x), y, head)), by_input(written_out()), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-12)


def test_float32_second_derivatives_agree_with_float64() -> None:
    head = made_head(in_features=64, evaluation_precision="fast").float().eval()
    x = features(head, batch=1)[0]

    def density(point: Tensor) -> Tensor:
        return head.log_prob(point[None])[0]

    single = hessian(density, x)
    head.double()
    double = hessian(density, x.double())
    assert single.dtype == torch.float32
    # densities are sums of 64 squares up to 100, and their differences choose the component
    assert float((single.double() - double).norm() / double.norm()) < 1e-4


def test_torch_func_sees_the_same_derivatives_as_backward() -> None:
    head = made_head(variance_floor=0.8).eval()  # above some of the variances
    x = features(head)
    values = {name: value.detach() for name, value in head.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(head, parameters, (x,)).class_scores
        return out.square().sum()

    slopes = torch.func.grad(loss)(values, x)
    expected = torch.autograd.grad(head(x).class_scores.square().sum(), [head.means, head.log_variances])
    torch.testing.assert_close(slopes["means"], expected[0])
    torch.testing.assert_close(slopes["log_variances"], expected[1])
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, x[:, None])
    torch.testing.assert_close(each["means"].sum(0), expected[0])


def test_forward_mode_agrees_with_backward() -> None:
    head = made_head().eval()
    x = features(head).requires_grad_()
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    (slope,) = torch.autograd.grad(head.log_prob(x).sum(), x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(head.log_prob(forward_ad.make_dual(x.detach(), direction))).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent.sum(), (slope * direction).sum())


def test_a_compiled_head_refuses_second_derivatives_in_one_sentence() -> None:
    head = made_head().eval()
    x = features(head).requires_grad_()
    torch._dynamo.reset()
    out = torch.compile(head, backend="eager")(x)
    for value in (out.component_log_prob, out.class_scores, out.logits):
        assert len(torch.autograd.grad(value.sum(), x, retain_graph=True)) == 1
        with pytest.raises(ValueError, match="a compiled head has no second derivatives"):
            torch.autograd.grad(value.sum(), x, create_graph=True)
