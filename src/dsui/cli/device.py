"""The device a command runs on."""

from __future__ import annotations

import torch

from dsui.errors import DsuiError


def device_type(name: str) -> str:
    """`cpu` or `cuda` for --device cpu, cuda or auto."""
    if name not in {"auto", "cpu", "cuda"}:
        raise DsuiError(f"--device {name} is unknown; choose auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise DsuiError("there is no GPU that PyTorch can use; choose --device cpu.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
