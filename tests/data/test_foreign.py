"""Foreign images: in the shape of another set, and from any folder: which files are used, and what their class is."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image

from dsui.data.dataset import MemorySet, Subset
from dsui.data.decode import central_square, pixels
from dsui.data.folder import FolderSet, folder_set
from dsui.data.foreign import DRAWN_IMAGES, as_foreign, drawn_indices, drawn_training_images, foreign_folder
from dsui.data.registry import load
from dsui.data.splits import class_split, unknown_part
from dsui.errors import DataError
from tests.support.official_files import write_cifar10, write_tiny_imagenet


def random_set(channels: int, height: int, width: int, count: int = 5, name: str = "random") -> MemorySet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)
    return MemorySet(name, ("one", "two"), images, torch.arange(count) % 2)


def everything(images: MemorySet) -> torch.Tensor:
    return torch.arange(len(images.labels))


def test_a_set_of_the_same_shape_is_handed_back_untouched() -> None:
    images = random_set(3, 8, 8)
    assert as_foreign(images, random_set(3, 8, 8, name="home")) is images


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width", "side"), [(64, 64, 32), (28, 28, 32), (20, 33, 8), (33, 20, 40)])
def test_resizing_agrees_with_pillow_to_one_level(channels: int, height: int, width: int, side: int) -> None:
    images = random_set(channels, height, width)
    found = as_foreign(images, random_set(channels, side, side)).read(everything(images))
    edge = min(height, width)
    left, top = (width - edge) // 2, (height - edge) // 2
    for plane, resized in zip(images.images.flatten(0, 1), found.flatten(0, 1), strict=True):
        cropped = Image.fromarray(plane.numpy()).crop((left, top, left + edge, top + edge))
        expected = torch.from_numpy(pixels(central_square(cropped, side)))[0]
        assert (resized.int() - expected.int()).abs().max() <= 1  # Pillow rounds between columns and rows


def test_grey_is_repeated_and_colour_becomes_luma() -> None:
    grey, colour = random_set(1, 8, 8), random_set(3, 8, 8)
    repeated = as_foreign(grey, colour).read(everything(grey))
    assert torch.equal(repeated, grey.images.expand(-1, 3, -1, -1))
    luma = as_foreign(colour, grey).read(everything(colour))
    red, green, blue = colour.images.double().unbind(1)
    exact = 0.299 * red + 0.587 * green + 0.114 * blue
    assert luma.shape == (5, 1, 8, 8)
    assert (luma[:, 0] - exact).abs().max() <= 0.5 + 1e-4  # rounding, and float32 at values near 255


def test_white_stays_white_and_black_black_whatever_the_shape() -> None:
    for level in (0, 255):
        images = MemorySet("plain", ("a",), torch.full((1, 3, 50, 31), level, dtype=torch.uint8), torch.tensor([0]))
        found = as_foreign(images, random_set(1, 7, 7)).read(torch.tensor([0]))
        assert found.unique().tolist() == [level]


def test_proportions_that_are_not_square_are_kept() -> None:
    columns = torch.arange(8, dtype=torch.uint8).expand(1, 1, 8, 8).contiguous()
    images = MemorySet("ramp", ("a",), columns, torch.tensor([0]))
    found = as_foreign(images, random_set(1, 8, 4)).read(torch.tensor([0]))
    assert found[0, 0, 0].tolist() == [2, 3, 4, 5]


def test_large_reads_are_converted_in_blocks_and_in_the_order_asked_for() -> None:
    images = random_set(1, 4, 4, count=2500)
    foreign = as_foreign(images, random_set(3, 4, 4))
    order = torch.arange(2499, -1, -1)
    assert torch.equal(foreign.read(order)[:, 0], images.images[order][:, 0])
    assert foreign.read(torch.tensor([], dtype=torch.int64)).shape == (0, 3, 4, 4)
    smaller = as_foreign(images, random_set(1, 3, 3))
    assert smaller.read(torch.tensor([], dtype=torch.int64)).shape == (0, 1, 3, 3)


def test_labels_classes_and_name_stay_and_the_set_travels_to_another_process() -> None:
    images = random_set(1, 6, 6)
    foreign = as_foreign(images, random_set(3, 4, 4))
    assert (foreign.name, foreign.classes, foreign.shape) == ("random", ("one", "two"), (3, 4, 4))
    assert torch.equal(foreign.labels, images.labels)
    copy = pickle.loads(pickle.dumps(foreign))  # noqa: S301 - our own bytes
    assert torch.equal(copy.read(torch.tensor([2])), foreign.read(torch.tensor([2])))


def test_own_files_are_decoded_at_the_wanted_size_also_behind_a_class_split(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        (tmp_path / "train" / name).mkdir(parents=True)
        picture = Image.frombytes("RGB", (64, 64), random_set(3, 64, 64).images[0].numpy().tobytes())
        picture.save(tmp_path / "train" / name / "1.png")
    coarse, fine = folder_set(tmp_path, "train", size=8), folder_set(tmp_path, "train", size=48, channels=1)
    home = random_set(1, 48, 48)
    foreign = as_foreign(coarse, home)
    assert isinstance(foreign, FolderSet)
    assert torch.equal(foreign.read(torch.tensor([1])), fine.read(torch.tensor([1])))
    part = as_foreign(unknown_part(coarse, class_split("ant,bee", coarse)), home)
    assert isinstance(part, Subset)
    assert part.classes == ("cat",)
    assert torch.equal(part.read(torch.tensor([0])), fine.read(torch.tensor([2])))
    assert as_foreign(coarse, random_set(3, 4, 6)).read(torch.tensor([0])).shape == (1, 3, 4, 6)


def test_channels_that_are_neither_grey_nor_colour_are_refused() -> None:
    with pytest.raises(DataError, match="random has 2 channels and home has 3; only grey and RGB"):
        as_foreign(random_set(2, 8, 8), random_set(3, 8, 8, name="home"))


def save(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9)).save(path)


def test_images_at_any_depth_have_the_name_of_their_folder_as_class(tmp_path: Path) -> None:
    save(tmp_path / "1.png", tmp_path / "animals" / "dog" / "2.png", tmp_path / "cat" / "3.png")
    (tmp_path / "notes.txt").touch()
    images = foreign_folder(tmp_path, 8, 3)
    assert (images.name, images.shape) == (f"folder:{tmp_path}", (3, 8, 8))
    named = {file.name: images.classes[label] for file, label in zip(images.files, images.labels, strict=True)}
    assert named == {"1.png": "any", "2.png": "dog", "3.png": "cat"}


def test_of_a_folder_with_test_images_only_these_are_used_and_train_is_not_needed(tmp_path: Path) -> None:
    save(tmp_path / "test" / "cat" / "1.png", tmp_path / "2.png")
    assert [file.name for file in foreign_folder(tmp_path, 8, 3).files] == ["1.png"]
    save(tmp_path / "train" / "dog" / "3.png")
    images = foreign_folder(tmp_path, 8, 3)
    assert (images.classes, len(images.files)) == (("cat",), 1)


def test_a_folder_that_is_missing_or_holds_no_image_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone is missing; foreign images may lie in any folder"):
        foreign_folder(tmp_path / "gone", 8, 3)
    with pytest.raises(DataError, match="holds no readable image"):
        foreign_folder(tmp_path, 8, 3)
    (tmp_path / "bad.png").touch()
    with pytest.raises(DataError, match=r"bad\.png cannot be used"):
        foreign_folder(tmp_path, 8, 3)
    with pytest.raises(DataError, match="holds no readable image"):
        foreign_folder(tmp_path, 8, 3, skip_bad=True)


def test_the_drawn_training_images_are_always_the_same_and_of_a_small_set_all() -> None:
    chosen = drawn_indices(50_000)
    assert len(set(chosen.tolist())) == DRAWN_IMAGES
    assert torch.equal(chosen, chosen.sort().values)
    assert chosen[:3].tolist() == [1, 11, 39]  # what earlier rows were made with
    assert not torch.equal(drawn_indices(50_001), chosen)
    assert drawn_indices(7).tolist() == list(range(7))


def test_drawn_images_are_those_of_the_training_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    monkeypatch.setattr("dsui.data.foreign.DRAWN_IMAGES", 5)
    whole, chosen = load("cifar10", "train", tmp_path), drawn_indices(20)
    drawn = drawn_training_images("cifar10", tmp_path)
    assert drawn.name == "cifar10@train"
    assert torch.equal(drawn.labels, whole.labels[chosen])
    assert torch.equal(drawn.read(torch.arange(5)), whole.read(chosen))


def test_files_that_hold_no_drawn_image_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_imagenet(tmp_path)
    monkeypatch.setattr("dsui.data.foreign.DRAWN_IMAGES", 2)
    whole, chosen = load("tiny-imagenet", "train", tmp_path), drawn_indices(6)
    files = sorted((tmp_path / "tiny-imagenet-200" / "train").glob("*/images/*.JPEG"))
    for index, file in enumerate(files):
        if index not in chosen:
            file.write_bytes(b"")
    drawn = drawn_training_images("tiny-imagenet", tmp_path)
    assert torch.equal(drawn.read(torch.arange(2)), whole.read(chosen))
    assert torch.equal(drawn.labels, whole.labels[chosen])
