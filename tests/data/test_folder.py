"""One's own images: layout, labels, bad files and reading by index."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data.folder import folder_set
from dsui.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def save(path: Path, level: int = 0, size: tuple[int, int] = (40, 36)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, level).save(path)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two classes, ant and bee; the level of an image tells which it is."""
    root = tmp_path / "own"
    save(root / "train" / "bee" / "1.png", 10)
    save(root / "train" / "ant" / "2.PNG", 20)
    save(root / "train" / "ant" / "1.bmp", 30)
    save(root / "test" / "bee" / "x.gif", 40)
    return root


def test_classes_and_files_are_sorted_and_other_files_passed_over(own: Path) -> None:
    (own / "train" / "ant" / "notes.txt").write_text("not an image")
    (own / "train" / "ant" / ".hidden.png").write_text("not an image")
    (own / "train" / "ant" / "folder.png").mkdir()
    (own / "train" / ".cache").mkdir()
    (own / "train" / "readme.md").write_text("not a class")
    images = folder_set(own, "train")
    assert images.name == f"folder:{own}"
    assert images.classes == ("ant", "bee")
    assert images.labels.tolist() == [0, 0, 1]
    assert images.read(torch.tensor([2, 0, 1]))[:, 0, 0, 0].tolist() == [10, 30, 20]


@pytest.mark.parametrize(("size", "channels"), [(32, 3), (7, 1), (64, 3)])
def test_every_image_has_the_wanted_shape_and_memory_equals_disk(own: Path, size: int, channels: int) -> None:
    images = folder_set(own, "train", size=size, channels=channels)
    assert images.shape == (channels, size, size)
    held = images.in_memory()
    everything = images.read(torch.arange(3))
    assert everything.shape == (3, *images.shape)
    assert torch.equal(held.images, everything)
    assert torch.equal(held.labels, images.labels)
    assert images.read(torch.tensor([], dtype=torch.int64)).shape == (0, *images.shape)


def test_a_set_travels_to_another_process(own: Path) -> None:
    images = folder_set(own, "train")
    copy = pickle.loads(pickle.dumps(images))  # noqa: S301 - our own bytes
    assert torch.equal(copy.read(torch.tensor([1])), images.read(torch.tensor([1])))


def test_a_class_without_test_images_is_noted_and_labels_stay_those_of_train(own: Path) -> None:
    images = folder_set(own, "test")
    assert images.absent == ("ant",)
    assert images.labels.tolist() == [1]
    assert folder_set(own, "train").absent == ()


def test_a_class_that_only_test_has_is_named(own: Path) -> None:
    save(own / "test" / "wasp" / "1.png")
    with pytest.raises(DataError, match=r"test/wasp has no counterpart in .*train"):
        folder_set(own, "test")


@pytest.mark.parametrize("lost", ["train", "test"])
def test_a_missing_split_is_named(own: Path, lost: str) -> None:
    (own / lost).rename(own / "away")
    with pytest.raises(DataError, match=rf"own/{lost} is missing; own images lie in PATH/train/CLASS"):
        folder_set(own, "test")


def test_an_empty_class_and_an_empty_split_are_named(own: Path) -> None:
    (own / "train" / "wasp").mkdir()
    for skip_bad in (False, True):
        with pytest.raises(DataError, match="train/wasp holds no image"):
            folder_set(own, "train", skip_bad=skip_bad)
    (own / "test" / "bee" / "x.gif").unlink()
    (own / "test" / "bee").rmdir()
    with pytest.raises(DataError, match="own/test holds no folder"):
        folder_set(own, "test")


def spoil(own: Path) -> dict[str, str]:
    """Three bad files among the good ones, and what is said about each."""
    folder = own / "train" / "ant"
    (folder / "empty.png").write_bytes(b"")
    (folder / "false.jpg").write_text("<html>")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "short.jpg")
    (folder / "short.jpg").write_bytes((folder / "short.jpg").read_bytes()[:1500])
    return {"empty.png": "is empty", "false.jpg": "no image", "short.jpg": "runcated"}


@pytest.mark.parametrize("bad", ["empty.png", "false.jpg", "short.jpg"])
def test_a_bad_file_is_an_error_that_names_it(own: Path, bad: str) -> None:
    reasons = spoil(own)
    for other in reasons.keys() - {bad}:
        (own / "train" / "ant" / other).unlink()
    with pytest.raises(DataError, match=rf"ant/{bad} cannot be used \(.*{reasons[bad]}.*--skip-bad"):
        folder_set(own, "train").in_memory()


def test_bad_files_are_skipped_on_request_with_their_reasons(own: Path) -> None:
    reasons = spoil(own)
    images = folder_set(own, "train", skip_bad=True)
    assert len(images.in_memory().labels) == 3
    assert {skipped.file.name for skipped in images.skipped} == set(reasons)
    for skipped in images.skipped:
        assert reasons[skipped.file.name] in skipped.reason


def test_a_training_class_of_bad_files_alone_stays_an_error(own: Path) -> None:
    (own / "train" / "bee" / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match="train/bee holds no readable image"):
        folder_set(own, "train", skip_bad=True)
    (own / "test" / "bee" / "x.gif").write_bytes(b"")
    with pytest.raises(DataError, match="own/test holds no readable image"):
        folder_set(own, "test", skip_bad=True)


@pytest.mark.parametrize(("size", "channels"), [(0, 3), (32, 2)])
def test_impossible_shapes_are_refused(own: Path, size: int, channels: int) -> None:
    with pytest.raises(DataError, match="cannot be made"):
        folder_set(own, "train", size=size, channels=channels)
