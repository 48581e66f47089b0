"""What a process may still use: that of the machine, or what its container or its job leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsui.resources import available_memory, usable_processors

GIB = 1 << 30


def machine(root: Path, groups: str, gibibytes: int = 16) -> Path:
    """A root with what the system writes there."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {gibibytes << 20} kB\nCached: 5 kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    return root


def group(folder: Path, version: int, limit: str, used: int, inactive: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    line = f"{'total_' * (version == 1)}inactive_file {inactive}"
    (folder / "memory.stat").write_text(f"anon 7\n{line}\n")


def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, "1:cpu:/a\n0::/\n")) == 16 * GIB


def test_a_container_has_what_its_limit_leaves_and_copies_of_files_are_free(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n")
    group(root / "sys/fs/cgroup", 2, str(4 * GIB), 3 * GIB, GIB)
    assert available_memory(root) == 2 * GIB


@pytest.mark.parametrize(
    ("version", "groups", "top"), [(2, "0::/job/step\n", ""), (1, "4:cpu,memory:/job/step\n", "memory")]
)
def test_the_tightest_group_above_the_process_counts(tmp_path: Path, version: int, groups: str, top: str) -> None:
    root = machine(tmp_path, groups)
    whole = root / "sys/fs/cgroup" / top
    group(whole / "job/step", version, "max" if version == 2 else str((1 << 63) - 4096), GIB, 0)
    group(whole / "job", version, str(8 * GIB), 5 * GIB, 0)
    assert available_memory(root) == 3 * GIB


def test_a_group_that_the_container_does_not_see_is_the_root(tmp_path: Path) -> None:
    root = machine(tmp_path, "4:memory:/docker/abcdef\n")
    group(root / "sys/fs/cgroup/memory", 1, str(2 * GIB), GIB, 0)
    assert available_memory(root) == GIB


def test_a_group_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n")
    group(root / "sys/fs/cgroup", 2, str(GIB), 2 * GIB, 0)
    assert available_memory(root) == 0


def test_on_this_machine_there_is_some(tmp_path: Path) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory() <= physical
    assert available_memory(tmp_path) == physical, "a system without these files"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_only_processors_that_the_process_may_run_on_are_counted() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_processors() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_processors() == len(before)
