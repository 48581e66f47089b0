"""The device a command runs on."""

from __future__ import annotations

from dsui.cli.choice import known
from dsui.cli.options import DEVICES
from dsui.errors import DsuiError
from dsui.host_memory import keep_freed_memory


def device_type(name: str) -> str:
    """`cpu` or `cuda` for --device cpu, cuda or auto; on the CPU the process keeps the memory that it frees."""
    known("device", name, DEVICES)
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise DsuiError("there is no GPU that PyTorch can use; choose --device cpu.")
    if name != "cpu" and torch.cuda.is_available():
        return "cuda"
    keep_freed_memory()
    return "cpu"
