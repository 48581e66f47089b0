"""Arguments that commands share."""

from __future__ import annotations

import pytest
import torch

from dsui.cli import arguments


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
    kept: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(arguments, "keep_freed_memory", lambda: kept.append(True))
    assert arguments.select_device(name).type == chosen
    assert kept == ([True] if chosen == "cpu" else [])
