"""Every image of a user's own folder is shown with its own file, whatever was skipped, held out or cut to size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.dataset import ImageSet, subset
from dsui.data.folder import folder_set
from dsui.data.foreign import ReshapedSet, as_foreign
from dsui.data.noise import noise_set
from dsui.data.splits import class_split, known_part, unknown_part
from dsui.report.page import page
from dsui.report.run_data import ScoredImages
from dsui.report.section import Section
from dsui.report.thumbnails import origin, thumbnails
from dsui.report.tsne import FeatureSample

CLASSES = ("cat", "dog", "owl")
EACH = 5


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of one grey each, no two alike; one file of train and one of test cannot be read."""
    folder = tmp_path_factory.mktemp("data") / "my pets"
    for split, darkest in (("train", 0), ("test", 100)):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for number in range(EACH):
                pixels = np.full((8, 8, 3), darkest + EACH * label + number, np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"<{number}>.png")
        (folder / split / "cat" / "<1>.png").write_bytes(b"broken")
    return folder


def grey(images: ImageSet, index: int) -> int:
    return int(images.read(torch.tensor([index]))[0, 0, 0, 0])


def grey_on_disk(folder: Path, file: str | None) -> int:
    assert file is not None
    return int(np.asarray(Image.open(folder / file))[0, 0, 0])


def kinds(pets: Path) -> dict[str, ImageSet]:
    test, train, small, small_grey = (
        folder_set(pets, split, size, channels, skip_bad=True)
        for split, size, channels in (("test", 8, 3), ("train", 8, 3), ("train", 4, 3), ("train", 4, 1))
    )
    split = class_split("cat,owl", test)
    return {
        "skipped": test,
        "held out": subset(train, torch.tensor([0, 3, 7, 13]), "some"),
        "known": known_part(test, split),
        "unknown": unknown_part(test, split),
        "held out of the known": subset(known_part(train, split), torch.tensor([8, 2]), "some"),
        "foreign": as_foreign(test, small),
        "foreign part": as_foreign(known_part(test, split), small_grey),
        "oblong": ReshapedSet(subset(test, torch.tensor([9, 4]), "some"), (3, 4, 8)),
    }


def test_the_file_of_an_image_holds_its_pixels(pets: Path) -> None:
    for kind, images in kinds(pets).items():
        for index in range(len(images.labels)):
            assert grey(images, index) == grey_on_disk(pets, origin(images, index)), kind


def test_images_that_are_no_files_have_no_origin(pets: Path) -> None:
    images = folder_set(pets, "test", 8, skip_bad=True)
    assert origin(noise_set(images, 3, 0), 1) is None
    assert origin(images.in_memory(), 1) is None


def scored(images: ImageSet) -> ScoredImages:
    count, no_features = len(images.labels), FeatureSample(torch.zeros(0), torch.zeros(0))
    scores = {"energy": torch.arange(count)}
    return ScoredImages("test", lambda: images, images.labels, torch.zeros(count, 3), None, scores, no_features)


def test_a_picture_is_shown_above_the_path_of_its_file(pets: Path) -> None:
    images = folder_set(pets, "test", 8, skip_bad=True)
    shown = thumbnails(scored(images), torch.tensor([1, 5]), "energy", CLASSES, foreign=False)
    assert [each.file for each in shown] == ["test/cat/<2>.png", "test/dog/<1>.png"], "cat/<1>.png was skipped"
    html = page("", "", [Section("images", "Images", images=shown)])
    for name in ("test/cat/&lt;2&gt;.png", "test/dog/&lt;1&gt;.png"):
        assert f'title="{name}"' in html
        assert f'<span class="file">{name}</span>' in html
    assert str(pets) not in html


def test_pictures_without_a_file_say_nothing_of_one(pets: Path) -> None:
    images = folder_set(pets, "test", 8, skip_bad=True).in_memory()
    shown = thumbnails(scored(images), torch.tensor([1]), "energy", CLASSES, foreign=False)
    html = page("", "", [Section("images", "Images", images=shown)])
    assert "title=" not in html
    assert 'class="file"' not in html
