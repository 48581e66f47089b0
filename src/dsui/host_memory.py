"""Memory of the CPU: what a training step frees is kept for the next one.

The C library of Linux gives every block of more than 32 MiB back to the system when it is freed and asks for it anew,
and the system clears each page again. A step on the CPU frees and asks for many such blocks: nearly half of its time
went there (benchmarks/training-cpu.md).
"""

from __future__ import annotations

import ctypes
import os
import platform

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h."""
NEVER = 2**31 - 1
OWN_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Have this process keep memory that it frees; False where the C library has no such setting or its user chose one.

    A setting of the whole process, and so for programs, as the commands of dsui are, not for libraries.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in OWN_CHOICE):
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(MMAP_MAX, 0) and library.mallopt(TRIM_THRESHOLD, NEVER))
