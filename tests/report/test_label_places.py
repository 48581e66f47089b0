"""Names in a picture of dots: none lies on another, none leaves the picture, each is near its dots."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.transforms import Bbox

from dsui.report.figures.canvas import Drawing
from dsui.report.figures.embedding import EmbeddingPanel, embedding, embeddings

NAMES = tuple(f"a rather long name {number}" for number in range(20))


def boxes(drawing: Drawing) -> dict[str, Bbox]:
    drawing.figure.draw_without_rendering()  # lays it out
    return {text.get_text(): text.get_window_extent() for axes in drawing.figure.axes for text in axes.texts}


@pytest.mark.parametrize("spread", [0.0, 0.05, 1.0, 20.0])
def test_no_name_lies_on_another_or_leaves_the_picture_however_close_the_classes_are(spread: float) -> None:
    generator = np.random.default_rng(0)
    labels = torch.arange(400) % len(NAMES)
    centres = spread * generator.normal(size=(len(NAMES), 2))
    found = boxes(
        drawing := embedding("e", centres[labels.numpy()] + 0.1 * generator.normal(size=(400, 2)), labels, NAMES)
    )
    assert list(found) == list(NAMES)
    (axes,) = drawing.figure.axes
    picture = axes.get_window_extent()
    for box in found.values():
        assert box.x0 >= picture.x0 - 1
        assert box.x1 <= picture.x1 + 1
        assert box.y0 >= picture.y0 - 1
        assert box.y1 <= picture.y1 + 1
    for one, other in combinations(found.values(), 2):
        assert not one.overlaps(other)


def test_a_class_that_stands_alone_has_its_name_just_above_its_dots_and_a_moved_name_has_a_line() -> None:
    generator = np.random.default_rng(0)
    labels = torch.arange(40) % 2
    apart = np.array([[0.0, 0.0], [9.0, 9.0]])[labels.numpy()] + 0.2 * generator.normal(size=(40, 2))
    drawing = embedding("e", apart, labels, ("cat", "dog"))
    (axes,) = drawing.figure.axes
    for (name, box), own in zip(boxes(drawing).items(), (apart[::2], apart[1::2]), strict=True):
        dots = axes.transData.transform(own)
        assert dots[:, 0].min() - 20 < (box.x0 + box.x1) / 2 < dots[:, 0].max() + 20, name
        assert 0 < (box.y0 + box.y1) / 2 - dots[:, 1].mean() < 60, name
    assert len(axes.lines) == 0
    together = embedding("e", np.zeros((400, 2)), torch.arange(400) % len(NAMES), NAMES)
    assert len(together.figure.axes[0].lines) > 10


def test_panels_with_titles_keep_their_names_apart_too() -> None:
    places = np.random.default_rng(0).normal(size=(40, 2))
    panel = EmbeddingPanel(places, torch.arange(40) % 5, NAMES[:5], title="one")
    drawing = embeddings("e", [panel, panel._replace(title="two")], "Two.")
    drawing.figure.draw_without_rendering()
    for axes in drawing.figure.axes:
        found = [text.get_window_extent() for text in axes.texts]
        assert len(found) == 5
        assert not any(one.overlaps(other) for one, other in combinations(found, 2))
        assert all(box.y1 < axes.title.get_window_extent().y1 for box in found)
