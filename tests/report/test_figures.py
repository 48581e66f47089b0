"""Figures by what they show: the numbers behind the lines, not the pixels."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dsui.errors import DsuiError
from dsui.evaluation.metrics import aupr, aurc, auroc
from dsui.evaluation.reliability import reliability_bins
from dsui.evaluation.results import ResultRow
from dsui.report.figures import canvas
from dsui.report.figures.canvas import BLUE, INK, SKY, Drawing, series_styles, to_inline, to_png, to_svg
from dsui.report.figures.components import component_usage
from dsui.report.figures.curves import POINTS, PRECISION_RECALL, RISK_COVERAGE, ROC, curves, thin_curve
from dsui.report.figures.distributions import distributions, fit_gaussian
from dsui.report.figures.embedding import embedding
from dsui.report.figures.method_panels import ATTACKS, MISCLASSIFICATION, PAIRS, panels
from dsui.report.figures.profile import densest, least_dense, profile
from dsui.report.figures.reliability import reliability
from dsui.report.figures.training import accuracies, losses
from dsui.report.tsne import evenly_spaced, tsne
from tests.support import result_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSES = ("cat", "dog", "ship")


def axes_of(drawing: Drawing) -> Axes:
    return drawing.figure.axes[0]


def drawn(drawing: Drawing) -> dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """x and y of the labelled lines."""
    found = [line for line in axes_of(drawing).lines if not str(line.get_label()).startswith("_")]
    return {str(line.get_label()): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in found}


def legend(drawing: Drawing) -> list[str]:
    return [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]


def values(seed: int, size: int = 200) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scores_and_marks(seed: int = 0, size: int = 400) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    marks = torch.rand(size, generator=generator) < 0.3
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    return (noise + marks).mul(4).round() / 4, marks  # rounded: with ties


# Figure 4


def test_a_fitted_gaussian_has_the_mean_and_deviation_of_its_values() -> None:
    sample = values(0)
    gaussian = fit_gaussian(sample)
    assert gaussian.mean == pytest.approx(np.mean(sample.numpy()), rel=1e-12)  # rounding of a sum
    assert gaussian.deviation == pytest.approx(np.std(sample.numpy(), ddof=1), rel=1e-12)  # likewise
    assert fit_gaussian(sample[:1]).deviation == 0


def test_every_class_and_the_foreign_set_are_drawn_as_their_gaussians() -> None:
    own = {name: 0.5 + values(place) / 2 for place, name in enumerate(CLASSES)}
    drawing = distributions("d", "largest probability", 1.0, own, ("svhn", values(9) / 2))
    lines = drawn(drawing)
    assert [*lines] == legend(drawing) == [*CLASSES, "svhn (foreign)"]
    for name, sample in {**own, "svhn (foreign)": values(9) / 2}.items():
        x, y = lines[name]
        mean, deviation = sample.mean().item(), sample.std().item()
        expected = np.exp(-((x - mean) ** 2) / (2 * deviation**2))
        assert np.allclose(y, expected, atol=1e-9)  # rounding of x, which lies within 4 deviations
        assert (x.min(), x.max()) == pytest.approx((mean - 4 * deviation, mean + 4 * deviation))
    assert f"svhn has mean {(values(9) / 2).mean():.3g}" in drawing.description


def test_many_classes_share_a_line_of_the_legend_and_equal_values_are_a_spike() -> None:
    own = {str(place): values(place) for place in range(40)}
    assert legend(distributions("d", "entropy", 1.0, own)) == ["40 classes"]
    x, y = drawn(distributions("d", "entropy", 1.0, {"sure": torch.full((5,), 0.25)}))["sure"]
    assert (x.tolist(), y.tolist()) == ([0.25, 0.25], [0, 1])


# Curves


def test_the_area_under_a_drawn_curve_is_the_metric() -> None:
    scores, marks = scores_and_marks()
    for kind, metric in ((ROC, auroc), (PRECISION_RECALL, aupr)):
        (label, (x, y)), *_ = drawn(curves("c", kind, {"Max.P.": scores}, marks, "errors", "others")).items()
        area = np.trapezoid(y, x) if kind is ROC else (np.diff(x) * y[1:]).sum()
        assert area == pytest.approx(metric(scores, marks), abs=1e-12)  # sums of 400 terms
        assert label == f"Max.P. {100 * metric(scores, marks):.2f}"
    _, risks = thin_curve(*RISK_COVERAGE.curve(scores, marks), points=len(scores))
    assert risks.mean() == pytest.approx(aurc(scores, marks), abs=1e-12)  # likewise
    label = next(iter(drawn(curves("c", RISK_COVERAGE, {"Ent.": scores}, marks, "errors", "others"))))
    assert label == f"Ent. {1000 * aurc(scores, marks):.2f}"


def test_a_long_curve_is_drawn_with_few_points_and_nearly_the_same_area() -> None:
    generator = torch.Generator().manual_seed(1)
    marks = torch.rand(20_000, generator=generator) < 0.5
    scores = torch.randn(20_000, generator=generator) + marks
    drawing = curves("c", ROC, {"energy": scores}, marks, "foreign images", "in-domain images")
    ((x, y),) = drawn(drawing).values()
    assert len(x) <= POINTS
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(auroc(scores, marks), abs=0.003)  # chords of 2/300 of the length


def test_the_base_rate_is_a_line_below_the_precision_and_a_figure_in_its_caption() -> None:
    scores, marks = torch.rand(26_332, generator=torch.Generator().manual_seed(0)), torch.arange(26_332) >= 300
    drawing = curves("c", PRECISION_RECALL, {"Ent.": scores}, marks, "foreign images", "in-domain images")
    (base,) = [line for line in axes_of(drawing).lines if line.get_color() == canvas.FAINT]
    assert np.asarray(base.get_ydata()).tolist() == pytest.approx([26_032 / 26_332] * 2)
    assert "The faint line is chance: 98.9 %, the share of foreign images among all images" in drawing.caption
    assert base.get_zorder() < min(line.get_zorder() for line in axes_of(drawing).lines if line is not base)
    assert "chance" not in curves("c", RISK_COVERAGE, {"Ent.": scores}, marks, "errors", "others").caption


def test_scores_differ_by_more_than_colour() -> None:
    scores, marks = scores_and_marks()
    drawing = curves("c", ROC, {str(place): scores for place in range(6)}, marks, "errors", "others")
    styles = [(line.get_color(), str(line.get_linestyle()), line._dash_pattern) for line in axes_of(drawing).lines[:6]]  # type: ignore[attr-defined]
    assert len({str(dashes) for _, _, dashes in styles[:5]}) == 5
    assert len({color for color, _, _ in styles}) == 6


# Figures 3, 5 and 6

ROW = replace(
    result_row.ROW,
    method="msp",
    objective=None,
    data="digits",
    backbone="small",
    recipe="demo",
    task="misclassification",
    foreign=None,
    score="max_probability",
)
FIGURES = {"msp": (0.80, 0.86), "dsui": (0.90, 0.91)}


def rows(task: str, foreign: str | float | None = None, shift: float = 0.0, **changes: Any) -> list[ResultRow]:
    return [
        replace(
            ROW,
            run=f"{method}-{seed}",
            method=method,
            seed=seed,
            task=task,
            foreign=foreign,
            score=score,
            metrics={"auroc": figure + shift, "aupr": figure / 2},
            **changes,
        )
        for method, figures in FIGURES.items()
        for seed, figure in enumerate(figures)
        for score in ("max_probability", "entropy")
    ]


def bars(drawing: Drawing) -> dict[str, tuple[list[float], list[float], str]]:
    """Mean, deviation and line style of each method: of lines along y, of dots along x."""
    found = {}
    for container in axes_of(drawing).containers:
        line, _, (segments,) = container
        along = 0 if line.get_linestyle() == "None" else 1
        ends = np.array([segment[:, along] for segment in segments.get_segments()])
        found[str(container.get_label())] = (
            [float(value) for value in line.get_data()[along]],
            ((ends[:, 1] - ends[:, 0]) / 2).tolist(),
            line.get_linestyle(),
        )
    return found


def test_lines_over_attacks_show_means_and_deviations_over_runs_and_dsui_dashed() -> None:
    four = panels([*rows("fgsm", 0.1), *rows("fgsm", 0.2, shift=0.05)], ATTACKS)
    assert [drawing.name for drawing, _ in four] == [
        f"fgsm-{metric}-{score}" for metric in ("auroc", "aupr") for score in ("max-probability", "entropy")
    ]
    shown = bars(four[0][0])
    for method, figures in FIGURES.items():
        mean, deviation, style = shown[method]
        assert mean == pytest.approx([100 * np.mean(figures), 100 * np.mean(figures) + 5])
        assert deviation == pytest.approx([100 * np.std(figures, ddof=1)] * 2)
        assert style == ("--" if method == "dsui" else "-")
    assert "dsui 90.5 at 0.1, 95.5 at 0.2" in four[0][0].description


def test_data_sets_have_no_order_so_their_figures_are_dots_with_bars_and_no_line_joins_them() -> None:
    (first, _), *_ = panels(
        [*rows("misclassification"), *rows("misclassification", shift=0.05, data="svhn")], MISCLASSIFICATION
    )
    for method, (mean, deviation, style) in bars(first).items():
        assert mean == pytest.approx([100 * np.mean(FIGURES[method]), 100 * np.mean(FIGURES[method]) + 5])
        assert deviation == pytest.approx([100 * np.std(FIGURES[method], ddof=1)] * 2)
        assert style == "None"
    assert [label.get_text() for label in axes_of(first).get_yticklabels()] == ["digits, small", "svhn, small"]
    assert "dsui 90.5 at digits, small, 95.5 at svhn, small" in first.description
    assert "its bar their standard deviation" in first.reading


def test_no_two_dots_of_a_row_share_their_height_and_each_is_nearest_to_its_name() -> None:
    both = [*rows("ood", "photos"), *rows("noise", "noise", 0.02)]
    only = [row for row in rows("open-set", "unknown") if row.method == "msp"]
    (first, _), *_ = panels([*both, *only], PAIRS)
    heights = {str(each.get_label()): each[0].get_ydata() for each in axes_of(first).containers}
    assert [len(found) for found in heights.values()] == [3, 2], "dsui has no figure of unknown classes"
    assert len({height for found in heights.values() for height in found}) == 5
    names = np.asarray(axes_of(first).get_yticks())
    for found in heights.values():
        assert [int(np.abs(names - height).argmin()) for height in found] == list(range(len(found)))


def test_a_single_run_is_a_dot_without_a_bar() -> None:
    one = [row for row in (*rows("ood", "photos"), *rows("noise", "noise")) if row.seed == 0]
    (first, _), *_ = panels(one, PAIRS)
    segments = [each[2][0].get_segments() for each in axes_of(first).containers]
    assert [len(segment) for found in segments for segment in found] == [0, 0, 0, 0]


def test_no_axis_promises_more_than_100_per_cent_where_a_deviation_goes_beyond() -> None:
    (first, _), *_ = panels([*rows("fgsm", 0.1), *rows("fgsm", 0.2, shift=0.14)], ATTACKS)  # 97 % with a bar of 4.2
    (dots, _), *_ = panels([*rows("ood", "photos"), *rows("noise", "noise", shift=0.14)], PAIRS)
    for drawing, (low, high) in ((first, axes_of(first).get_ylim()), (dots, axes_of(dots).get_xlim())):
        assert max(mean[1] + deviation[1] for mean, deviation, _ in bars(drawing).values()) > 101
        assert high == 101
        assert low < 80
    (below, _), *_ = panels([*rows("fgsm", 0.1), *rows("fgsm", 0.2)], ATTACKS)
    assert axes_of(below).get_ylim()[1] < 93


def test_a_method_that_is_better_everywhere_has_the_higher_line_everywhere() -> None:
    (first, _), *_ = panels([*rows("fgsm", 0.1), *rows("fgsm", 0.2, shift=-0.5)], ATTACKS)
    lines = {str(each.get_label()): np.asarray(each[0].get_data(), np.float64) for each in axes_of(first).containers}
    (places, better), (others, worse) = lines["dsui"], lines["msp"]
    assert np.array_equal(places, others), "moved sideways, lines would cross between their points"
    assert (better > worse).all()


def test_pairs_stand_in_order_and_attacks_by_their_strength() -> None:
    both = [*rows("ood", "photos"), *rows("noise", "noise", 0.02), *rows("open-set", "unknown")]
    (first, table), *_ = panels(both, PAIRS)
    ticks = [label.get_text().replace("\n", " ") for label in axes_of(first).get_yticklabels()]
    assert ticks == ["photos", "noise", "unknown classes"], "the one data set is in the caption"
    assert "digits against other images" in first.caption
    (pairs, _), *_ = panels([*both, *rows("ood", "photos", data="svhn")], PAIRS)
    assert "svhn → photos" in [label.get_text() for label in axes_of(pairs).get_yticklabels()]
    assert bars(first)["msp"][0] == pytest.approx([83, 85, 83])
    assert [cell.mean for cell in table.lines[0].cells] == pytest.approx([0.83, 0.85, 0.83])
    attacked = [row for epsilon in (1.0, 2 / 255, 0.5) for row in rows("fgsm", epsilon, -epsilon / 10)]
    (first, _), *_ = panels(attacked, ATTACKS)
    line = axes_of(first).containers[0][0]
    assert np.asarray(line.get_xdata()).tolist() == [2 / 255, 0.5, 1.0]
    assert "ε" in axes_of(first).get_xlabel()
    assert axes_of(first).get_xscale() == "log", "the weak attack is seen apart from nothing"
    assert [label.get_text() for label in axes_of(first).get_xticklabels()] == ["0.01", "0.03", "0.1", "0.3", "1"]
    (strong, _), *_ = panels([row for row in attacked if row.foreign != 2 / 255], ATTACKS)
    assert axes_of(strong).get_xscale() == "linear"
    (none, _), *_ = panels([*attacked, *rows("fgsm", 0.0)], ATTACKS)
    assert axes_of(none).get_xscale() == "linear", "no attack at all has no place on a logarithmic axis"


def test_of_attacks_it_is_drawn_how_many_images_are_still_right() -> None:
    right = {0.1: 0.5, 0.3: 0.25}
    attacked = [row for size in right for row in rows("fgsm", size)]
    still = [
        replace(row, score="prediction", metrics={"accuracy": right[float(row.foreign or 0)]})
        for row in attacked
        if row.score == "entropy"
    ]
    *paper, (last, table) = panels([*attacked, *still], ATTACKS)
    assert len(paper) == 4
    assert (last.name, last.caption) == ("fgsm-accuracy-prediction", "Accuracy of the prediction.")
    assert [cell.mean for cell in table.lines[0].cells] == [0.5, 0.25]


def test_a_single_line_of_dsui_is_ink_and_several_are_told_apart() -> None:
    def colors(*methods: str) -> dict[str, str]:
        two = [*rows("ood", "photos"), *rows("noise", "noise")]
        rows_of_methods = [replace(row, method=method) for row in two if row.method == "dsui" for method in methods]
        (first, _), *_ = panels(rows_of_methods, PAIRS)
        return {str(each.get_label()): str(each[0].get_color()) for each in axes_of(first).containers}

    one = colors("dsui", "msp", "rkl")
    assert one["dsui"] == INK
    assert one["msp"] == next(series_styles()).color
    assert len(set(one.values())) == 3
    assert len(set(colors("dsui", "dsui K1", "msp").values())) == 3


def test_a_single_place_is_no_figure_and_attacked_sets_are_drawn_apart() -> None:
    assert panels(rows("misclassification"), MISCLASSIFICATION) == [], "two methods on one data set are no line"
    nowhere = [replace(row, metrics={"auroc": float("nan"), "aupr": 0.5}) for row in rows("noise", "noise")]
    there = [drawing.name for drawing, _ in panels([*rows("ood", "photos"), *nowhere], PAIRS)]
    assert there == ["pairs-aupr-max-probability", "pairs-aupr-entropy"], "noise has no AUROC"
    assert panels(rows("ood", "photos"), ATTACKS) == []
    attacked = [row for data in ("digits", "svhn") for size in (0.1, 0.3) for row in rows("fgsm", size, data=data)]
    names = [drawing.name for drawing, _ in panels(attacked, ATTACKS)]
    assert len(set(names)) == len(names) == 8


def test_a_line_has_a_gap_where_its_method_has_no_figure() -> None:
    everywhere = [row for size in (0.1, 0.2, 0.3) for row in rows("fgsm", size)]
    partly = [row for row in everywhere if not (row.method == "msp" and row.foreign == 0.2)]
    (first, _), *_ = panels(partly, ATTACKS)
    lines = {each.get_label(): each[0] for each in axes_of(first).containers}
    assert {name: np.asarray(line.get_xdata()).tolist() for name, line in lines.items()} == {
        "msp": [0.1, 0.2, 0.3],
        "dsui": [0.1, 0.2, 0.3],
    }
    gaps = {name: np.isnan(np.asarray(line.get_ydata(), np.float64)).tolist() for name, line in lines.items()}
    assert gaps == {"msp": [False, True, False], "dsui": [False] * 3}
    assert "msp 83.0 at 0.1, 83.0 at 0.3" in first.description


def test_a_method_without_any_figure_is_not_drawn_and_others_keep_their_colours() -> None:
    whole = [row for size in (0.1, 0.3) for row in rows("fgsm", size)]
    broken = [
        replace(row, metrics={"auroc": float("nan"), "aupr": 0.5}) if row.method == "msp" else row for row in whole
    ]
    colours = []
    for measured in (whole, broken):
        (first, _), *_ = panels(measured, ATTACKS)
        colours.append({each.get_label(): each[0].get_color() for each in axes_of(first).containers})
    assert colours[1] == {"dsui": colours[0]["dsui"]}
    assert legend(first) == ["dsui"]
    assert "msp" not in first.description


# Figure 7


@given(images=st.integers(1, 5000), points=st.integers(1, 700))
@settings(deadline=None)
def test_an_even_choice_is_never_too_large_and_never_doubles_an_image(images: int, points: int) -> None:
    chosen = evenly_spaced(images, points)
    assert len(chosen) == min(images, points)
    assert chosen[0] == 0
    assert 1 <= images - int(chosen[-1]) <= -(-images // points), "the choice reaches the end"
    gaps = {after - before for before, after in pairwise(chosen.tolist())}
    assert min(gaps, default=1) >= 1
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


def test_t_sne_is_deterministic_and_keeps_neighbours() -> None:
    labels = torch.arange(90) % 3
    centres = 20 * torch.eye(3, 16)
    features = centres[labels] + torch.randn(90, 16, generator=torch.Generator().manual_seed(0))
    places = tsne(features)
    assert places.shape == (90, 2)
    assert np.array_equal(places, tsne(features.clone()))
    distances = torch.cdist(torch.from_numpy(places), torch.from_numpy(places)).fill_diagonal_(float("inf"))
    assert bool((labels[distances.argmin(1)] == labels).all())


def test_few_images_can_be_placed_too() -> None:
    assert np.isfinite(tsne(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)))).all()


def test_images_that_are_all_alike_to_the_model_are_placed_and_drawn() -> None:
    places = tsne(torch.ones(9, 4))
    drawing = embedding("e", places, torch.arange(9) % 3, ("a\x07b", "\udcff", "c"))
    assert "a\ufffdb" in to_svg(drawing)
    to_inline(drawing)


def test_every_image_is_one_dot_of_its_class_and_foreign_ones_are_crosses() -> None:
    generator = np.random.default_rng(0)
    own, foreign = generator.normal(size=(30, 2)), generator.normal(size=(20, 2))
    labels = torch.arange(30) % 2  # no image of the third class
    drawing = embedding("e", own, labels, CLASSES, ("svhn", foreign))
    crosses, *dots = (np.asarray(patch.get_path().vertices).reshape(-1, 2, 2) for patch in axes_of(drawing).patches)
    assert [len(strokes) for strokes in dots] == [15, 15]
    assert np.allclose(dots[0].mean(1), own[::2])
    assert np.allclose(crosses.mean(1)[::2], foreign)
    assert [text.get_text() for text in axes_of(drawing).texts] == ["cat", "dog"]
    assert "30 in-domain images and 20 of svhn (crosses)" in drawing.caption


def test_every_dot_can_be_seen_in_the_picture() -> None:
    from scipy.ndimage import label

    grid = np.array([(x, y) for x in range(20) for y in range(20)], dtype=np.float64)
    names = [str(number) for number in range(30)]  # so many that none is written beside its dots
    picture = Image.open(io.BytesIO(to_png(embedding("e", grid, torch.zeros(400, dtype=torch.int64), names))))
    assert label(np.asarray(picture.convert("L")) < 128)[1] == 400


# Figure 2, right


@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_the_profile_is_of_the_densest_correct_and_the_least_dense_foreign_image(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_joint = 500 * torch.randn(40, 3, generator=generator, dtype=torch.float64)
    correct = torch.rand(40, generator=generator) < 0.5
    density = np.logaddexp.reduce(log_joint.numpy(), axis=1)
    right = np.flatnonzero(correct.numpy()) if bool(correct.any()) else np.arange(40)
    assert densest(log_joint, correct) == right[density[right].argmax()]
    assert least_dense(log_joint) == density.argmin()


def test_without_a_correct_image_the_densest_of_all_is_shown() -> None:
    log_joint = torch.tensor([[0.0, 1.0], [5.0, 2.0]])
    assert densest(log_joint, torch.zeros(2, dtype=torch.bool)) == 1


def test_the_profile_draws_both_images_over_all_classes() -> None:
    normal, abnormal = torch.tensor([-90.0, -10, -95]), torch.tensor([-100.0, -99, -98])
    drawing = profile("p", CLASSES, normal, abnormal, "svhn")
    assert {name: x.tolist() for name, (x, _) in drawn(drawing).items()} == {
        "in-domain image": normal.tolist(),
        "image of svhn": abnormal.tolist(),
    }
    assert [label.get_text() for label in axes_of(drawing).get_yticklabels()] == [*CLASSES]
    assert "densest in dog at -10 nats" in drawing.description.lower()


# Reliability, components, training


def test_the_reliability_diagram_shows_the_bins_that_have_images() -> None:
    confidence, correct = 0.5 + values(3) / 2, values(4) < values(3)  # nothing below 0.5
    drawing = reliability("r", confidence, correct)
    bins = reliability_bins(confidence, correct)
    there = bins.samples > 0
    points = axes_of(drawing).lines[1]
    assert np.allclose(np.asarray(points.get_xdata()), bins.confidence[there])
    assert np.allclose(np.asarray(points.get_ydata()), bins.accuracy[there])
    heights = [bar.get_height() for bar in drawing.figure.axes[1].patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx((bins.samples / len(confidence)).tolist())


def test_component_shares_are_sorted_within_each_class() -> None:
    shares = torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.0, 1.0, 0.0]])
    drawing = component_usage("c", shares, CLASSES)
    image = np.asarray(axes_of(drawing).images[0].get_array())
    assert np.allclose(image, -np.sort(-shares.numpy(), axis=1))
    assert "holds 40% to 100% of its class; in effect 1.0 to 3.0 are used" in drawing.description


LOG = [
    {
        "epoch": 0,
        "step": 5,
        "loss": 3.0,
        "cross_entropy": 2.0,
        "dual": 1.0,
        "accuracy": 0.5,
        "seconds": 1.0,
        "scale": 0.1,
    },
    {
        "epoch": 1,
        "step": 9,
        "loss": 0.2,
        "cross_entropy": 0.1,
        "dual": 0.1,
        "accuracy": 0.9,
        "seconds": 1.0,
        "scale": 0.2,
    },
]


def test_training_curves_are_the_log() -> None:
    lines = drawn(losses("l", LOG))
    assert {name: y.tolist() for name, (_, y) in lines.items()} == {
        "loss": [3.0, 0.2],
        "cross entropy": [2.0, 0.1],
        "dual": [1.0, 0.1],
    }
    assert lines["loss"][0].tolist() == [1, 2]
    assert axes_of(losses("l", LOG)).get_yscale() == "log"
    negative = [row | {"dual": -1.0} for row in LOG]
    assert axes_of(losses("l", negative)).get_yscale() == "linear"
    accuracy = axes_of(accuracies("a", LOG)).lines[0]
    assert np.asarray(accuracy.get_ydata()).tolist() == [50, 90]


def test_a_loss_that_is_its_only_term_is_drawn_once_and_terms_may_begin_later() -> None:
    plain = [row | {"cross_entropy": row["loss"]} for row in LOG]
    assert [*drawn(losses("l", plain))] == ["loss", "dual"]
    warm = [{key: value for key, value in LOG[0].items() if key != "dual"}, LOG[1]]
    assert drawn(losses("l", warm))["dual"][0].tolist() == [2]


# The canvas


def example(name: str = "example", label: str = "a line") -> Drawing:
    return curves(name, ROC, {label: scores_and_marks()[0]}, scores_and_marks()[1], "errors", "others")


def test_the_first_thirty_pens_are_all_different() -> None:
    assert len({(pen.color, pen.dashes) for pen in islice(series_styles(), 30)}) == 30


def test_colours_stand_out_from_white() -> None:
    def luminance(color: str) -> float:
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for pen in islice(series_styles(), 6):
        assert 1.05 / (luminance(pen.color) + 0.05) >= 3, f"{pen.color} has less contrast than WCAG asks of graphics"


def test_the_same_data_give_the_same_bytes() -> None:
    assert to_inline(example()) == to_inline(example())
    assert to_svg(example()) == to_svg(example())
    assert to_png(example()) == to_png(example())


def test_the_users_own_settings_neither_matter_nor_change() -> None:
    import matplotlib as mpl

    plain = to_inline(example())
    with mpl.rc_context({"font.size": 30, "xtick.major.size": 20, "svg.fonttype": "path"}):
        assert to_inline(example()) == plain
        assert mpl.rcParams["font.size"] == 30


def test_an_inline_figure_is_named_and_uses_nothing_but_the_page_and_itself() -> None:
    drawing = example()
    text = to_inline(drawing)
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{drawing.caption} {drawing.description}"
    assert "http" not in text
    assert not any(color in text.lower() for color in canvas.VARIABLES)
    names = {element.get("id") for element in root.iter()} - {None}
    referred = {
        name
        for element in root.iter()
        for value in element.attrib.values()
        for name in canvas._REFERENCE.findall(value)
    }
    assert referred == names
    assert referred, "clip paths and markers are referred to"
    assert all(str(name).startswith("example-") for name in names)
    words = [element.text for element in root.iter("text")]
    assert "errors flagged" in words, "text stays text"


def test_a_figure_of_its_own_is_drawn_in_plain_colours_on_white() -> None:
    text = to_svg(example())
    assert "var(" not in text
    assert canvas.PAPER in text
    assert to_png(example()).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["_hidden", "a$b$c", r"\alpha", "<b>&", "猫", "x" * 90])
def test_any_class_name_can_be_drawn(name: str) -> None:
    drawing = distributions("d", "entropy", 1.0, {name: values(0), "other": values(1)})
    assert len(legend(drawing)) == 2
    shown = [element.text or "" for element in ET.fromstring(to_inline(drawing)).iter("text")]  # noqa: S314 - our own
    assert any(text.strip()[:20] == name[:20] for text in shown)
    to_png(drawing)


def test_a_legend_stays_inside_its_figure() -> None:
    own = {f"class number {place}": values(place) for place in range(10)}
    drawing = distributions("d", "entropy", 1.0, own, ("tiny-imagenet", values(11)))
    to_png(drawing)  # lays it out
    box, figure = drawing.figure.legends[0].get_window_extent(), drawing.figure.bbox
    assert box.x0 >= figure.x0
    assert box.x1 <= figure.x1
    assert axes_of(drawing).get_window_extent().height > 0.5 * canvas.HEIGHT * drawing.figure.dpi


@pytest.mark.parametrize(("package", "draw"), [("matplotlib", example), ("openTSNE", lambda: tsne(torch.rand(9, 2)))])
def test_a_missing_package_is_one_sentence(package: str, draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DsuiError, match=rf"^figures and reports need {package}; run pip install {package}\.$"):
        draw()


def test_ten_classes_of_dots_have_ten_colours() -> None:
    places = np.random.default_rng(0).normal(size=(40, 2))
    drawing = embedding("e", places, torch.arange(40) % 10, tuple("0123456789"))
    assert len({patch.get_edgecolor() for patch in axes_of(drawing).patches}) == 10


def test_the_two_blues_are_not_drawn_with_the_same_dashes() -> None:
    first = list(islice(series_styles(), 5))
    assert [pen.dashes for pen in first if pen.color == BLUE] != [pen.dashes for pen in first if pen.color == SKY]
