"""Work on parameters alone, beside the work on images, where a training step is captured as a CUDA graph.

A mixture's parameters are turned into matrices by some dozens of kernels of a few microseconds each. They wait for no
image, so in a captured step they go to a second stream: the graph then runs them, and autograd their gradients, while
the backbone is busy. Outside a capture, where launching a kernel costs more than running it, there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


def begin(
    work: Callable[[], Made], tensors: Callable[[Made], Iterable[Tensor]], device: torch.device
) -> Callable[[], Made]:
    """Start `work`; calling what is returned waits for what it makes, in which `tensors` finds the tensors."""
    if torch.compiler.is_compiling() or device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        made = work()
        return lambda: made
    here, there = torch.cuda.current_stream(device), _second_stream(device)
    there.wait_stream(here)
    with torch.cuda.stream(there):
        made = work()

    def awaited() -> Made:
        here.wait_stream(there)
        for each in tensors(made):
            each.record_stream(here)  # its memory is not given to `there` again while `here` may read it
        return made

    return awaited


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
