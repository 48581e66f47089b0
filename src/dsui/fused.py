"""Elementwise formulas over large tensors as one pass over a GPU's memory.

A formula written with a dozen tensor operations reads and writes its tensors a dozen times. Over the
parameters of a thousand classes that costs as much as the matrix products themselves, so there the
formula is compiled. Small tensors, other devices and machines without a working Triton run it as written.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from dsui.differentiation import by_pytorch

WORTH_COMPILING = 2**22
"""Elements; below this, launching the separate operations costs less than the compiled function's own checks."""

_exclusions: list[Callable[[], None]] = []

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def fused(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` unchanged, but compiled where its first tensor is large and on a GPU."""
    compiled: list[Callable[Arguments, Result]] = []

    @wraps(function)
    def choose(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        first = args[0]
        large = isinstance(first, Tensor) and first.is_cuda and first.numel() >= WORTH_COMPILING
        if not (large and has_triton()) or by_pytorch():
            return function(*args, **kwargs)
        if not compiled:
            compiled.append(torch.compile(function, dynamic=True))
        try:
            return compiled[0](*args, **kwargs)
        except torch._dynamo.exc.TorchDynamoException as reason:
            warnings.warn(
                f"{function.__name__} runs uncompiled and slower, because compiling it failed: {reason}", stacklevel=2
            )
            compiled[0] = function
            return function(*args, **kwargs)

    return choose


def uncompiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` run as written even inside a compiled model, for code that changes PyTorch's own settings.

    The compiler is told to skip it only once the compiler is loaded, because that takes longer than loading PyTorch.
    """
    excluded: list[Callable[Arguments, Result]] = []

    def exclude() -> None:
        if not excluded:
            excluded.append(torch.compiler.disable(function))

    _exclusions.append(exclude)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        exclude()
        return excluded[0](*args, **kwargs)

    return call


def ready_to_compile() -> None:
    """Call this before compiling a model. Otherwise the compiler meets its own `disable` in the model: it warns, and
    cuts the model into more pieces than necessary."""
    for exclude in _exclusions:
        exclude()


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
