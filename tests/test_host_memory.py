"""Memory that a process frees is not asked for again, unless its user chose otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from dsui.host_memory import USER_SETTINGS

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
FAULTS = """
import resource
import torch
from dsui.host_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
kept = keep_freed_memory()
faults()  # the heap grows to the size it needs
print(kept, faults() < first / 10)
"""


def told(**environment: str) -> str:
    """What a fresh process says: does it keep memory, and does it then take pages from the system less often?"""
    own = {name: value for name, value in os.environ.items() if name not in USER_SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, env=own | environment, check=True
    ).stdout.strip()


def test_freed_memory_is_used_again() -> None:
    assert told() == "True True"


@pytest.mark.parametrize("name", USER_SETTINGS)
def test_a_choice_of_the_user_stands(name: str) -> None:
    value = "glibc.malloc.mmap_max=100" if name == "GLIBC_TUNABLES" else "100000"
    assert told(**{name: value}) == "False False"
