"""`dsui bench` prints what it measures beside the committed ratios."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch

from dsui.benchmarks import head, ratios
from dsui.cli.bench import NAMES
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import CPU


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, features of 16 numbers in place of 2,048, and stand-ins for what trains."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(head, "FEATURES", 16)
    for name in ("step", "evaluation", "serving"):
        keys = [key for key in ratios.committed(CPU).ratios if key.startswith(name)]
        monkeypatch.setitem(ratios.BENCHMARKS, name, stand_in(keys))


def stand_in(keys: list[str]) -> Callable[[torch.device, bool], Iterator[tuple[str, float]]]:
    return lambda _device, _quick: ((key, 2.5) for key in keys)


def test_the_command_knows_every_benchmark() -> None:
    assert set(NAMES) == set(ratios.BENCHMARKS)


@pytest.mark.usefixtures("small")
def test_every_ratio_stands_beside_the_committed_one() -> None:
    told = json.loads(dsui("bench", "--json", "--quiet").stdout)
    assert not told["full"]
    assert {each["name"] for each in told["ratios"]} == set(ratios.committed(CPU).ratios)
    assert all(each["here"] > 0 and each["committed"] > 0 for each in told["ratios"])


@pytest.mark.usefixtures("small")
def test_the_table_says_which_machines_and_that_less_was_measured() -> None:
    result = dsui("bench", "step")
    assert result.exit_code == 0
    printed = " ".join(result.stdout.split())
    assert "step against an ordinary loop, times as fast 2.50 1.10" in printed
    assert "step against the same with a linear head, times the time 2.50 1.00" in printed
    assert "Committed: x86_64, 2 processors. This machine measured less" in printed
    assert "measured less" not in dsui("bench", "step", "--full").stdout


def test_a_benchmark_that_is_not_there_is_told() -> None:
    assert exit_status("bench", "heads") == 2
