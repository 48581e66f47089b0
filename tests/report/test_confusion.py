"""The confusion matrix is scikit-learn's; of many classes the largest confusions are listed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from torch import Tensor

from dsui.report.confusion import (
    LARGEST,
    NEVER,
    accuracy_table,
    confusion_matrix,
    confusion_table,
    largest_confusions_table,
)
from dsui.report.html_table import to_html
from dsui.report.tables import Table


def sample(seed: int, classes: int, images: int = 300) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=generator)
    right = torch.rand(images, generator=generator) < 0.7
    return labels, torch.where(right, labels, torch.randint(classes, (images,), generator=generator))


def names(classes: int) -> tuple[str, ...]:
    return tuple(f"class {label}" for label in range(classes))


def means(table: Table) -> list[tuple[str, list[float | None]]]:
    return [(line.label, [cell.mean for cell in line.cells]) for line in table.lines]


@given(seed=st.integers(0, 1000), classes=st.integers(2, 15))
@settings(deadline=None, max_examples=25)
def test_counts_are_those_of_scikit_learn(seed: int, classes: int) -> None:
    labels, predicted = sample(seed, classes)
    expected = metrics.confusion_matrix(labels, predicted, labels=range(classes))
    assert np.array_equal(confusion_matrix(labels, predicted, classes).numpy(), expected)


def test_the_table_has_images_and_accuracy_of_each_class_and_all_counts() -> None:
    table = confusion_table(names(3), torch.tensor([[8, 2, 0], [0, 5, 0], [0, 0, 0]]))
    assert means(table) == [
        ("class 0", [10, pytest.approx(0.8), 8, 2, None]),
        ("class 1", [5, 1.0, None, 5, None]),
        ("class 2", [0, None, None, None, None]),
    ]
    assert [column.lines for column in table.columns] == [
        ("", "images"),
        ("", "accuracy %"),
        *(("predicted class", name) for name in names(3)),
    ]
    html = to_html(table)
    assert f"<td>8</td><td>2</td><td>{NEVER}</td>" in html
    assert '<th scope="colgroup" colspan="3">predicted class</th>' in html
    assert '<th scope="row">class 2</th><td>0</td><td>-</td>' in html


def test_accuracies_of_many_classes_begin_with_the_worst_and_end_with_those_without_images() -> None:
    confusions = torch.diag(torch.tensor([4, 0, 3, 1]))
    confusions[2, 0] = confusions[3, 0] = 1
    assert means(accuracy_table(names(4), confusions)) == [
        ("class 3", [2, 0.5]),
        ("class 2", [4, 0.75]),
        ("class 0", [4, 1.0]),
        ("class 1", [0, None]),
    ]


@pytest.mark.parametrize("classes", [13, 100])
def test_the_largest_confusions_are_listed_in_order_with_their_share_of_the_class(classes: int) -> None:
    labels, predicted = sample(1, classes, 2000)
    table = largest_confusions_table(names(classes), confusion_matrix(labels, predicted, classes))
    assert table is not None
    expected = metrics.confusion_matrix(labels, predicted, labels=range(classes))
    np.fill_diagonal(expected, 0)
    assert [line.cells[1].mean for line in table.lines] == sorted(expected.flatten(), reverse=True)[:LARGEST]
    for line in table.lines:
        true, guess = names(classes).index(line.label), names(classes).index(line.cells[0].text)
        assert line.cells[1].mean == expected[true, guess]
        share = expected[true, guess] / int((labels == true).sum())
        assert line.cells[2].mean == pytest.approx(share, rel=1e-6)  # float32 against float64
    assert f"of {(expected > 0).sum()} confusions that occur" in table.note


def test_without_errors_there_is_no_confusion() -> None:
    right = torch.eye(3, dtype=torch.int64)
    assert largest_confusions_table(names(3), right) is None
    right[0, 2] = 4
    table = largest_confusions_table(names(3), right)
    assert table is not None
    assert len(table.lines) == 1
