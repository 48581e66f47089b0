"""Memory of the CPU: memory that a training step frees is kept for the next step.

When a block of more than 32 MiB is freed, the C library of Linux returns it to the system, which clears every page
before it hands it out again. A training step on the CPU frees and allocates many such blocks, which took nearly half of
its time (benchmarks/training-cpu.md).
"""

from __future__ import annotations

import ctypes
import os
import platform

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h."""
NEVER = 2**31 - 1
USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Make this process keep the memory that it frees.

    Returns False where the C library has no such setting, or where the user chose one in the environment. The setting
    holds for the whole process, so programs such as the commands of dsui may call this, but libraries should not.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in USER_SETTINGS):
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(MMAP_MAX, 0) and library.mallopt(TRIM_THRESHOLD, NEVER))
