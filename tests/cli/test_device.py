"""The device of a command, and what it does to the process."""

from __future__ import annotations

import pytest
import torch

from dsui.cli import device


@pytest.mark.parametrize(
    ("name", "gpu", "chosen"),
    [
        ("auto", False, "cpu"),
        ("cpu", False, "cpu"),
        ("cpu", True, "cpu"),
        ("auto", True, "cuda"),
        ("cuda", True, "cuda"),
    ],
)
def test_freed_memory_is_kept_where_the_cpu_works(
    monkeypatch: pytest.MonkeyPatch, name: str, gpu: bool, chosen: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(device, "keep_freed_memory", lambda: asked.append("kept"))
    assert device.command_device(name).type == chosen
    assert asked == (["kept"] if chosen == "cpu" else [])
