from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch import distributions as dist

from dsui.density import LN_2PI, Precision, gaussian_log_prob, mixture_log_prob
from dsui.matrix_product import product

WIDTHS = (2, 16, 64, 512, 2048)


def by_differences(z: Tensor, means: Tensor, log_variances: Tensor) -> Tensor:
    """ln N by its definition, in float64, one sample at a time."""
    z, means, log_variances = (t.double() for t in (z, means, log_variances))
    spread = LN_2PI + log_variances
    return torch.stack([-0.5 * (spread + (row - means).square() / log_variances.exp()).sum(-1) for row in z])


def relative_error(found: Tensor, truth: Tensor) -> float:
    return float(((found.double() - truth).abs() / truth.abs().clamp(min=1)).max())


def on_sphere(count: int, width: int, radius: float, generator: torch.Generator) -> Tensor:
    x = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return radius * torch.nn.functional.normalize(x)


def log_uniform(shape: tuple[int, int], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Log-variances spread evenly over the decades from `low` to `high`."""
    unit = torch.rand(shape, generator=generator, dtype=torch.float64)
    return math.log(low) + unit * (math.log(high) - math.log(low))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_fast_is_within_2e5_for_features_and_means_up_to_root_m(width: int, radius: float) -> None:
    generator = torch.Generator().manual_seed(width)
    z = on_sphere(64, width, radius * math.sqrt(width), generator)
    means = on_sphere(80, width, radius * math.sqrt(width), generator)
    log_variances = log_uniform((80, width), 1e-2, 1e2, generator)
    own = means[torch.arange(64)] + torch.randn(64, width, generator=generator) * (log_variances[:64] / 2).exp()
    own = own * (math.sqrt(width) / own.norm(dim=1, keepdim=True)).clamp(max=1)
    for features in (z, own, means[:64]):  # elsewhere, drawn from a Gaussian, exactly on its mean
        given = [t.float() for t in (features, means, log_variances)]
        found = gaussian_log_prob(given[0], given[1], given[2], precision="fast")
        assert found.dtype == torch.float32
        # 1.2e-5 was the largest of 20 draws; processors differ in the order of the sum
        assert relative_error(found, by_differences(*given)) <= 2e-5


@pytest.mark.parametrize("width", [16, 512, 2048])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_exact_is_within_1e6_for_large_norms_wide_variances_and_offsets(width: int, offset: float) -> None:
    generator = torch.Generator().manual_seed(width)
    z = on_sphere(32, width, 1e3, generator) + offset
    means = on_sphere(40, width, 1e3, generator) + offset
    log_variances = log_uniform((40, width), 1e-4, 1e4, generator)
    noise = torch.randn(32, width, generator=generator, dtype=torch.float64)
    cases = [z, means[:32] + noise]
    if width >= 64:
        cases.append(means[:32] + noise * (log_variances[:32] / 2).exp())  # drawn from the Gaussians themselves
    for features in cases:
        found = gaussian_log_prob(features, means, log_variances, precision="exact")
        assert relative_error(found, by_differences(features, means, log_variances)) <= 1e-6


def test_exact_promotes_float32_inputs_to_float64_products() -> None:
    generator = torch.Generator().manual_seed(0)
    z, means = (on_sphere(8, 512, 1e3, generator).float() for _ in range(2))
    log_variances = log_uniform((8, 512), 1e-4, 1e4, generator).float()
    found = gaussian_log_prob(z, means, log_variances, precision="exact")
    assert found.dtype == torch.float64
    assert relative_error(found, by_differences(z, means, log_variances)) <= 1e-6


def test_mixture_equals_torch_distributions() -> None:
    torch.manual_seed(0)
    z, means, log_variances = torch.randn(9, 5), torch.randn(4, 3, 5), torch.randn(4, 3, 5)
    z, means, log_variances = z.double(), means.double(), log_variances.double()
    mixing = torch.randn(4, 3, dtype=torch.float64)
    components = dist.Independent(dist.Normal(means, (0.5 * log_variances).exp()), 1)
    oracle = dist.MixtureSameFamily(dist.Categorical(logits=mixing), components).log_prob(z[:, None])
    found = mixture_log_prob(gaussian_log_prob(z, means, log_variances), mixing.log_softmax(1))
    torch.testing.assert_close(found, oracle, rtol=1e-12, atol=1e-12)  # float64 roundings only


@pytest.mark.parametrize("precision", ["fast", "exact"])
@pytest.mark.parametrize("width", [3, 40])
def test_gradients_are_exact(precision: Precision, width: int) -> None:
    torch.manual_seed(0)
    inputs = [
        t.double().requires_grad_() for t in (torch.randn(3, width), torch.randn(2, 2, width), torch.randn(2, 2, width))
    ]
    assert torch.autograd.gradcheck(lambda z, m, v: gaussian_log_prob(z, m, v, precision), inputs)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_gradient_can_be_asked_for_alone(which: int) -> None:
    torch.manual_seed(0)
    z, means, log_variances = torch.randn(3, 40), torch.randn(2, 40), torch.randn(2, 40)
    tensors = [z, means, log_variances]
    tensors[which].requires_grad_()
    gaussian_log_prob(z, means, log_variances).sum().backward()
    assert [t.grad is not None for t in tensors] == [i == which for i in range(3)]


def test_float32_gradients_agree_with_float64() -> None:
    torch.manual_seed(0)
    tensors = torch.randn(16, 256), torch.randn(6, 256), torch.randn(6, 256).clamp(-2, 2)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in tensors]
        gaussian_log_prob(leaves[0], leaves[1], leaves[2]).sin().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    for single, double in zip(*gradients, strict=True):
        assert single is not None
        assert double is not None
        # sin' of a value near 500 is known to 500 * 1e-7 in float32, and gradients sum 16 of those
        assert float((single.double() - double).norm() / double.norm()) < 1e-3


def test_a_floored_variance_can_rise_but_not_fall() -> None:
    means = torch.zeros(1, 2, dtype=torch.float64)
    log_variances = torch.full((1, 2), -9.0, dtype=torch.float64, requires_grad=True)
    z = torch.tensor([[0.0, 5.0]], dtype=torch.float64)  # on the mean in one dimension, far away in the other
    found = gaussian_log_prob(z, means, log_variances, min_log_variance=-7.0)
    floored = by_differences(z, means, log_variances.detach().clamp(min=-7.0))
    torch.testing.assert_close(found.detach(), floored)
    (-found).sum().backward()
    assert log_variances.grad is not None
    assert log_variances.grad[0, 0] == 0  # descent would shrink it further
    assert log_variances.grad[0, 1] < 0  # descent raises it


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_no_tensor_with_batch_components_and_features_exists(batch: int, seed: int) -> None:
    """Every tensor kept for the backward pass is smaller than [B, N, M]."""
    torch.manual_seed(seed)
    sizes: list[int] = []
    count, width = 64, 48
    leaves = [
        t.requires_grad_()
        for t in (torch.randn(32 * batch, width), torch.randn(count, width), torch.randn(count, width))
    ]

    def note(t: Tensor) -> Tensor:
        sizes.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        gaussian_log_prob(leaves[0], leaves[1], leaves[2])
    assert sizes
    assert max(sizes) <= 2 * max(32 * batch, count) * width


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_global_precision_settings_change_nothing_and_are_restored(setting: str) -> None:
    torch.manual_seed(0)
    tensors = torch.randn(32, 256), torch.randn(8, 256), torch.randn(8, 256)
    plain = gaussian_log_prob(*tensors)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        per_backend = torch.backends.cuda.matmul.fp32_precision
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(gaussian_log_prob(*tensors), plain)
        assert torch.get_float32_matmul_precision() == setting
        assert torch.backends.cuda.matmul.fp32_precision == per_backend
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_newer_precision_interface_is_restored_too() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        gaussian_log_prob(torch.randn(4, 64), torch.randn(2, 64), torch.randn(2, 64))
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_product_is_a_linear_layer_with_exact_gradients() -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(product(left, right), left @ right.T)
    assert torch.autograd.gradcheck(product, (left, right))


@pytest.mark.parametrize("temperature", [None, 3.0])
def test_tempered_mixtures_and_their_gradients_are_those_of_logsumexp(temperature: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    components, weights = (
        torch.randn(shape, generator=generator, dtype=torch.float64).mul(20).requires_grad_()
        for shape in ((5, 3, 4), (3, 4))
    )
    tau = None if temperature is None else torch.tensor(temperature, dtype=torch.float64)
    plain = torch.logsumexp(weights + components / (temperature or 1.0), -1)
    found = mixture_log_prob(components, weights, tau)
    torch.testing.assert_close(found, plain)
    slope = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad(found, (components, weights), slope),
        torch.autograd.grad(plain, (components, weights), slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_mixture_of_impossible_components_is_impossible_and_not_nan() -> None:
    impossible = torch.full((1, 2, 3), -math.inf)
    impossible[0, 1, 0] = 0.0
    assert mixture_log_prob(impossible, torch.zeros(2, 3)).tolist() == [[-math.inf, 0.0]]


def test_a_mixture_is_that_of_float64_however_its_components_differ() -> None:
    generator = torch.Generator().manual_seed(0)
    components = 300 * torch.randn(64, 5, 8, generator=generator, dtype=torch.float64)
    components[0, 0, 1:], components[1] = -math.inf, components[1, :, :1]  # a single one, and all equally likely
    log_weights = torch.randn(5, 8, generator=generator, dtype=torch.float64).log_softmax(1)
    truth = torch.logsumexp(log_weights + components, -1)
    torch.testing.assert_close(mixture_log_prob(components, log_weights), truth, rtol=1e-14, atol=1e-14)
    found = mixture_log_prob(components.float(), log_weights.float())
    # float32 rounds the components, which are some hundreds, to 2^-24 of themselves
    assert float((found.double() - truth).abs().max()) < 300 * 5 * 2**-23


def test_a_component_that_is_not_a_number_makes_the_mixture_none() -> None:
    components = torch.tensor([[[0.0, math.nan], [0.0, 0.0]]])
    assert mixture_log_prob(components, torch.zeros(2, 2)).isnan().tolist() == [[True, False]]
