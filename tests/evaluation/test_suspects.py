"""Doubted labels: what a doubt is, that no image is judged by a model that saw it, and that planted wrong labels are
found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from dsui.data.dataset import MemorySet
from dsui.data.digits import digits
from dsui.errors import DsuiError
from dsui.evaluation.folds import NONE, by_regression, by_training_again, folds_of, out_of_fold
from dsui.evaluation.suspects import doubts, find_suspects
from dsui.runs.config import RunConfig
from dsui.runs.model import run_facts
from dsui.runs.recipe_file import load_recipe
from tests.support.command_line import dsui, exit_status
from tests.support.digit_runs import CPU
from tests.support.feature_files import written

PLANTED = 12


def with_wrong_labels(count: int = 240) -> tuple[Tensor, Tensor, Tensor]:
    """Digits, labels of which PLANTED are wrong, and which."""
    pixels, labels = digits()
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:count]
    wrong = torch.arange(count) < PLANTED
    given = torch.where(wrong, labels[chosen] + 1 + torch.arange(count) % 9, labels[chosen]) % 10
    return (pixels[chosen] * 255).round().to(torch.uint8), given, wrong


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of these digits; the names of the wrong ones begin with wrong."""
    place = tmp_path_factory.mktemp("suspects")
    for index, (pixels, label, wrong) in enumerate(zip(*with_wrong_labels(), strict=True)):
        folder = place / "mine" / "train" / f"digit {label}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{'wrong' if wrong else 'right'}-{index:03d}.png"
        Image.fromarray(pixels[0].numpy()).save(folder / name)
    words = ["train", "--data", f"folder:{place / 'mine'}", "--backbone", "small", "--recipe", "demo", "--size", "8"]
    words += ["--channels", "1", "--set", "epochs=15", "--set", "batch=32", "--device", "cpu", "--quiet", "--out"]
    assert dsui(*words, place / "run").exit_code == 0
    return place / "run"


def test_a_doubt_is_how_much_likelier_another_class_is() -> None:
    found = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]).double().log()
    doubt, other = doubts(found, torch.tensor([0, 1]))
    torch.testing.assert_close(doubt, torch.tensor([2 / 7, 2.0]).double().log())
    assert other.tolist() == [1, 2]


def test_folds_share_every_class_and_leave_out_no_image_that_is_alone() -> None:
    labels = torch.tensor([0] * 10 + [1] * 3 + [2])
    folds = folds_of(labels, 5, seed=0)
    assert [(folds[labels == 0] == fold).sum().item() for fold in range(5)] == [2] * 5
    assert len(folds[labels == 1].unique()) == 3
    assert folds[13] == NONE
    seen: list[tuple[set[int], set[int]]] = []

    def predict(trained: Tensor, left_out: Tensor) -> Tensor:
        seen.append((set(trained.tolist()), set(left_out.tolist())))
        return torch.zeros(len(left_out), 3)

    found = out_of_fold(folds, 3, predict)
    assert all(not trained & left_out and len(trained | left_out) == 14 for trained, left_out in seen)
    assert sorted(index for _, left_out in seen for index in left_out) == list(range(13))
    assert found[13].isnan().all()


def test_models_trained_again_find_planted_labels_that_a_network_learned_by_heart() -> None:
    pixels, labels, wrong = with_wrong_labels()
    images = MemorySet("digits", tuple("0123456789"), pixels, labels)
    recipe = load_recipe("demo", "digits", {"epochs": 10, "batch": 32})
    config = RunConfig(data="digits", backbone="small", method="dsui", seed=0, size=8, channels=1, recipe=recipe)
    again = by_training_again(config, images, None, CPU, lambda *_: None)
    doubt, _ = doubts(out_of_fold(folds_of(labels, 3, 0), 10, again), labels)
    found = int(wrong[doubt.argsort(descending=True)[:PLANTED]].sum())
    assert found >= 8, found  # 10 of 12 when written; chance finds 0.6


def test_regressions_on_features_find_clumps_with_a_wrong_label() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    features = 3 * torch.eye(3)[labels] + 0.5 * torch.randn(90, 3, generator=generator)
    given = labels.clone()
    given[:6] = (given[:6] + 1) % 3
    doubt, suggested = doubts(out_of_fold(folds_of(given, 5, 0), 3, by_regression(features, given, 3)), given)
    assert set(doubt.argsort(descending=True)[:6].tolist()) == set(range(6))
    assert torch.equal(suggested[:6], labels[:6])


def test_a_run_shows_its_planted_labels_on_a_page_and_as_json(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "doubted.html"
    words = ["data", "suspects", run, "--out", page, "--top", PLANTED, "--device", "cpu"]
    found = json.loads(dsui(*words, "--json").stdout)
    assert (found["images"], found["evidence"], found["network_saw_labels"]) == (240, "features", True)
    files = [Path(each["file"]) for each in found["suspects"]]
    assert sum(file.name.startswith("wrong") for file in files) >= 5, files  # 8 of 12 when written; chance finds 0.6
    assert [f"digit {Path(file).parent.name[-1]}" for file in files] == [each["label"] for each in found["suspects"]]
    order = [each["doubt"] for each in found["suspects"]]
    assert order == sorted(order, reverse=True)
    html = page.read_text()
    assert html.count("data:image/png;base64") == PLANTED
    assert "may have learned wrong ones by heart" in html
    assert all(file.name in html for file in files)
    told = dsui(*words)
    assert f"{files[0]}: labelled {found['suspects'][0]['label']}" in told.stdout
    assert "--folds 5 trains five models again" in told.stdout


def test_images_that_have_changed_since_are_not_judged(run: Path, tmp_path: Path) -> None:
    facts = run_facts(run)
    file = next(Path(facts.config.data.removeprefix("folder:")).glob("train/*/right-*.png"))
    moved = file.rename(file.with_suffix(".moved"))
    try:
        with pytest.raises(DsuiError, match="are not those of this run any more; bring them back"):
            find_suspects(facts, CPU, keep=False)
    finally:
        moved.rename(file)
    page = tmp_path / "x.txt"
    assert exit_status("data", "suspects", run, "--out", page) == 2
    assert exit_status("data", "suspects", run, "--folds", "1") == 2
    assert exit_status("data", "suspects", run, "--weights", "a.safetensors") == 2
    assert exit_status("data", "suspects", tmp_path / "none") == 1


def test_a_run_on_features_names_rows_and_knows_that_the_network_saw_no_label(tmp_path: Path) -> None:
    file, run = written(tmp_path), tmp_path / "run"
    words = ["train", "--data", f"features:{file}", "--set", "epochs=3", "--device", "cpu", "--quiet", "--out", run]
    assert dsui(*words).exit_code == 0
    page = tmp_path / "s.html"
    found = json.loads(dsui("data", "suspects", run, "--out", page, "--top", "3", "--device", "cpu", "--json").stdout)
    assert not found["network_saw_labels"]
    assert len(found["suspects"]) == 3
    assert "was not trained on these labels" in page.read_text()
