from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dsui import DualSupervisedLoss, MoGMMHead
from dsui import fused as fused_module
from dsui.fused import fused, ready_to_compile


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_small_and_cpu_tensors_run_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled"))
    assert float(fused(double)(torch.ones(()))) == 2
    assert float(fused(double)(torch.ones(fused_module.WORTH_COMPILING))[0]) == 2


def test_large_gpu_tensors_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = SimpleNamespace(compiled=0, run=0)

    def fake(function: Any, **_: Any) -> Any:
        calls.compiled += 1

        def run(*args: Any) -> Any:
            calls.run += 1
            return function(*args)

        return run

    monkeypatch.setattr(torch, "compile", fake)
    monkeypatch.setattr(fused_module, "has_triton", lambda: True)
    monkeypatch.setattr(fused_module, "WORTH_COMPILING", 4)
    chosen = fused(double)
    for _ in range(3):
        chosen(torch.ones(4).as_subclass(OnGpu))
    assert (calls.compiled, calls.run) == (1, 3)


def test_a_failing_compiler_costs_a_warning_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    def fake(*_: Any, **__: Any) -> Any:
        def run(*_: Any) -> Any:
            raise torch._dynamo.exc.TorchDynamoException("no C compiler")

        return run

    monkeypatch.setattr(torch, "compile", fake)
    monkeypatch.setattr(fused_module, "has_triton", lambda: True)
    monkeypatch.setattr(fused_module, "WORTH_COMPILING", 4)
    chosen = fused(double)
    with pytest.warns(
        UserWarning, match="double runs uncompiled and slower, because compiling it failed: no C compiler"
    ):
        assert float(chosen(torch.ones(4).as_subclass(OnGpu))[0]) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(chosen(torch.ones(4).as_subclass(OnGpu))[0]) == 2


def test_a_compiled_head_is_cut_only_at_its_products() -> None:
    import torch._dynamo

    head, loss = MoGMMHead(48, 5, 2), DualSupervisedLoss()
    x, y = torch.randn(16, 48), torch.arange(16) % 5

    def value(head: MoGMMHead) -> torch.Tensor:
        return loss(head(x), y, head)

    ready_to_compile()
    torch._dynamo.reset()
    breaks: dict[str, int] = torch._dynamo.utils.counters["graph_break"]
    breaks.clear()
    # the compiler gets the sums in other operations, which round differently
    assert torch.compile(value, backend="eager")(head).item() == pytest.approx(value(head).item(), rel=1e-6)
    assert len(breaks) == 2, breaks  # gaussian_log_prob and product; one more where the compiler met itself
