"""Figures of several panels, as the paper draws them: the numbers behind the lines, not the pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dsui.evaluation.results import ResultRow
from dsui.report.columns import Figure, block_figures
from dsui.report.comparison_lines import with_mixtures
from dsui.report.figures.canvas import BLUE, INK, PAPER, Drawing, to_png, to_svg
from dsui.report.figures.distributions import FittedPanel, Gaussian, fitted_distributions
from dsui.report.figures.embedding import EmbeddingPanel, embeddings
from dsui.report.figures.method_panels import rows_in_four_panels
from tests.support.result_row import ROW

EPSILONS = (0.1, 0.2, 0.3)
CELLS = block_figures(
    "fgsm", [("cifar10", "resnet18", e) for e in EPSILONS], ("auroc", "aupr"), ("max_probability", "entropy")
)
METHODS = {"msp": 0.6, "dsui": 0.8}


def rows() -> list[ResultRow]:
    """Two runs of each; a measure is told from another by its figures."""
    shift = {"max_probability": 0.0, "entropy": 0.02, "density_max_probability": 0.1, "density_entropy": 0.12}
    found = [
        replace(
            ROW,
            method=method,
            objective=None,
            run=f"{method}-{seed}",
            seed=seed,
            task="fgsm",
            foreign=epsilon,
            score=score,
            metrics={"auroc": level + shift[score] + seed / 100, "aupr": level + shift[score] - epsilon},
        )
        for method, level in METHODS.items()
        for seed in range(2)
        for epsilon in EPSILONS
        for score in shift
        if method == "dsui" or not score.startswith("density")
    ]
    return list(with_mixtures(found))


def four(cells: list[Figure] = CELLS) -> Drawing:
    drawn = rows_in_four_panels("f", rows(), cells, ["msp", "dsui", "dsui, mixtures"], "Figure 6")
    assert drawn is not None
    return drawn[0]


def points(drawing: Drawing, panel: int) -> dict[str, list[float]]:
    return {str(each.get_label()): each[0].get_ydata().tolist() for each in drawing.figure.axes[panel].containers}


def test_four_panels_show_the_four_measures_of_every_line() -> None:
    drawing = four()
    panels = drawing.figure.axes
    assert [axes.get_title() for axes in panels] == [
        "AUROC of Max.P.",
        "AUROC of Ent.",
        "AUPR of Max.P.",
        "AUPR of Ent.",
    ]
    assert points(drawing, 0) == {
        "msp": pytest.approx([60.5] * 3),
        "dsui": pytest.approx([80.5] * 3),
        "dsui, mixtures": pytest.approx([90.5] * 3),
    }
    assert points(drawing, 3)["dsui, mixtures"] == pytest.approx([82, 72, 62])
    assert [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()] == [
        *points(drawing, 0)
    ]
    assert "AUPR of Ent.: msp 52.0 at 0.1, 42.0 at 0.2, 32.0 at 0.3;" in drawing.description


def test_the_mixtures_are_drawn_in_the_colour_of_their_method_with_dots_and_open_marks() -> None:
    lines = {str(each.get_label()): each[0] for each in four().figure.axes[0].containers}
    assert {name: line.get_color() for name, line in lines.items()} == {"msp": BLUE, "dsui": INK, "dsui, mixtures": INK}
    assert [line.get_linestyle() for line in lines.values()] == ["-", "--", ":"]
    assert [line.get_markerfacecolor() for line in lines.values()] == [BLUE, INK, PAPER]


def test_a_long_bar_does_not_squeeze_the_lines_of_a_panel() -> None:
    (lowest, _), *_ = (axes.get_ylim() for axes in four().figure.axes)
    wide = [
        replace(row, metrics={"auroc": row.seed * 1.0, "aupr": 0.5}) if row.method == "msp" else row for row in rows()
    ]
    drawn = rows_in_four_panels("f", wide, CELLS, ["msp", "dsui"], "Figure 6")
    assert drawn is not None
    bottom, _ = drawn[0].figure.axes[0].get_ylim()
    assert lowest > 54
    assert 50 - 0.25 * 40 - 2 < bottom < 50, "the bar of 71 points at 50 % leaves the panel"


def test_places_may_have_other_names_and_without_figures_nothing_is_drawn() -> None:
    pairs = [cell._replace(task="ood", foreign=name) for name in ("svhn", "photos") for cell in CELLS[:4]]
    drawn = rows_in_four_panels("f", [], pairs, [], "Figure 5", ["a → b", "a → c"])
    assert drawn is None
    of_pairs = [replace(row, task="ood", foreign="svhn" if row.foreign == 0.1 else "photos") for row in rows()]
    drawn = rows_in_four_panels("f", of_pairs, pairs, [], "Figure 5", ["a → b", "a → c"])
    assert drawn is not None
    assert [tick.get_text() for tick in drawn[0].figure.axes[2].get_yticklabels()] == ["a → b", "a → c"]
    assert rows_in_four_panels("f", rows(), CELLS[:-1], [], "one measure has a place less") is None


def test_fitted_distributions_are_the_gaussians_of_classes_and_foreign_sets() -> None:
    own = {"cat": Gaussian(0.9, 0.05), "dog": Gaussian(0.8, 0.0)}
    panel = FittedPanel("largest probability", 1.0, own, {"svhn": Gaussian(0.4, 0.1)})
    drawing = fitted_distributions("d", [panel, panel._replace(quantity="entropy", largest=2.0)], "Figure 4.")
    first, second = drawing.figure.axes
    lines = {str(line.get_label()): line for line in first.lines}
    assert list(lines) == ["cat", "dog", "svhn (foreign)"]
    x, y = (np.asarray(part, np.float64) for part in lines["cat"].get_data())
    assert np.allclose(y, np.exp(-(((x - 0.9) / 0.05) ** 2) / 2), atol=1e-9)  # rounding of x
    assert (first.get_xlim(), second.get_xlim()) == ((0, 1), (0, 2))
    assert "cat 0.9 ± 0.05, dog 0.8 ± 0, svhn 0.4 ± 0.1" in drawing.description
    assert len(drawing.figure.legends[0].get_texts()) == 3


def test_embeddings_stand_beside_each_other_below_their_titles() -> None:
    places = np.random.default_rng(0).normal(size=(20, 2))
    panel = EmbeddingPanel(places, torch.arange(20) % 2, ("cat", "dog"), title="msp")
    drawing = embeddings("e", [panel, panel._replace(title="dsui"), panel._replace(foreign=("svhn", places + 9))], "F.")
    assert [axes.get_title() for axes in drawing.figure.axes] == ["msp", "dsui", "msp"]
    assert "msp: 20 images; dsui: 20 images; msp: 20 images and 20 of svhn (crosses)" in drawing.description
    assert to_png(drawing).startswith(b"\x89PNG")
    assert "dog" in to_svg(drawing)
