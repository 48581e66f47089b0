"""Checks of arguments; each failure is one sentence that says what to do."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch
from dsui.errors import DsuiError
from dsui.excerpt import excerpt


def require(*packages: str) -> None:
    """Raise unless all these packages are installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise DsuiError(f"figures and reports need {' and '.join(missing)}; run pip install {' '.join(missing)}.")


def check_installed(package: str, what: str, extra: str) -> None:
    """Raise unless the package is installed, which the extra `extra` of dsui brings; `what` needs it."""
    if find_spec(package) is None:
        raise DsuiError(f"{what} need {package}; run pip install 'dsui[{extra}]'.")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {excerpt(value)}.")


def check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least:,} and {most:,}, got {excerpt(value)}.")


def check_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def check_features(x: Tensor, width: int, training: bool) -> None:
    """Raise unless x is a finite floating-point [B, width] tensor.

    Finiteness is not checked while training on a GPU, where reading the result would stall the device and break the
    capture of CUDA graphs; there the training loop watches the loss. In `torch.func` values
    are unknown.
    """
    if x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"features have shape {list(x.shape)}; this head takes [batch, {width}].")
    if not x.is_floating_point():
        raise ValueError(f"features are {x.dtype}; convert them to a floating-point type.")
    if by_pytorch() or (x.is_cuda and (training or torch.cuda.is_current_stream_capturing())):
        return
    if not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).any(1).sum())
        raise ValueError(
            f"{bad} of {len(x)} feature vectors hold NaN or infinity; lower the learning rate, or check the backbone "
            "and its input."
        )


def check_labels(y: Tensor, samples: int, num_classes: int) -> None:
    """Raise unless y holds `samples` int64 labels; their range is checked on the CPU only, as in `check_features`."""
    if y.dtype != torch.int64:
        raise ValueError(f"labels are {y.dtype}; convert them to torch.int64.")
    if y.shape != (samples,):
        raise ValueError(f"labels have shape {list(y.shape)}; {samples} samples need [{samples}].")
    if y.is_cuda or torch.compiler.is_compiling() or samples == 0:
        return
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"labels run from {low} to {high}; {num_classes} classes need labels 0 to {num_classes - 1}.")
