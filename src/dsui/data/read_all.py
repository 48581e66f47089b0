"""Many image files at once, decoded by threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.resources import usable_processors

BLOCK = 32
"""Files that one thread reads in a row. In shorter rows files of a kilobyte take up to a tenth longer; in longer ones a
few hundred large photographs would not keep all processors busy."""


def read_all(
    files: Sequence[Path],
    read: Callable[[Path], NDArray[np.uint8]],
    shape: tuple[int, int, int],
    threads: int | None = None,
) -> Tensor:
    """uint8 [N, *shape]: `read` of every file, in as many threads as there are processors.

    Pillow decodes without holding Python's global lock. Files of a few kilobytes spend their time with the lock held,
    so that one thread reads them faster than several do.
    """
    images = np.empty((len(files), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for index in range(start, min(start + BLOCK, len(files))):
            images[index] = read(files[index])

    with ThreadPoolExecutor(threads or usable_processors()) as pool:
        for _ in pool.map(fill, range(0, len(files), BLOCK)):
            pass
    return torch.from_numpy(images)
