"""Compare a local data set with what its publisher states: number of images, shape, labels and channel means.

Files are also compared with the published checksums. A copy that was written anew, without loss, has another checksum
and the same images, so a checksum that differs is told and is no problem by itself.

There is nothing to compare a user's own `folder:PATH` with. There every image is decoded, and the report says what the
folder holds and which files cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from dsui.data.checksum import algorithm_of, checksum_of
from dsui.data.decode import read_header
from dsui.data.features import feature_set, has_test_rows
from dsui.data.folder import folder_set, is_split, readable_files, split_files
from dsui.data.passed_over import PassedOver, passed_over
from dsui.data.registry import FEATURES, FOLDER, SPLITS, dataset_info, default_root, folder_path, own_path
from dsui.data.unevenness import is_uneven, sentence, single_images
from dsui.errors import DataError
from dsui.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dsui.data.dataset import ImageSet
    from dsui.data.folder import SkippedFile
    from dsui.data.info import DatasetInfo, Split

MEAN_TOLERANCE = 1e-3
"""Published means have four digits (0.00005), and JPEG decoders differ in few pixels by one grey level (0.004). Red and
blue, which a wrong channel order swaps, differ by more than 0.01 in every colour set."""
BLOCK = 1024
ELONGATED = 2
"""Times as long as wide."""


@dataclass(frozen=True)
class SplitReport:
    """What one split holds. `problems` are clauses, none for a split as published.

    The files of a user's own folder differ in shape, so `sizes` and `modes` describe them: smallest and largest
    (width, height) by number of pixels, and Pillow's modes, such as L for grey. `elongated` counts those of which a
    square shows less than half.
    """

    split: str
    images: int = 0
    shape: tuple[int, int, int] | None = None
    means: tuple[float, ...] = ()
    per_class: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    sizes: tuple[tuple[int, int], tuple[int, int]] | None = None
    modes: tuple[str, ...] = ()
    elongated: int = 0
    unreadable: tuple[SkippedFile, ...] = ()

    @property
    def uneven(self) -> bool:
        """Whether its classes differ much in size, in the part that is trained on."""
        return self.split == "train" and is_uneven(self.per_class)


@dataclass(frozen=True)
class FileReport:
    """Whether a file, by its path below the root, has the published checksum, by an algorithm such as SHA-256."""

    path: str
    algorithm: str
    as_published: bool


@dataclass(frozen=True)
class Report:
    """What all splits of a data set hold; `absent` are the splits without any file."""

    name: str
    splits: tuple[SplitReport, ...]
    absent: tuple[str, ...]
    files: tuple[FileReport, ...] = ()
    remarks: tuple[str, ...] = ()
    """Sentences on what a user may want to change, though the data can be used."""
    passed_over: tuple[PassedOver, ...] = ()
    """What lies in a folder and is no part of the data set."""

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(f"{split.split}: {problem}" for split in self.splits for problem in split.problems)

    @property
    def unreadable(self) -> tuple[SkippedFile, ...]:
        """The files that prevent training, because they were not to be skipped."""
        return tuple(file for split in self.splits for file in split.unreadable)


def check(name: str, root: Path | None = None, skip_bad: bool = False, progress: Progress = silent) -> Report:
    """The state of every split found below `root`. DataError when there is none."""
    if name.startswith(FEATURES):
        return _check_features(name)
    if name.startswith(FOLDER):
        return _check_folder(name, skip_bad, progress)
    dataset, root = dataset_info(name), root or default_root()
    present = dataset.present(root)
    if not present:
        raise DataError(f"{name} is not below {root}; run `dsui data get {name}`, or name its folder with --root.")
    absent = tuple(split for split in dataset.splits if split not in present)
    splits = tuple(_check_split(dataset, split, root, progress) for split in present)
    return Report(name, splits, absent, tuple(_check_files(dataset, root, progress)))


def _check_files(dataset: DatasetInfo, root: Path, progress: Progress) -> Iterable[FileReport]:
    """The files of which a checksum is published, where they are as they were downloaded."""
    for file in dataset.files:
        for name, published in file.published.items():
            if (path := root / name).is_file():
                progress(path.name, 0, None)
                yield FileReport(name, algorithm_of(published), checksum_of(path, published) == published)


def _check_split(dataset: DatasetInfo, split: str, root: Path, progress: Progress) -> SplitReport:
    progress(f"{dataset.name} {split}", 0, None)
    try:
        images = dataset.load(root, split)
    except DataError as error:
        return SplitReport(split, problems=(str(error).removesuffix("."),))
    means = channel_means(images, f"{dataset.name} {split}", progress)
    problems = tuple(_differences(dataset, dataset.splits[split], images, means))
    return SplitReport(split, len(images.labels), images.shape, means, _per_class(images), problems)


def _differences(dataset: DatasetInfo, expected: Split, images: ImageSet, means: tuple[float, ...]) -> Iterable[str]:
    if len(images.labels) != expected.images:
        yield f"it holds {len(images.labels):,} images instead of {expected.images:,}"
    if images.shape != dataset.shape:
        yield f"its images are {images.shape} instead of {dataset.shape} (channels, height, width)"
    if len(images.classes) != dataset.classes:
        yield f"it names {len(images.classes)} classes instead of {dataset.classes}"
    if empty := [name for name, count in _per_class(images).items() if count == 0]:
        yield f"it has no image of {', '.join(empty)}"
    if any(abs(mean - right) > MEAN_TOLERANCE for mean, right in zip(means, expected.means, strict=False)):
        found, right = (", ".join(f"{value:.4f}" for value in values) for values in (means, expected.means))
        yield f"its channel means are {found} instead of {right}"


def _check_folder(name: str, skip_bad: bool, progress: Progress) -> Report:
    path = folder_path(name)
    present = tuple(split for split in SPLITS if split == "train" or not is_split(path) or (path / split).exists())
    reports = tuple(_check_folder_split(path, split, skip_bad, progress) for split in present)
    absent = tuple(split for split in SPLITS if split not in present)
    return Report(name, reports, absent, remarks=_remarks(reports[0]), passed_over=tuple(passed_over(path)))


def _remarks(train: SplitReport) -> tuple[str, ...]:
    """On the classes of a user's own training images and their shapes, as far as all could be read."""
    if train.problems:
        return ()
    one = f"There is one class, {next(iter(train.per_class))}; a classifier needs two or more."
    cut = (
        f"Of {train.elongated:,} of {train.images:,} training images the central square shows less than half; with "
        "--fit letterbox all of an image is seen."
    )
    found = (
        one if len(train.per_class) == 1 else None,
        sentence(train.per_class),
        single_images(train.per_class),
        cut if train.elongated else None,
    )
    return tuple(filter(None, found))


