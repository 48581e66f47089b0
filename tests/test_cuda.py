"""What only a GPU can show. Run there with `pytest tests/test_cuda.py`; elsewhere these tests have nothing to test."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dsui import DualSupervisedLoss, MoGMMHead
from dsui import fused as fused_module
from dsui.density import gaussian_log_prob
from dsui.families import registry as families
from tests.families.test_heads_of_families import settings_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def problem(width: int = 512, count: int = 160, batch: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width)
    z, means = (torch.randn(n, width, generator=generator) for n in (batch, count))
    z, means = (math.sqrt(width) * t / t.norm(dim=1, keepdim=True) for t in (z, means))
    log_variances = (torch.rand(count, width, generator=generator) * 4 - 2) * math.log(10)
    return z.cuda(), means.cuda(), log_variances.cuda()


def gradients(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in tensors]
    log_prob = gaussian_log_prob(leaves[0], leaves[1], leaves[2])
    (log_prob / log_prob.detach().abs()).square().sum().backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("width", [64, 512, 2048])
def test_tf32_and_autocast_leave_densities_and_gradients_in_float32(width: int) -> None:
    tensors = problem(width)
    double = tuple(t.double() for t in tensors)
    truth = gaussian_log_prob(double[0], double[1], double[2])
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = gaussian_log_prob(*tensors)
            grads = gradients(tensors)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")
    assert float(((found - truth).abs() / truth.abs().clamp(min=1)).max()) <= 1e-5
    for single, exact in zip(grads, gradients(double), strict=True):
        assert float((single - exact).norm() / exact.norm()) < 1e-5  # TF32 would give 1e-4 to 1e-3


def test_fused_kernels_equal_the_plain_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = problem(2048, 4000)
    fused, fused_grads = gaussian_log_prob(*tensors), gradients(tensors)
    monkeypatch.setattr(fused_module, "has_triton", lambda: False)
    torch.testing.assert_close(fused, gaussian_log_prob(*tensors), rtol=1e-6, atol=1e-3)  # sums in another order
    for ours, plain in zip(fused_grads, gradients(tensors), strict=True):
        assert float((ours - plain).norm() / plain.norm()) < 1e-5


@pytest.mark.parametrize("family", families.names())
def test_a_captured_step_equals_an_eager_one_bit_for_bit(family: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
    head, loss = MoGMMHead(256, 10, 4, **settings_of(family)).cuda(), DualSupervisedLoss()

    def step() -> Tensor:
        head.zero_grad(set_to_none=False)
        value = loss(head(x), y, head)
        value.backward()
        return value

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            eager = step().detach().clone()
        eager_grads = [p.grad.clone() for p in head.parameters() if p.grad is not None]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step().detach()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, eager)
    assert all(
        torch.equal(p.grad, g) for p, g in zip(head.parameters(), eager_grads, strict=True) if p.grad is not None
    )


def test_initialize_and_refit_give_on_the_gpu_what_they_give_on_the_cpu() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(300, 16) + 3 * torch.randn(3, 16)[torch.arange(300) % 3], torch.arange(300) % 3
    heads = MoGMMHead(16, 3, 2), MoGMMHead(16, 3, 2).cuda()
    for head in heads:
        device = head.means.device
        head.initialize(x.to(device), y.to(device))
        head.refit(x.to(device), y.to(device))
    torch.testing.assert_close(heads[0].means, heads[1].means.cpu(), rtol=1e-4, atol=1e-4)
