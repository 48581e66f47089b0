"""Which classes are confused: the whole confusion matrix, or for many classes their accuracies and the largest
confusions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dsui.report.tables import Column, Entry, Line, Table

MOST_CLASSES = 12
"""With more classes the whole matrix is too large to read."""
LARGEST = 10
"""How many confusions are listed for many classes."""
NEVER = "·"
"""Stands for 0, so that the errors are easy to see."""
IMAGES, ACCURACY = "images", "accuracy"


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """[C, C]: how many images of class i are predicted as class j; from [N] labels and predicted classes."""
    return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)


def confusion_table(classes: Sequence[str], confusions: Tensor) -> Table:
    """All of `confusions` [C, C], true classes by predicted ones."""
    columns = (*_class_columns(("",)), *(Column(("predicted class", name), decimals=0) for name in classes))
    lines = tuple(
        Line(name, (*_class_cells(row, label), *(_count(number) for number in row.tolist())))
        for label, (name, row) in enumerate(zip(classes, confusions, strict=True))
    )
    note = f"Number of images, true classes by predicted ones; {NEVER} stands for none."
    return Table("Confusion matrix", columns, lines, note, corner="class")


def accuracy_table(classes: Sequence[str], confusions: Tensor) -> Table:
    """The accuracy of each class, the worst first; classes without an image come last."""
    shares = (confusions.diagonal().double() / confusions.sum(1)).nan_to_num(nan=math.inf)
    lines = tuple(
        Line(classes[label], _class_cells(confusions[label], label)) for label in shares.argsort(stable=True).tolist()
    )
    return Table("Accuracy of each class, the worst first", _class_columns(()), lines, corner="class")


def largest_confusions_table(classes: Sequence[str], confusions: Tensor) -> Table | None:
    """The `LARGEST` pairs of true and predicted class by their number of images; None where nothing is confused."""
    errors = confusions - confusions.diagonal().diag()
    order = errors.flatten().argsort(descending=True, stable=True)[:LARGEST]
    pairs = [divmod(int(place), len(classes)) for place in order if errors.flatten()[place] > 0]
    if not pairs:
        return None
    columns = (
        Column(("predicted as",)),
        Column((IMAGES,), decimals=0),
        Column(("share of the class",), None, "%", 100, 1),
    )
    lines = tuple(
        Line(
            classes[true],
            (
                Entry(text=classes[guess]),
                Entry(float(errors[true, guess])),
                Entry(float(errors[true, guess] / confusions[true].sum())),
            ),
        )
        for true, guess in pairs
    )
    note = f"The {len(pairs)} most frequent of {int((errors > 0).sum())} confusions that occur."
    return Table("Largest confusions", columns, lines, note, corner="class")


def _class_columns(above: tuple[str, ...]) -> tuple[Column, ...]:
    """`above`: the header lines over them."""
    return Column((*above, IMAGES), decimals=0), Column((*above, ACCURACY), None, "%", 100, 1)


def _class_cells(row: Tensor, label: int) -> tuple[Entry, ...]:
    images = int(row.sum())
    return Entry(float(images)), Entry(float(row[label] / images) if images else None)


def _count(number: int) -> Entry:
    return Entry(float(number)) if number else Entry(text=NEVER)
