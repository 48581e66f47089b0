"""The device a command runs on."""

from __future__ import annotations

from dsui.cli.choice import known
from dsui.cli.options import DEVICES
from dsui.errors import DsuiError


def device_type(name: str) -> str:
    """`cpu` or `cuda` for --device cpu, cuda or auto."""
    known("device", name, DEVICES)
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise DsuiError("there is no GPU that PyTorch can use; choose --device cpu.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
