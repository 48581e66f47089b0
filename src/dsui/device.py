"""The device that a command or a call runs on."""

from __future__ import annotations

import torch

from dsui.errors import DsuiError
from dsui.excerpt import excerpt


def choose_device(device: torch.device | str = "auto") -> torch.device:
    """The device of that name; "auto" is a GPU where PyTorch has one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise DsuiError(f"there is no device {excerpt(device)}; choose auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise DsuiError("there is no GPU that PyTorch can use; choose the device cpu.")
    return chosen
