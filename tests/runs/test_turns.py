"""Images whose quarter turns look alike are found on the held-out part, and the user is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from dsui import UncertaintyClassifier
from dsui.cli import app
from dsui.data.augment import Transform
from dsui.data.dataset import MemorySet
from dsui.data.pipeline import open_loader
from dsui.methods.registry import build
from dsui.runs import turns
from dsui.runs.calibration import Calibration, stored_calibration
from dsui.runs.model import run_facts
from dsui.runs.recipe_file import load_recipe
from tests.support.digit_runs import HELD_OUT, run

SENTENCE = "so doubles help little with these images; train with --set doubles=none"


def rosettes(count: int = 40) -> tuple[NDArray[np.uint8], list[str]]:
    """Two classes of images that a quarter turn leaves as they are: bright in the middle, or at the corners."""
    noise = np.random.default_rng(0).integers(0, 80, (2 * count, 8, 8))
    alike = np.mean([np.rot90(noise, turn, (1, 2)) for turn in range(4)], axis=0)
    alike[:count, 3:5, 3:5] += 150
    alike[count:, ::7, ::7] += 150
    return alike.astype(np.uint8), ["middle"] * count + ["corners"] * count


def test_of_images_without_an_upright_a_quarter_is_told_and_the_user_learns_it(tmp_path: Path) -> None:
    images, labels = rosettes()
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        (tmp_path / "mine" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "mine" / label / f"{index}.png")
    command = ["train", "--data", f"folder:{tmp_path / 'mine'}", "--backbone", "small", "--recipe", "demo", "--size"]
    command += ["8", "--channels", "1", "--calibration", "0.3", "--set", "epochs=3", "--set", "batch=16"]
    said = CliRunner().invoke(app, [*command, "--set", "doubles=turns", "--out", str(tmp_path / "turned")])
    assert said.exit_code == 0, said.output
    assert f"tells the quarter turns of only 25% of held-out images (a guess: 25%), {SENTENCE}" in said.output
    assert SENTENCE not in CliRunner().invoke(app, [*command, "--out", str(tmp_path / "plain")]).output


def test_the_classifier_warns_of_it_too() -> None:
    images, labels = rosettes()
    settings = {"doubles": "turns", "batch": 16}
    classifier = UncertaintyClassifier("small", recipe="demo", settings=settings, calibration=0.3)
    in_python = re.escape(SENTENCE.replace("--set doubles=none", 'settings={"doubles": "none"}'))
    with pytest.warns(UserWarning, match=in_python):
        classifier.fit(images, labels, epochs=2)


def test_turns_of_digits_are_told_and_the_run_remembers_how_often() -> None:
    found = stored_calibration(run_facts(run("dsui", held_out=HELD_OUT, epochs=8, doubles="turns")))
    assert found.turns is not None
    assert 0.7 < found.turns < 1
    assert turns.advice(found.turns) is None
    assert Calibration.from_text(found.to_text()).turns == found.turns


def test_a_run_without_doubles_or_from_before_knows_nothing_of_turns() -> None:
    found = stored_calibration(run_facts(run("dsui", held_out=HELD_OUT)))
    assert found.turns is None
    assert turns.advice(None) is None
    before = json.loads(found.to_text())
    del before["turns"]
    assert Calibration.from_text(json.dumps(before)).turns is None


def test_the_share_is_over_all_four_turns() -> None:

    method = build("msp", "small", 1, 2, load_recipe("demo", "digits", {"doubles": "turns"})).eval()
    corner = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    corner[:, :, 0, 0] = 255

    def by_corner(images: torch.Tensor) -> torch.Tensor:
        """The true turn, but 2 is taken for 0."""
        places = torch.stack([images[:, 0, 0, 0], images[:, 0, -1, 0], images[:, 0, -1, -1], images[:, 0, 0, -1]], 1)
        return torch.where(places.argmax(1) == 2, 0, places.argmax(1))

    method.seen_turns = by_corner  # type: ignore[method-assign]
    images = MemorySet("corners", ("a", "b"), corner, torch.tensor([0, 1, 0, 1, 0]))
    loader = open_loader(images, torch.device("cpu"))
    assert turns.share_told_apart(method, Transform(), loader, torch.arange(5), batch=2) == 0.75
