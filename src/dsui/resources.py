"""What this process may still use of the machine: memory and processors.

A container or the job of a cluster has less than the machine: control groups of Linux, in version 1 or 2, limit its
memory, and its affinity limits its processors. Memory that holds copies of files counts as free, since the system gives
it up when it is asked for memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Files(NamedTuple):
    """Where a version of control groups says what, below the folder of a group; `inactive` is a line of memory.stat."""

    mounts: tuple[str, ...]
    limit: str
    used: str
    inactive: str


VERSION_1 = Files(("memory",), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = Files(("", "unified"), "memory.max", "memory.current", "inactive_file")


def available_memory(root: Path = Path("/")) -> int:
    """Bytes: the least of what the machine has and what the control groups above this process leave it."""
    return max(0, min([_of_machine(root), *_of_groups(root)]))


def usable_processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _of_machine(root: Path) -> int:
    try:
        return _named(root / "proc/meminfo", "MemAvailable:") << 10
    except (OSError, ValueError):  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups(root: Path) -> Iterator[int]:
    """For each group that has a limit. In a container the path of its group may be that of the host, which it does not
    see; its own group is then the root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files = VERSION_1 if controllers else VERSION_2
        for mount in files.mounts:
            top = root / "sys/fs/cgroup" / mount
            own = top / group.lstrip("/")
            for folder in (own, *own.parents):
                if folder.is_relative_to(top):
                    yield from _left(folder, files)


def _left(folder: Path, files: Files) -> Iterator[int]:
    """What one group leaves, if it has a limit that can be read."""
    try:
        limit, used = (int((folder / name).read_text()) for name in (files.limit, files.used))
        yield limit - used + _named(folder / "memory.stat", files.inactive)
    except (OSError, ValueError):  # no such folder, or the limit "max"
        return


def _named(file: Path, name: str) -> int:
    """The number behind a name at the beginning of a line."""
    for line in file.read_text().splitlines():
        if line.split(maxsplit=1)[:1] == [name]:
            return int(line.split()[1])
    raise ValueError(f"{file} has no line {name}.")
