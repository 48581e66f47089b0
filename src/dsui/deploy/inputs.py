"""Images and features as tensors: what `dsui.runtime.inputs` does with arrays, also for tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsui.runtime.inputs import checked_features, pixels_of_arrays


def from_arrays(images: Any, channels: int | None = None) -> Tensor:
    """uint8 [N, C, H, W] of an array or tensor; `channels` None means 1 or 3."""
    pixels = pixels_of_arrays(as_array(images), channels)
    return torch.from_numpy(np.require(pixels, requirements=["W"]))  # torch cannot share a read-only array


def from_features(features: Any, width: int) -> Tensor:
    """float32 [N, width, 1, 1] of an array or tensor [N, width], or of [width] for one."""
    return torch.from_numpy(checked_features(as_array(features), width))[:, :, None, None]


def as_array(values: Any) -> Any:
    """A tensor as an array; everything else as it is."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
