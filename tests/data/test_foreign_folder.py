"""Foreign images in any folder: which files are meant, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from dsui.data.foreign import foreign_folder
from dsui.errors import DataError


def save(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9)).save(path)


def test_images_at_any_depth_are_called_after_their_folder(tmp_path: Path) -> None:
    save(tmp_path / "1.png", tmp_path / "animals" / "dog" / "2.png", tmp_path / "cat" / "3.png")
    (tmp_path / "notes.txt").touch()
    images = foreign_folder(tmp_path, 8, 3)
    assert (images.name, images.shape) == (f"folder:{tmp_path}", (3, 8, 8))
    named = {file.name: images.classes[label] for file, label in zip(images.files, images.labels, strict=True)}
    assert named == {"1.png": "any", "2.png": "dog", "3.png": "cat"}


def test_of_a_folder_with_test_images_these_alone_are_meant_and_train_is_not_needed(tmp_path: Path) -> None:
    save(tmp_path / "test" / "cat" / "1.png", tmp_path / "2.png")
    assert [file.name for file in foreign_folder(tmp_path, 8, 3).files] == ["1.png"]
    save(tmp_path / "train" / "dog" / "3.png")
    images = foreign_folder(tmp_path, 8, 3)
    assert (images.classes, len(images.files)) == (("cat",), 1)


def test_a_folder_that_is_missing_or_holds_no_image_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone is missing; foreign images may lie in any folder"):
        foreign_folder(tmp_path / "gone", 8, 3)
    with pytest.raises(DataError, match="holds no readable image"):
        foreign_folder(tmp_path, 8, 3)
    (tmp_path / "bad.png").touch()
    with pytest.raises(DataError, match=r"bad\.png cannot be used"):
        foreign_folder(tmp_path, 8, 3)
    with pytest.raises(DataError, match="holds no readable image"):
        foreign_folder(tmp_path, 8, 3, skip_bad=True)
