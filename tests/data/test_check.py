"""`check` against published facts, made small for the tests."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from dsui.data import registry
from dsui.data.check import FileReport, channel_means, check
from dsui.data.checksum import checksum_of
from dsui.data.info import Split
from dsui.data.passed_over import count_of, passed_over
from dsui.errors import DataError
from tests.support.official_files import random_pixels, write_cifar10, write_idx, write_svhn

if TYPE_CHECKING:
    from pathlib import Path

PIXELS = random_pixels(32, 32, 3, 10)
MEANS = tuple((PIXELS / 255).mean((0, 1, 3)).tolist())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test split of an SVHN that was published with ten images."""
    write_svhn(tmp_path / "test_32x32.mat", PIXELS, list(range(1, 11)))
    entry = registry.DATASETS["svhn"]
    splits = {"train": entry.splits["train"], "test": Split(10, MEANS, ("test_32x32.mat",))}
    monkeypatch.setitem(registry.DATASETS, "svhn", replace(entry, splits=splits))
    return tmp_path


def test_a_copy_as_published_has_no_problem_and_an_absent_split_is_none(root: Path) -> None:
    report = check("svhn", root)
    assert report.problems == ()
    assert report.absent == ("train",)
    (split,) = report.splits
    assert (split.split, split.images, split.shape) == ("test", 10, (3, 32, 32))
    assert np.allclose(split.means, MEANS, atol=1e-12)  # both sum exactly, up to the order of float64 additions
    assert split.per_class == dict.fromkeys("0123456789", 1)


def test_nothing_at_all_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"svhn is not below .*run `dsui data get svhn`.*--root"):
        check("svhn", tmp_path)


