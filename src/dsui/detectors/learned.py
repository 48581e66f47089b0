"""What a detector learned, as tensors by name, and back: attributes that are tensors, numbers, or made of such.

A part that is made of others, Gaussians for example, names them by its annotations and is built from them:
"_classes.means", "_classes.factors", "_classes.counts".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import torch
from torch import Tensor


def to_tensors(values: Mapping[str, Any], kinds: Mapping[str, type], prefix: str = "") -> dict[str, Tensor]:
    """The values that `kinds` names, each of its kind: Tensor, float, or a class with annotated parts."""
    tensors: dict[str, Tensor] = {}
    for name, kind in kinds.items():
        value, place = values[name], prefix + name
        if kind is Tensor:
            tensors[place] = value
        elif kind is float:
            tensors[place] = torch.tensor(value, dtype=torch.float64)
        else:
            parts = get_type_hints(kind)
            tensors |= to_tensors({part: getattr(value, part) for part in parts}, parts, f"{place}.")
    return tensors


def from_tensors(
    tensors: Mapping[str, Tensor], kinds: Mapping[str, type], device: torch.device, prefix: str = ""
) -> dict[str, Any]:
    """The reverse of `to_tensors`; a KeyError where one is missing."""
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        place = prefix + name
        if kind is Tensor:
            values[name] = tensors[place].to(device)
        elif kind is float:
            values[name] = tensors[place].item()
        else:
            values[name] = kind(**from_tensors(tensors, get_type_hints(kind), device, f"{place}."))
    return values
