from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dsui.data.stamp import stamp
from dsui.errors import DataError

Change = Callable[[Path], object]


def folder(path: Path) -> Path:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (path / split / name).mkdir(parents=True)
            (path / split / name / "1.png").write_bytes(b"first")
    return path


CHANGES: dict[str, Change] = {
    "a file is added": lambda path: (path / "cat" / "2.png").write_bytes(b"second"),
    "a file is removed": lambda path: (path / "cat" / "1.png").unlink(),
    "a file is renamed": lambda path: (path / "cat" / "1.png").rename(path / "cat" / "2.png"),
    "a file grows": lambda path: (path / "dog" / "1.png").write_bytes(b"longer than it was"),
    "a file of the same size is newer": lambda path: os.utime(path / "dog" / "1.png", ns=(1, 1)),
    "a class is renamed": lambda path: (path / "dog").rename(path / "wolf"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_stamp_changes_when_a_file_does(tmp_path: Path, change: Change) -> None:
    name = f"folder:{folder(tmp_path / 'own')}"
    before = {split: stamp(name, split) for split in ("train", "test")}
    assert before == {split: stamp(name, split) for split in ("train", "test")}
    change(tmp_path / "own" / "test")
    assert stamp(name, "train") == before["train"]
    assert stamp(name, "test") != before["test"]


def test_a_stamp_tells_names_and_splits_apart(tmp_path: Path) -> None:
    first, second = (f"folder:{folder(tmp_path / name)}" for name in ("a", "b"))
    assert len({stamp(name, split) for name in (first, second) for split in ("train", "test")}) == 4
    assert stamp("digits", "train") != stamp("digits", "test")
    assert stamp("digits", "test") == stamp("digits", "test", tmp_path)  # it lies in a package, not below the root


def test_files_behind_linked_class_folders_count(tmp_path: Path) -> None:
    folder(tmp_path / "elsewhere")
    (tmp_path / "own" / "test").mkdir(parents=True)
    (tmp_path / "own" / "test" / "cat").symlink_to(tmp_path / "elsewhere" / "test" / "cat")
    name = f"folder:{tmp_path / 'own'}"
    before = stamp(name, "test")
    (tmp_path / "elsewhere" / "test" / "cat" / "2.png").write_bytes(b"new")
    after = stamp(name, "test")
    assert after != before
    (tmp_path / "own" / "test" / "kitten").symlink_to(tmp_path / "elsewhere" / "test" / "cat")
    assert stamp(name, "test") != after


def test_links_in_a_circle_and_links_to_nowhere_do_no_harm(tmp_path: Path) -> None:
    path = folder(tmp_path / "own") / "test"
    (path / "cat" / "again").symlink_to(path)
    (path / "dog" / "lost.png").symlink_to(tmp_path / "nowhere")
    name = f"folder:{tmp_path / 'own'}"
    before = stamp(name, "test")
    (tmp_path / "nowhere").write_bytes(b"found")
    assert stamp(name, "test") != before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_folder_that_nobody_has_split_is_stamped_by_all_its_files(tmp_path: Path, change: Change) -> None:
    path = folder(tmp_path / "own") / "test"
    before = {split: stamp(f"folder:{path}", split) for split in ("train", "test")}
    assert before["train"] != before["test"]
    change(path)
    for split in ("train", "test"):
        assert stamp(f"folder:{path}", split) != before[split]


def test_a_published_set_is_stamped_by_its_files_below_the_root(tmp_path: Path) -> None:
    nothing = stamp("svhn", "test", tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"matrix")
    there = stamp("svhn", "test", tmp_path)
    (tmp_path / "train_32x32.mat").write_bytes(b"of the other split")
    assert stamp("svhn", "test", tmp_path) == there != nothing
    (tmp_path / "test_32x32.mat").write_bytes(b"another matrix")
    assert stamp("svhn", "test", tmp_path) != there
    below = tmp_path / "tiny-imagenet-200" / "val" / "images"
    below.mkdir(parents=True)
    empty = stamp("tiny-imagenet", "test", tmp_path)
    (below / "val_0.JPEG").write_bytes(b"image")
    assert stamp("tiny-imagenet", "test", tmp_path) != empty


def test_a_name_that_is_no_data_set_is_told() -> None:
    with pytest.raises(DataError, match="did you mean cifar10"):
        stamp("cifar-10", "test")


@pytest.mark.parametrize(("size", "position"), [(100, 50), (10_000, 0), (10_000, 9_999), (5_000, 4_500), (4_096, 1)])
def test_other_content_of_equal_size_and_time_is_noticed(tmp_path: Path, size: int, position: int) -> None:
    name, path = f"folder:{tmp_path}", tmp_path / "test" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    content = bytearray(size)
    path.write_bytes(content)
    times, before = path.stat(), stamp(name, "test")
    assert stamp(name, "test") == before
    content[position] = 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamp(name, "test") != before


def test_a_pipe_among_the_images_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    os.mkfifo(tmp_path / "test" / "pipe.png")
    assert stamp(f"folder:{tmp_path}", "test")
