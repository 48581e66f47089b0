"""Class splits for open-set tests: some classes of a data set are known, the images of all others are foreign.

These have names, for the data sets on which their authors used them:

    neal-0 .. neal-4   6 known classes of 10 (Neal et al., ECCV 2018), for cifar10, svhn and mnist; stated as the four
                       unknown classes, so the known ones are in ascending order
    arpl-0 .. arpl-4   6 of 10 for cifar10 and svhn, 20 of 200 for tiny-imagenet (Chen et al., ARPL, TPAMI 2021;
                       "splits_2020" of Vaze et al., ICLR 2022); stated as the known classes, in this order

For cifar10 and for svhn, arpl-0 and arpl-1 hold the same classes in another order, so arpl is four splits there.
Any other split is a list of its known classes, by number ("0,2,5") or by name ("cat,dog").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dsui.data.dataset import ImageSet, subset
from dsui.errors import DataError
from dsui.excerpt import excerpt
from dsui.spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

NEAL_DATA = ("cifar10", "svhn", "mnist")
NEAL_UNKNOWN = ((3, 6, 7, 8), (1, 2, 4, 6), (2, 3, 4, 9), (0, 1, 2, 6), (4, 5, 6, 9))
ARPL_KNOWN = {
    "cifar10": ((0, 6, 4, 9, 1, 7), (7, 6, 4, 9, 0, 1), (1, 5, 7, 3, 9, 4), (8, 6, 1, 9, 0, 7), (2, 4, 1, 7, 9, 6)),
    "svhn": ((5, 3, 7, 2, 8, 6), (3, 8, 7, 6, 2, 5), (8, 9, 4, 7, 2, 1), (3, 8, 2, 5, 0, 6), (4, 9, 2, 7, 1, 0)),
    "tiny-imagenet": (
        (108, 147, 17, 58, 193, 123, 72, 144, 75, 167, 134, 14, 81, 171, 44, 197, 152, 66, 1, 133),
        (198, 161, 91, 59, 57, 134, 61, 184, 90, 35, 29, 23, 199, 38, 133, 19, 186, 18, 85, 67),
        (177, 0, 119, 26, 78, 80, 191, 46, 134, 92, 31, 152, 27, 60, 114, 50, 51, 133, 162, 93),
        (98, 36, 158, 177, 189, 157, 170, 191, 82, 196, 138, 166, 43, 13, 152, 11, 75, 174, 193, 190),
        (95, 6, 145, 153, 0, 143, 31, 23, 189, 81, 20, 21, 89, 26, 36, 170, 102, 177, 108, 169),
    ),
}


@dataclass(frozen=True)
class ClassSplit:
    """Known and unknown classes, as labels of the whole data set; the i-th known class is label i of the classifier."""

    name: str
    known: tuple[int, ...]
    unknown: tuple[int, ...]


def class_split(spec: str, images: ImageSet) -> ClassSplit:
    """The split of this data set that `spec` names, or whose known classes it lists."""
    named = _known_by_name(images.name)
    name = spec.strip()
    known = named[name] if name in named else _listed_labels(name, images, tuple(named))
    if len(set(known)) < len(known):
        raise DataError(f"The class split {excerpt(spec)} names a class twice; name every known class once.")
    count = len(images.classes)
    if max(known) >= count:
        raise DataError(f"{name} does not fit the {count} classes that {images.name} has here; list known classes.")
    if not 2 <= len(known) < count:
        raise DataError(
            f"The class split {excerpt(spec)} knows {len(known)} of {count} classes; choose 2 to {count - 1}."
        )
    return ClassSplit(name if name in named else ",".join(map(str, known)), known, _others(known, count))


def known_part(images: ImageSet, split: ClassSplit) -> ImageSet:
    """The images of the known classes, labelled 0..K-1 in the order of the split."""
    return _part(images, split, split.known, "known")


def unknown_part(images: ImageSet, split: ClassSplit) -> ImageSet:
    """The images of all other classes, labelled 0..U-1."""
    return _part(images, split, split.unknown, "unknown")


def _known_by_name(data: str) -> dict[str, tuple[int, ...]]:
    neal = [_others(unknown, 10) for unknown in NEAL_UNKNOWN] if data in NEAL_DATA else []
    lists = {"neal": neal, "arpl": ARPL_KNOWN.get(data, ())}
    return {f"{author}-{trial}": known for author in lists for trial, known in enumerate(lists[author])}


def _others(labels: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(label for label in range(count) if label not in labels)


def _listed_labels(spec: str, images: ImageSet, named: tuple[str, ...]) -> tuple[int, ...]:
    """The labels of the classes that `spec` lists; names come before numbers, since a class may be called 1."""
    items = [item.strip() for item in spec.split(",")]
    by_name = {name: label for label, name in enumerate(images.classes)}
    by_number = {str(label): label for label in by_name.values()}
    labels = by_name if all(item in by_name for item in items) else by_name | by_number
    if not (unknown := [item for item in items if item not in labels]):
        return tuple(labels[item] for item in items)
    candidates, kind = ([*named, *by_name], "class split") if len(items) == 1 else ([*by_name], "class")
    if suggestion := nearest(unknown[0], candidates):
        raise DataError(f"{images.name} has no {kind} {excerpt(unknown[0])}; did you mean {suggestion}?")
    choices = [*named, f"known classes by name or by number 0 to {len(by_name) - 1}, as in 0,2,5"]
    raise DataError(f"{images.name} has no {kind} {excerpt(unknown[0])}; choose {' or '.join(choices)}.")


def _part(images: ImageSet, split: ClassSplit, chosen: tuple[int, ...], part: str) -> ImageSet:
    count = len(split.known) + len(split.unknown)
    if count != len(images.classes):
        raise DataError(
            f"The class split {split.name} has {count} classes and {images.name} has {len(images.classes)}; "
            "make the split for this data set."
        )
    new_label = torch.full((count,), -1)
    new_label[list(chosen)] = torch.arange(len(chosen))
    labels = new_label[images.labels]
    indices = (labels >= 0).nonzero().flatten()
    name, classes = f"{images.name}:{split.name}:{part}", tuple(images.classes[label] for label in chosen)
    return subset(images, indices, name, classes, labels[indices])
