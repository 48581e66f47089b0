"""The images of a data set one by one, at the size they have, for a network that prepares them in its own way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dsui.backbones.preparation import Preparation
from dsui.data.decode import ImageError, decode_image, pixels
from dsui.data.folder import is_split, readable_files, split_files
from dsui.data.image_files import image_files
from dsui.data.info import missing_folder
from dsui.data.registry import FEATURES, FOLDER, SPLITS, dataset_info, default_root, folder_path, load
from dsui.errors import DataError

CHANNELS = 3


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """N images. `image(row)` decodes one. `labels` and `split` [N] are None where the user has given none, `identity`
    changes with the images, `left_out` is the number of unreadable files."""

    names: list[str]
    classes: tuple[str, ...]
    labels: Tensor | None
    split: Tensor | None
    identity: str
    image: Callable[[int], Image.Image]
    left_out: int = 0

    def read(self, row: int, preparation: Preparation) -> NDArray[np.uint8]:
        """[3, size, size]"""
        return pixels(preparation.apply(self.image(row)))


def images_to_embed(data: str, root: Path | None = None, skip_bad: bool = False) -> EmbeddedImages:
    """All images of folder:PATH or of a published set. A folder without folders holds images without labels."""
    if data.startswith(FEATURES):
        raise DataError(f"{data} are features already; name images.")
    return _of_folder(folder_path(data), skip_bad) if data.startswith(FOLDER) else _of_published(data, root)


def _of_folder(path: Path, skip_bad: bool) -> EmbeddedImages:
    if not path.is_dir():
        raise missing_folder(path, "name a folder of images, with a folder for each class if they have classes")
    split = is_split(path)
    has_classes = split or any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir())
    if not has_classes:
        files, skipped = readable_files(list(image_files([path])), CHANNELS, skip_bad)
        return _of_files(path, files, (), None, None, len(skipped))
    files, labels, for_test, left_out = [], [], [], 0
    classes: tuple[str, ...] = ()
    for part in [each for each in SPLITS if each == "train" or not split or (path / each).is_dir()]:
        found = split_files(path, part)
        classes = found.classes
        for name, candidates in found.files_of_class.items():
            good, bad = readable_files(candidates, CHANNELS, skip_bad)
            files += good
            labels += [classes.index(name)] * len(good)
            for_test += [part == "test"] * len(good)
            left_out += len(bad)
    return _of_files(path, files, classes, torch.tensor(labels), torch.tensor(for_test) if split else None, left_out)


def _of_files(
    path: Path, files: list[Path], classes: tuple[str, ...], labels: Tensor | None, split: Tensor | None, left_out: int
) -> EmbeddedImages:
    if not files:
        raise DataError(f"{path} holds no readable image; name a folder of images.")
    names = [file.relative_to(path).as_posix() for file in files]
    status = [file.stat() for file in files]
    facts = [f"{name}\n{each.st_size}\n{each.st_mtime_ns}" for name, each in zip(names, status, strict=True)]

    def image(row: int) -> Image.Image:
        try:
            return decode_image(files[row], CHANNELS)
        except ImageError as error:
            raise DataError(
                f"{files[row]} cannot be used ({error}); repair or remove it, or leave such files out with --skip-bad."
            ) from error

    texts = [name.encode(errors="surrogateescape").decode(errors="replace") for name in names]
    return EmbeddedImages(texts, classes, labels, split, "\n".join(facts), image, left_out)


def _of_published(name: str, root: Path | None) -> EmbeddedImages:
    """Both splits, where the set has both; rows are named by split and number."""
    info = dataset_info(name)
    present = [split for split in info.splits if split in info.present(root or default_root())]
    parts = {split: load(name, split, root) for split in present or info.splits}
    first = next(iter(parts.values()))
    names = [f"{split}/{row}" for split, images in parts.items() for row in range(len(images.labels))]
    sets = [(images, row) for images in parts.values() for row in range(len(images.labels))]

    def image(row: int) -> Image.Image:
        images, own = sets[row]
        values = images.read(torch.tensor([own]))[0].permute(1, 2, 0).numpy()
        return Image.fromarray(values.squeeze(2) if values.shape[2] == 1 else values).convert("RGB")

    for_test = torch.tensor([split == "test" for split, images in parts.items() for _ in range(len(images.labels))])
    labels = torch.cat([images.labels for images in parts.values()])
    return EmbeddedImages(names, first.classes, labels, for_test, f"{name} {len(names)}", image)
