"""When a batch does not fit into a GPU's memory, try smaller ones until one does."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch


def release() -> None:
    """Give unused memory back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fitting_batch(batch: int, take_a_step: Callable[[int], None]) -> int | None:
    """The first of batch / 2, batch / 4, ... for which `take_a_step` does not run out of memory; None if none fits."""
    while (batch := batch // 2) >= 2:
        try:
            take_a_step(batch)
        except torch.cuda.OutOfMemoryError:
            pass
        else:
            return batch
        finally:
            release()
    return None
