"""The page on ImageNet says what its script computes from the committed figures, and its formulas count a real head."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

from tests.support.fences import ROOT


@pytest.fixture
def on_paper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("on_paper")


@pytest.mark.parametrize("sizes", [(64, 30, 4, 16), (96, 30, 8, 32), (256, 40, 2, 8)])
def test_the_formulas_are_what_a_step_of_a_head_holds(on_paper: ModuleType, sizes: tuple[int, ...]) -> None:
    found, formula = on_paper.counted(*sizes), on_paper.expected(*sizes)
    assert found[:3] == formula[:3]
    assert found.kept == pytest.approx(formula.kept, rel=on_paper.TOLERANCE)  # vectors of length B are left out


def test_the_page_is_what_the_script_writes(on_paper: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_paper, "COUNTED", [])  # they take seconds, and the formulas are tested above
    page = (ROOT / "benchmarks" / "imagenet-on-paper.md").read_text().splitlines()
    assert [line for line in on_paper.report().splitlines() if line not in page] == []


@pytest.mark.parametrize("sizes", [(2048, 1000, 8, 256), (512, 21_000, 8, 256), (2048, 21_000, 8, 256)])
def test_the_formula_is_what_a_gpu_measured(on_paper: ModuleType, sizes: tuple[int, ...]) -> None:
    measured = on_paper.measured_mib(*sizes[:2])
    assert on_paper.expected(*sizes).mib()[-1] == pytest.approx(measured, rel=0.02)  # class weights are freed by then