def _check_features(name: str) -> Report:
    """The features of a file; what would make it useless is an error."""
    path = own_path(name)
    present = tuple(split for split in SPLITS if split == "train" or has_test_rows(path))
    found = {split: feature_set(path, split) for split in present}
    splits = [
        SplitReport(split, len(each.labels), each.shape, per_class=_per_class(each)) for split, each in found.items()
    ]
    absent = tuple(split for split in SPLITS if split not in present)
    return Report(name, tuple(splits), absent, remarks=_remarks(splits[0]))


def _check_folder_split(path: Path, split: str, skip_bad: bool, progress: Progress) -> SplitReport:
    progress(split, 0, None)
    if not skip_bad:
        files = [file for files in split_files(path, split).files_of_class.values() for file in files]
        good, bad = readable_files(files, channels=3, skip_bad=True)
        if bad:
            problem = f"{len(bad):,} of {len(files):,} files cannot be read"
            return SplitReport(split, len(good), problems=(problem,), unreadable=tuple(bad))
    images = folder_set(path, split, skip_bad=skip_bad)
    headers = [read_header(file) for file in images.files]
    sizes = sorted((head.size for head in headers), key=lambda size: (size[0] * size[1], size))
    return SplitReport(
        split,
        len(images.files),
        means=channel_means(images, split, progress),
        per_class=_per_class(images),
        skipped=images.skipped,
        sizes=(sizes[0], sizes[-1]),
        modes=tuple(sorted({head.mode for head in headers})),
        elongated=sum(max(size) > ELONGATED * min(size) for size in sizes),
    )


def channel_means(images: ImageSet, what: str = "", progress: Progress = silent) -> tuple[float, ...]:
    """The mean of each channel, with pixels in [0, 1]; exact, because the sum is one of integers."""
    total = torch.zeros(images.shape[0], dtype=torch.int64)
    count = len(images.labels)
    for start in range(0, count, BLOCK):
        progress(what, start, count)
        block = torch.arange(start, min(start + BLOCK, count))
        total += images.read(block).sum((0, 2, 3), dtype=torch.int64)
    progress(what, count, count)
    pixels = count * images.shape[1] * images.shape[2]
    return tuple((total.double() / (255 * pixels)).tolist())


def _per_class(images: ImageSet) -> dict[str, int]:
    counts = torch.bincount(images.labels, minlength=len(images.classes)).tolist()
    return dict(zip(images.classes, counts, strict=True))
