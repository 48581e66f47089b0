"""Runs the Python of README and pages, with the names and runs that each page takes as given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from dsui.evaluation.results import ResultRow
from tests.support.deploy_paths import follow_the_cluster_path, follow_the_file_path, follow_the_server_path
from tests.support.fences import ROOT, fences, run_commands, run_python
from tests.support.onnx_model import write_onnx_model
from tests.support.tiny_networks import OWN_MODULE, photos

README, DOCS = ROOT / "README.md", ROOT / "docs"


def run_all(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    found = [fence for fence in fences(page) if fence.language == "python"]
    assert found
    for fence in found:
        run_python(page, fence, names)
    return names


def test_the_readme_puts_a_head_on_a_backbone() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512))
    names = {"backbone": backbone, "images": torch.rand(20, 3, 32, 32), "labels": torch.arange(20) % 10}
    _, fence = [fence for fence in fences(README) if fence.language == "python"]
    run_python(README, fence, names)
    head: Any = names["head"]
    assert not head.training
    assert all(value.grad is not None for value in (*head.parameters(), *backbone.parameters()))


@pytest.mark.parametrize("page", [README, DOCS / "index.md"], ids=["README", "index"])
def test_the_first_example_trains_and_marks_the_uncertain(page: Path) -> None:
    digits = load_digits()
    images, labels = digits.images / 16, digits.target
    names = {"images": images[:500], "labels": labels[:500], "new_images": images[500:]}
    fence, *_ = [fence for fence in fences(page) if fence.language == "python"]
    run_python(page, fence, names)
    prediction = names["prediction"]
    assert (prediction.label == labels[500:]).mean() > 0.9
    assert 0 < prediction.abnormal.sum() < len(prediction.abnormal) / 2


def test_the_page_on_deploying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "deploy.md"
    monkeypatch.chdir(tmp_path)
    first, *others = [fence for fence in fences(page) if fence.language == "python"]
    run_python(page, first, {})
    train = [line for line in page.read_text().splitlines() if line.startswith("    dsui train --data folder:digits")]
    assert len(train) == 1
    run_commands(train[0].strip())
    names: dict[str, Any] = {}
    for fence in others:
        run_python(page, fence, names)
        if fence == others[0]:
            assert names["prediction"].label.tolist() == ["0", "7"]
            assert names["prediction"].abnormal.tolist() == [False, False]
    assert len(names["prediction"].label) == 797
    inbox = sorted(Path("digits/test/0").glob("*.png"))
    Path("inbox").mkdir()
    for file in inbox:
        shutil.copy(file, "inbox")
    follow_the_file_path(len(inbox))
    follow_the_server_path()
    follow_the_cluster_path()


def test_the_page_on_pretrained_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    photos(tmp_path)
    Path("own_networks.py").write_text(OWN_MODULE)
    run_all(DOCS / "backbones.md", {})
    run_commands("dsui evaluate runs/named --tasks misclassification --backbone own_networks:net --quiet")


def test_the_page_on_the_estimator() -> None:
    names = run_all(DOCS / "estimator.md", {})
    model, table = names["model"], names["table"]
    assert model.score(names["X_new"], names["y_new"]) > 0.85  # 96 % when written; rejected samples count as wrong
    assert len(table) == len(names["X_new"])


def test_the_page_on_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_commands("dsui train --data digits --backbone small --recipe demo --set epochs=15 --out runs/dsui-0")
    names = run_all(DOCS / "evaluation.md", {})
    assert all(isinstance(row, ResultRow) and row.foreign == "photos" for row in names["rows"])
    assert "knn" in {row.score for row in names["rows"]}
    assert len(names["scores"]["uncertainty"]) == 797


def test_the_page_on_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_onnx_model(Path("model.onnx"))
    Path("inbox").mkdir()
    for name in ("a.jpg", "b.png", "inbox/c.png"):
        Image.new("RGB", (20, 30), "red").save(name)
    names = run_all(DOCS / "runtime.md", {})
    assert len(names["prediction"].label) == 2
    shown = [line.strip().partition("  #")[0] for line in (DOCS / "runtime.md").read_text().splitlines()]
    commands = [line for line in shown if line.startswith(("dsui predict model", "dsui monitor ", "dsui info "))]
    assert len(commands) == 3
    run_commands("\n".join(commands))
    assert Path("predictions.csv").read_text().count("inbox") == 1


def test_the_page_on_alarms() -> None:
    scores = np.random.default_rng(0).normal(size=400)
    names = run_all(DOCS / "monitoring.md", {"calibration_scores": scores[:300], "new_scores": scores[300:]})
    assert names["acceptance"].sentence.startswith("No alarm: 66.7% of 3 images accepted")
    assert not names["uncertainty"].alarm
