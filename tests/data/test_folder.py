"""A user's own images: both layouts, the rule that splits them, labels, bad files and reading by index."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsui.data.folder import files_for_test, folder_set
from dsui.data.image_files import image_files
from dsui.errors import DataError

ROOT = Path("/anywhere")
NAMES = st.lists(st.text("abcdefgh123", min_size=1, max_size=4), min_size=1, max_size=40, unique=True)


def save(path: Path, level: int = 0, size: tuple[int, int] = (40, 36)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, level).save(path)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two classes, ant and bee; the level of an image identifies it."""
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


def test_where_a_class_has_no_test_images_labels_stay_those_of_train(own: Path) -> None:
    images = folder_set(own, "test")
    assert (images.classes, images.labels.tolist()) == (("ant", "bee"), [1])


def test_a_class_that_only_test_has_is_named(own: Path) -> None:
    save(own / "test" / "wasp" / "1.png")
    with pytest.raises(DataError, match=r"test/wasp has no counterpart in .*train"):
        folder_set(own, "test")


@pytest.mark.parametrize("lost", ["train", "test"])
def test_a_missing_split_is_named(own: Path, lost: str) -> None:
    (own / lost).rename(own / "away")
    with pytest.raises(DataError, match=rf"own/{lost} is missing; own images lie in PATH/train/CLASS"):
        folder_set(own, "test")


