"""The device a command runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.cli.choice import known
from dsui.cli.options import DEVICES
from dsui.host_memory import keep_freed_memory

if TYPE_CHECKING:
    import torch


def command_device(name: str) -> torch.device:
    """The device for --device cpu, cuda or auto. On a CPU the process keeps the memory that it frees."""
    known("device", name, DEVICES)
    from dsui.device import choose_device

    device = choose_device(name)
    if device.type == "cpu":
        keep_freed_memory()
    return device
