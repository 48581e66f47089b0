"""Training with random crops and colours on JPEG files: the same bits streamed, resumed and in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from dsui.backbones.preparation import Preparation
from dsui.data.dataset import ImageSet
from dsui.data.folder import folder_set
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import load_recipe
from dsui.training.distributed import World
from dsui.training.loop import InterruptedRun, fit
from dsui.training.reporter import SilentReporter
from dsui.training.trainer import Trainer

CPU = torch.device("cpu")
SIDE = 16


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """Two classes of 24 crops of photographs, 96 x 80 pixels each."""
    path = tmp_path_factory.mktemp("photos")
    for name in ("china", "flower"):
        (path / name).mkdir()
        whole = Image.fromarray(load_sample_image(f"{name}.jpg"))
        for number in range(24):
            left, top = 20 * number, 10 * number
            whole.crop((left, top, left + 96, top + 80)).save(path / name / f"{number}.jpg")
    return folder_set(path, "train", SIDE, preparation=Preparation(size=SIDE, edge=SIDE, fit="letterbox"))


def config(images: ImageSet) -> RunConfig:
    recipe = load_recipe("photos", images.name, {"epochs": 3, "batch": 8})
    assert recipe.smallest_crop > 0
    assert recipe.jitter > 0
    return RunConfig(data=images.name, backbone="small", method="dsui", seed=0, size=SIDE, channels=3, recipe=recipe)


def trained(images: ImageSet, out: Path, **options: object) -> Trainer:
    return fit(config(images), images, out, CPU, World(), SilentReporter(), **options)  # type: ignore[arg-type]


def same(one: Trainer, other: Trainer) -> bool:
    pairs = zip(one.method.state_dict().values(), other.method.state_dict().values(), strict=True)
    return all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_a_stopped_run_goes_on_to_the_same_bits_in_memory_and_streamed(images: ImageSet, tmp_path: Path) -> None:
    straight = trained(images, tmp_path / "straight")
    assert same(straight, trained(images, tmp_path / "streamed", memory_budget=0))
    with pytest.raises(InterruptedRun, match="stopped after step 1 of"):
        trained(images, tmp_path / "stopped", stop_at=time.time())
    assert same(straight, trained(images, tmp_path / "stopped", resume=True))


def test_the_recipe_reaches_the_transform(images: ImageSet) -> None:
    run = config(images)
    without = replace(run, recipe=replace(run.recipe, jitter=0.0))
    trainers = [Trainer(each, images, CPU, World()) for each in (run, without)]
    batch, indices = images.read(torch.arange(8)), torch.arange(8)
    first, second = (trainer.transform.augmented(batch, indices, 0) for trainer in trainers)
    assert trainers[0].transform.smallest_crop == run.recipe.smallest_crop
    assert not torch.equal(first, second)
