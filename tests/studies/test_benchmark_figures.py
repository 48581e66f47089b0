"""The ratios that dsui ships are those of the committed pages."""

from __future__ import annotations

import pytest

from dsui.benchmarks.ratios import BENCHMARKS
from studies.benchmark_figures import SHIPPED, figures, text


def test_the_shipped_ratios_are_those_of_the_pages() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == text(), "run python -m studies.benchmark_figures"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_benchmark_has_committed_ratios(device: str) -> None:
    ratios = figures(device)["ratios"]
    assert isinstance(ratios, dict)
    expected = set(BENCHMARKS) - ({"serving"} if device == "cuda" else set())  # the server predicts on the processor
    assert {key.split()[0].rstrip(",") for key in ratios} == expected
    assert all(value > 0 for value in ratios.values())