def test_a_missing_folder_is_named_with_both_layouts(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"gone is missing; .* PATH/train/CLASS and PATH/test/CLASS, or .* in PATH/CLASS"
    ):
        folder_set(tmp_path / "gone", "train")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Two classes of 50 images which nobody has split, and one of a single image."""
    for label, name in enumerate(("ant", "bee")):
        for number in range(50):
            save(tmp_path / "whole" / name / f"{number}.png", 100 * label + number, (8, 8))
    save(tmp_path / "whole" / "cat" / "1.png", 255, (8, 8))
    return tmp_path / "whole"


def test_a_folder_nobody_has_split_is_split_class_by_class(whole: Path) -> None:
    train, test = (folder_set(whole, split, size=8, channels=1) for split in ("train", "test"))
    assert train.classes == test.classes == ("ant", "bee", "cat")
    assert set(train.files).isdisjoint(test.files)
    assert sorted((*train.files, *test.files)) == sorted(whole.rglob("*.png"))
    assert train.set_aside == test.set_aside == len(test.files)
    levels = test.read(torch.arange(len(test.files)))[:, 0, 0, 0]
    assert torch.equal(levels // 100, test.labels)
    assert all(4 <= count <= 16 for count in torch.bincount(test.labels).tolist())  # 10 expected, deviation 2.8
    assert set(train.labels.tolist()) == {0, 1, 2}
    assert set(test.labels.tolist()) == {0, 1}  # the one cat is trained on


def test_a_bad_file_of_a_folder_nobody_has_split_is_skipped_and_moves_no_other(whole: Path) -> None:
    before = {split: folder_set(whole, split) for split in ("train", "test")}
    bad = before["test"].files[0]
    bad.write_bytes(b"")
    with pytest.raises(DataError, match=f"{bad.name} cannot be used"):
        folder_set(whole, "test")
    assert folder_set(whole, "train").files == before["train"].files
    test = folder_set(whole, "test", skip_bad=True)
    assert test.files == before["test"].files[1:]
    assert [skipped.file for skipped in test.skipped] == [bad]


def test_a_user_who_has_split_is_obeyed_whatever_else_lies_there(own: Path) -> None:
    save(own / "ant" / "9.png")
    assert {file.parent.parent.name for file in folder_set(own, "train").files} == {"train"}
    assert folder_set(own, "train").set_aside == 0


def test_classes_of_one_image_leave_nothing_to_test(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        save(tmp_path / name / "1.png")
    assert len(folder_set(tmp_path, "train").files) == 2
    with pytest.raises(DataError, match=r"holds no readable image for test; add images below .*/CLASS"):
        folder_set(tmp_path, "test")


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
    return {"empty.png": "is empty", "false.jpg": "not an image", "short.jpg": "runcated"}


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
    with pytest.raises(DataError, match="are not possible"):
        folder_set(own, "train", size=size, channels=channels)


def test_a_class_without_images_in_test_is_absent_there(own: Path) -> None:
    (own / "test" / "ant").mkdir()
    test = folder_set(own, "test")
    assert (test.classes, test.labels.tolist()) == (("ant", "bee"), [1])
    (own / "train" / "cat").mkdir()
    with pytest.raises(DataError, match="cat holds no image; add images or remove the class"):
        folder_set(own, "train")


def files_named(names: list[str], root: Path = ROOT) -> list[Path]:
    return [root / "class" / f"{name}.png" for name in names]


def share(file: Path) -> float:
    """Where the hash of a name lies between 0 and 1."""
    return int(hashlib.sha256(f"class/{file.name}".encode()).hexdigest()[:16], 16) / 2**64


@given(NAMES)
def test_the_rule_is_the_hash_but_for_the_guarantee(names: list[str]) -> None:
    chosen, by_hash = files_for_test(files_named(names), ROOT), sorted(files_named(names), key=share)
    below = {file for file in by_hash if share(file) < 0.2}
    if len(names) == 1:
        assert not chosen
    elif not below:
        assert chosen == {by_hash[0]}
    elif len(below) == len(names):
        assert chosen == set(by_hash[:-1])
    else:
        assert chosen == below


@given(NAMES, st.text("xyz", min_size=1, max_size=4))
def test_a_file_more_moves_no_other_but_the_stand_in(names: list[str], added: str) -> None:
    before, after = files_for_test(files_named(names), ROOT), files_for_test(files_named([*names, added]), ROOT)
    moved = (before ^ after) - set(files_named([added]))
    assert len(moved) <= 1
    below = [file for file in files_named(names) if share(file) < 0.2]
    if 0 < len(below) < len(names):
        assert not moved


def test_where_the_folder_lies_and_how_it_is_sorted_change_nothing() -> None:
    names = [str(number) for number in range(30)]
    here, there = (
        files_for_test(files_named(names), ROOT),
        files_for_test(files_named(names[::-1], Path("elsewhere")), Path("elsewhere")),
    )
    assert {file.name for file in here} == {file.name for file in there}


def test_a_fifth_is_for_test() -> None:
    count = len(files_for_test(files_named([str(number) for number in range(10_000)]), ROOT))
    assert abs(count - 2000) < 160  # four deviations of sqrt(10000 / 5 * 4 / 5)


def test_folders_are_searched_at_any_depth_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ["b.png", "a.JPG", "deep/er/c.webp", "deep/a.tiff", "z.gif"]
    passed_over = ["notes.txt", ".hidden.png", ".cache/d.png", "deep/model.pt", "no-ending"]
    for name in [*names, *passed_over]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in image_files([tmp_path])]
    assert found == ["a.JPG", "b.png", "deep/a.tiff", "deep/er/c.webp", "z.gif"]


def test_a_file_that_is_named_is_taken_whatever_its_name(tmp_path: Path) -> None:
    named = [tmp_path / "notes.txt", tmp_path / ".hidden.png", tmp_path / "absent.png"]
    for path in named[:2]:
        path.touch()
    assert list(image_files(named)) == named


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.png").touch()
    (tmp_path / "real" / "around").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere.png")
    found = [str(path.relative_to(tmp_path)) for path in image_files([tmp_path])]
    assert found == ["broken.png", "link/a.png"]
    assert list(image_files([tmp_path / "link"])) == [tmp_path / "link" / "a.png", tmp_path / "link/around/broken.png"]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Iterator[object]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("dsui.data.folder.os.scandir", refuse)
    assert list(image_files([tmp_path])) == [tmp_path]