def test_fewer_images_lost_classes_and_other_means_are_told(root: Path) -> None:
    write_svhn(root / "test_32x32.mat", PIXELS[..., :9] // 2, list(range(1, 10)))
    problems = "; ".join(check("svhn", root).problems)
    assert "test: it holds 9 images instead of 10" in problems
    assert "no image of 0" in problems
    assert "its channel means are 0.2" in problems


def test_swapped_channels_show_in_the_means(root: Path) -> None:
    tinted = PIXELS.copy()
    tinted[:, :, 0] //= 2
    write_svhn(root / "test_32x32.mat", tinted[:, :, ::-1], list(range(1, 11)))
    assert any("channel means" in problem for problem in check("svhn", root).problems)


def test_a_damaged_split_is_a_problem_beside_the_sound_one(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").unlink()
    report = check("cifar10", tmp_path)
    assert [split.split for split in report.splits] == ["train", "test"]
    assert "data_batch_2 is missing" in report.problems[0]
    assert report.splits[1].images == 4


def test_only_whole_files_count_as_present(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz.yann.lecun.com.part").touch()
    assert registry.DATASETS["mnist"].present(tmp_path) == ()
    write_idx(tmp_path / "MNIST" / "raw", "train", random_pixels(1, 28, 28), [1])
    assert registry.DATASETS["mnist"].present(tmp_path) == ("train",)


@pytest.mark.parametrize("name", ["digits", "digits-256", "photos"])
def test_the_embedded_sets_are_as_stated(name: str, tmp_path: Path) -> None:
    assert check(name, tmp_path).problems == ()


def test_a_folder_is_described(tmp_path: Path) -> None:
    for index, size in enumerate([(40, 30), (10, 12), (50, 60)]):
        folder = tmp_path / "train" / ("ant" if index else "bee")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (255, 51, 0)).save(folder / f"{index}.png")
    (tmp_path / "train" / "ant" / "bad.png").touch()
    report = check(f"folder:{tmp_path}", skip_bad=True)
    assert report.absent == ("test",)
    (train,) = report.splits
    assert train.per_class == {"ant": 2, "bee": 1}
    assert train.sizes == ((10, 12), (50, 60))
    assert train.means == (1.0, 0.2, 0.0)
    assert train.modes == ("RGB",)
    assert train.shape is None  # they have none in common
    assert [skipped.file.name for skipped in train.skipped] == ["bad.png"]
    assert not report.unreadable
    assert not report.problems


def test_a_folder_with_unreadable_files_names_them_all(tmp_path: Path) -> None:
    for name in ("train/ant/1.png", "train/bee/2.png", "test/ant/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    (tmp_path / "train" / "ant" / "empty.png").touch()
    noise = random_pixels(64, 64)
    Image.fromarray(noise).save(tmp_path / "test" / "ant" / "short.png")
    (tmp_path / "test" / "ant" / "short.png").write_bytes((tmp_path / "test/ant/short.png").read_bytes()[:1000])
    (tmp_path / "train" / "bee" / "2.png").write_text("the only image of its class")
    report = check(f"folder:{tmp_path}")
    assert [bad.file.name for bad in report.unreadable] == ["empty.png", "2.png", "short.png"]
    assert "the file is empty" in report.unreadable[0].reason
    assert report.problems == ("train: 2 of 3 files cannot be read", "test: 1 of 2 files cannot be read")
    assert [split.images for split in report.splits] == [1, 1]


def test_sizes_and_modes_are_those_on_disk(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    for number, mode in enumerate(("L", "P", "L", "RGBA")):
        Image.new(mode, (8, 8)).save(tmp_path / "ant" / f"{number}.png")
    splits = check(f"folder:{tmp_path}").splits
    assert [split.split for split in splits] == ["train", "test"]
    assert {split.sizes for split in splits} == {((8, 8), (8, 8))}
    assert {mode for split in splits for mode in split.modes} == {"L", "P", "RGBA"}


def test_channel_means_equal_those_of_numpy() -> None:
    images = registry.load("digits", "train")
    everything = images.read(torch.arange(1000)).numpy()
    assert channel_means(images) == pytest.approx([everything.mean() / 255], abs=1e-12)


def test_a_file_is_compared_with_the_published_checksum_and_a_lossless_copy_is_no_problem(root: Path) -> None:
    entry, path = registry.DATASETS["svhn"], root / "test_32x32.mat"
    assert check("svhn", root).files == (FileReport("test_32x32.mat", "SHA-256", False),)
    assert check("svhn", root).problems == ()
    published = tuple(
        replace(file, checksum=checksum_of(path, "sha256:")) if file.name == path.name else file for file in entry.files
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.DATASETS, "svhn", replace(entry, files=published))
        assert check("svhn", root).files == (FileReport("test_32x32.mat", "SHA-256", True),)


def test_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    sha256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-4
    md5 = "md5:900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    assert [checksum_of(tmp_path / "abc", like) for like in (sha256, md5)] == [sha256, md5]


def test_every_download_has_a_checksum_and_a_size() -> None:
    files = [file for entry in registry.DATASETS.values() for file in entry.files]
    assert len(files) == 13
    for file in files:
        assert file.checksum is not None
        for checksum in (file.checksum, *file.members.values()):
            algorithm, _, digest = checksum.partition(":")
            assert len(digest) == {"sha256": 64, "md5": 32}[algorithm]
            assert set(digest) <= set("0123456789abcdef")
        assert 4000 < file.largest < 250_000_000
    split = registry.DATASETS["cifar10"].files[0].members
    assert set(split) < set(registry.DATASETS["cifar10"].files[0].yields)


def folder_of(path: Path, **counts: int) -> Path:
    """PATH/train/CLASS/N.png."""
    for name, count in counts.items():
        (path / "train" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (8, 8)).save(path / "train" / name / f"{number}.png")
    return path


def test_uneven_classes_and_a_single_image_are_remarked_and_are_no_problem(tmp_path: Path) -> None:
    report = check(f"folder:{folder_of(tmp_path / 'a', ant=40, bee=41, cat=3, dog=1)}")
    assert report.problems == ()
    assert report.splits[0].uneven
    assert report.remarks == (
        "Classes are uneven: dog has 1 training image and bee 41; --balance logits makes them count alike.",
        "dog has a single training image; it is trained on, and none is held out to choose thresholds with.",
    )
    even = check(f"folder:{folder_of(tmp_path / 'b', ant=5, bee=14)}")
    assert (even.splits[0].uneven, even.remarks) == (False, ())
    one = check(f"folder:{folder_of(tmp_path / 'c', ant=5)}")
    assert one.remarks == ("There is one class, ant; a classifier needs two or more.",)


def test_images_of_which_a_square_shows_less_than_half_are_remarked(tmp_path: Path) -> None:
    path = folder_of(tmp_path, ant=3, bee=3)
    for number, size in enumerate([(17, 8), (8, 17), (16, 8)]):
        Image.new("L", size).save(path / "train" / "ant" / f"{number}.png")
    report = check(f"folder:{path}")
    assert report.splits[0].elongated == 2, "twice as long as wide is half, not less"
    assert report.remarks == (
        "Of 2 of 6 training images the central square shows less than half; with --fit letterbox all of an image is "
        "seen.",
    )


def test_files_that_are_passed_over_are_named_with_the_reason(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "mine", ant=2, bee=2)
    assert check(f"folder:{path}").passed_over == ()
    train = path / "train"
    shutil.copytree(train / "ant", train / "ant" / "deep" / "deeper")
    shutil.copytree(train, path / "val")
    (train / "bee" / "gone.png").symlink_to(path / "nowhere.png")
    (train / "bee" / "loop").symlink_to(train / "bee")
    for name in ("loose.png", "bee/phone.heic", ".hidden.png", "bee/.DS_Store"):
        (train / name).touch()
    (train / "ant" / "empty").mkdir()
    (path / "README.md").touch()
    found = check(f"folder:{path}").passed_over
    assert [(str(each.path.relative_to(path)), each.reason, each.images) for each in found] == [
        ("README.md", "beside train and test", 1),
        ("train/ant/deep", "in a folder inside a class", 2),
        ("train/bee/gone.png", "a link to nothing", 1),
        ("train/bee/loop", "in a folder inside a class", 2),
        ("train/bee/phone.heic", "its ending is that of no image", 1),
        ("train/loose.png", "beside the folders of the classes", 1),
        ("val", "beside train and test", 6),
    ]
    assert count_of(list(found)) == 14
    (path / "train").rename(path / "all")
    shutil.rmtree(path / "val")
    whole = [str(each.path.relative_to(path)) for each in passed_over(path / "all")]
    assert "ant/deep" in [name.removeprefix("all/") for name in whole], "also where nobody has split the images"
