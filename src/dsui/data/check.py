"""Compare a local data set with what its publisher says: number of images, shape, labels and channel means.

For one's own `folder:PATH`, with nothing to compare it with, every image is decoded and the report tells what there is
and which files cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from dsui.data.decode import header
from dsui.data.folder import folder_set, is_split, sift, split_files
from dsui.data.registry import FOLDER, SPLITS, dataset_info, default_root, folder_path
from dsui.errors import DataError
from dsui.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dsui.data.dataset import ImageSet
    from dsui.data.folder import Skipped
    from dsui.data.info import DatasetInfo, Split

# Published means carry four digits (0.00005) and JPEG decoders differ on few pixels by one grey level (0.004), while
# red and blue, which a wrong channel order swaps, lie more than 0.01 apart in every colour set.
MEAN_TOLERANCE = 1e-3
BLOCK = 1024


@dataclass(frozen=True)
class SplitReport:
    """What one split holds; `problems` are clauses, none for a split as published.

    `sizes` and `modes` are those of one's own images on disk, which have no one shape: smallest and largest
    (width, height) by number of pixels, and Pillow's modes, such as L for grey.
    """

    split: str
    images: int = 0
    shape: tuple[int, int, int] | None = None
    means: tuple[float, ...] = ()
    per_class: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sizes: tuple[tuple[int, int], tuple[int, int]] | None = None
    modes: tuple[str, ...] = ()
    unreadable: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Report:
    """`absent` are the splits of which nothing was found."""

    name: str
    splits: tuple[SplitReport, ...]
    absent: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(f"{split.split}: {problem}" for split in self.splits for problem in split.problems)

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """The files that stand in the way of training, since they were not to be skipped."""
        return tuple(file for split in self.splits for file in split.unreadable)


def check(name: str, root: Path | None = None, skip_bad: bool = False, progress: Progress = silent) -> Report:
    """The state of every split found below `root`. DataError when there is none."""
    if name.startswith(FOLDER):
        return _check_folder(name, skip_bad, progress)
    entry, root = dataset_info(name), root or default_root()
    present = entry.present(root)
    if not present:
        raise DataError(f"{name} is not below {root}; run `dsui data get {name}`, or name its folder with --root.")
    absent = tuple(split for split in entry.splits if split not in present)
    return Report(name, tuple(_check_split(entry, split, root, progress) for split in present), absent)


def _check_split(entry: DatasetInfo, split: str, root: Path, progress: Progress) -> SplitReport:
    progress(f"{entry.name} {split}", 0, None)
    try:
        images = entry.load(root, split)
    except DataError as error:
        return SplitReport(split, problems=(str(error).removesuffix("."),))
    means = channel_means(images, f"{entry.name} {split}", progress)
    problems = tuple(_differences(entry, entry.splits[split], images, means))
    return SplitReport(split, len(images.labels), images.shape, means, _per_class(images), problems)


def _differences(entry: DatasetInfo, expected: Split, images: ImageSet, means: tuple[float, ...]) -> Iterable[str]:
    if len(images.labels) != expected.images:
        yield f"it holds {len(images.labels):,} images instead of {expected.images:,}"
    if images.shape != entry.shape:
        yield f"its images are {images.shape} instead of {entry.shape} (channels, height, width)"
    if len(images.classes) != entry.classes:
        yield f"it names {len(images.classes)} classes instead of {entry.classes}"
    if empty := [name for name, count in _per_class(images).items() if count == 0]:
        yield f"it has no image of {', '.join(empty)}"
    if any(abs(mean - right) > MEAN_TOLERANCE for mean, right in zip(means, expected.means, strict=False)):
        found, right = (", ".join(f"{value:.4f}" for value in values) for values in (means, expected.means))
        yield f"its channel means are {found} instead of {right}"


def _check_folder(name: str, skip_bad: bool, progress: Progress) -> Report:
    path = folder_path(name)
    present = tuple(split for split in SPLITS if split == "train" or not is_split(path) or (path / split).exists())
    reports = tuple(_check_own(path, split, skip_bad, progress) for split in present)
    return Report(name, reports, tuple(split for split in SPLITS if split not in present))


def _check_own(path: Path, split: str, skip_bad: bool, progress: Progress) -> SplitReport:
    progress(split, 0, None)
    if not skip_bad:
        files = [file for found in split_files(path, split).found.values() for file in found]
        good, bad = sift(files, channels=3, skip_bad=True)
        if bad:
            problem = f"{len(bad):,} of {len(files):,} files cannot be read"
            return SplitReport(split, len(good), problems=(problem,), unreadable=tuple(bad))
    images = folder_set(path, split, skip_bad=skip_bad)
    headers = [header(file) for file in images.files]
    sizes = sorted((head.size for head in headers), key=lambda size: (size[0] * size[1], size))
    return SplitReport(
        split,
        len(images.files),
        means=channel_means(images, split, progress),
        per_class=_per_class(images),
        skipped=images.skipped,
        sizes=(sizes[0], sizes[-1]),
        modes=tuple(sorted({head.mode for head in headers})),
    )


def channel_means(images: ImageSet, what: str = "", progress: Progress = silent) -> tuple[float, ...]:
    """The mean of each channel, pixels in [0, 1]; summed in integers, so exact."""
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
