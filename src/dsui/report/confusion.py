"""Which classes are taken for which: a table of all counts, or of many classes their accuracies and what is confused
most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dsui.report.tables import Column, Entry, Line, Table

MOST_CLASSES = 12
"""More than these make a table that nobody reads."""
LARGEST = 10
"""Confusions that are told of many classes."""
NEVER = "·"
"""So that the errors stand out among the pairs that are never confused."""
IMAGES, ACCURACY = "images", "accuracy"


def counts(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """[C, C]: how many images of class i are taken for class j; of [N] labels and predicted classes."""
    return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)


def confusion_table(classes: Sequence[str], confusions: Tensor) -> Table:
    """All of `confusions` [C, C], true classes by predicted ones."""
    columns = (*_class_columns(("",)), *(Column(("predicted class", name), decimals=0) for name in classes))
    lines = tuple(
        Line(name, (*_class_cells(row, label), *(_count(number) for number in row.tolist())))
        for label, (name, row) in enumerate(zip(classes, confusions, strict=True))
    )
    note = f"Images of each class by the class they are taken for; {NEVER} for none."
    return Table("Classes and what they are taken for", columns, lines, note, corner="class")


def accuracy_table(classes: Sequence[str], confusions: Tensor) -> Table:
    """Of each class, the worst first; last those without an image."""
    shares = (confusions.diagonal().double() / confusions.sum(1)).nan_to_num(nan=math.inf)
    lines = tuple(
        Line(classes[label], _class_cells(confusions[label], label)) for label in shares.argsort(stable=True).tolist()
    )
    return Table("Accuracy of each class, the worst first", _class_columns(()), lines, corner="class")


def largest_confusions_table(classes: Sequence[str], confusions: Tensor) -> Table | None:
    """The `LARGEST` pairs of classes by their number of images; None where nothing is confused."""
    errors = confusions - confusions.diagonal().diag()
    order = errors.flatten().argsort(descending=True, stable=True)[:LARGEST]
    pairs = [divmod(int(place), len(classes)) for place in order if errors.flatten()[place] > 0]
    if not pairs:
        return None
    columns = (
        Column(("taken for",)),
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
    note = f"The {len(pairs)} pairs with most images, of {int((errors > 0).sum())} that occur."
    return Table("Largest confusions", columns, lines, note, corner="class")


def _class_columns(above: tuple[str, ...]) -> tuple[Column, ...]:
    """`above`: further lines of their headers."""
    return Column((*above, IMAGES), decimals=0), Column((*above, ACCURACY), None, "%", 100, 1)


def _class_cells(row: Tensor, label: int) -> tuple[Entry, ...]:
    images = int(row.sum())
    return Entry(float(images)), Entry(float(row[label] / images) if images else None)


def _count(number: int) -> Entry:
    return Entry(float(number)) if number else Entry(text=NEVER)
