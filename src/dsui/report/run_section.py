"""The part of a page about one run: scores, errors, foreign images, densities, features, single images, training."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from dsui.report.confusion import (
    MOST_CLASSES,
    accuracy_table,
    confusion_matrix,
    confusion_table,
    largest_confusions_table,
)
from dsui.report.figures.components import component_usage
from dsui.report.figures.curves import PRECISION_RECALL, RISK_COVERAGE, ROC, curves
from dsui.report.figures.distributions import distributions, probability_or_entropy
from dsui.report.figures.embedding import embedding
from dsui.report.figures.profile import densest, least_dense, profile
from dsui.report.figures.reliability import reliability
from dsui.report.figures.training import accuracies, losses
from dsui.report.html_table import to_html
from dsui.report.run_data import RunData, score_label
from dsui.report.run_table import run_table
from dsui.report.section import FoldedTable, Section
from dsui.report.thumbnails import highest, thumbnails
from dsui.report.tradeoff_section import tradeoff_section
from dsui.report.tsne import tsne
from dsui.runs.training_name import training_name
from dsui.score_table import DRAWN

FOREIGN_SCORES = ("log_density", "energy", "uncertainty")
"""The first of these that a run has ranks images by how foreign they are."""
PARTS = 7
"""How many sections a run has beside its scores."""
SMALLEST_EMBEDDING = 10
"""The features of fewer images are not drawn."""
STREAMS = {"": "", "density_": " of the density stream"}


def run_section(data: RunData, part_done: Callable[[], None] = lambda: None) -> Section:
    """`part_done` is called after each of `PARTS`."""
    config, own = data.facts.config, data.own
    sections = [_scores(data)]
    for build in (_errors, _foreign, _thresholds, _densities, _features, _images, _training):
        if (section := build(data)) is not None:
            sections.append(section)
        part_done()
    recipe = next((row.recipe for row in data.rows if row.method == config.method), training_name(config))
    summary = (
        f"{config.method} on {config.data}, backbone {config.backbone}, recipe {recipe}, "
        f"seed {config.seed}: {own.correct.double().mean().item():.2%} of {len(own.labels):,} in-domain images are "
        "classified correctly."
    )
    return Section(data.key, f"Run {data.name}", [summary], sections=sections)


def _scores(data: RunData) -> Section:
    rows = [row for row in data.rows if row.task != "fgsm" and row.method == data.facts.config.method]
    explanation = "Every score is an uncertainty: it should be larger for errors and foreign images than for others."
    return Section(f"{data.key}-scores", "All scores", [explanation], [to_html(run_table(rows))])


def _errors(data: RunData) -> Section:
    key, own = data.key, data.own
    confidence = own.logits.double().softmax(1).amax(1)
    calibration = reliability(f"{key}-reliability", confidence, own.correct)
    errors = ~own.correct
    section = Section(f"{key}-errors", "Its own errors", sections=[_classes(data)])
    if not bool(errors.any()):
        section.paragraphs.append("Every image is classified correctly, so there are no errors to find.")
        section.drawings.append(calibration)
        return section
    if not bool(own.correct.any()):
        section.paragraphs.append("No image is classified correctly, so there is nothing to tell errors from.")
        section.drawings.append(calibration)
        return section
    section.paragraphs.append(
        f"{int(errors.sum()):,} of {len(errors):,} images are misclassified. A good score is high for them."
    )
    drawn = {score_label(name): own.scores[name] for name in DRAWN if name in own.scores}
    for name, kind in (("risk-coverage", RISK_COVERAGE), ("roc", ROC), ("precision-recall", PRECISION_RECALL)):
        section.drawings.append(curves(f"{key}-errors-{name}", kind, drawn, errors, "errors", "correct predictions"))
    section.drawings.append(calibration)
    return section


def _classes(data: RunData) -> Section:
    """All confusions of a few classes; of many classes the largest ones, and the accuracies in a folded table."""
    own, classes = data.own, data.facts.classes
    section = Section(f"{data.key}-errors-classes", "Class by class")
    confusions = confusion_matrix(own.labels, own.logits.argmax(1), len(classes))
    if len(classes) <= MOST_CLASSES:
        section.tables.append(to_html(confusion_table(classes, confusions)))
        return section
    if (largest := largest_confusions_table(classes, confusions)) is not None:
        section.tables.append(to_html(largest))
    section.folded_tables.append(FoldedTable("Accuracy of each class", to_html(accuracy_table(classes, confusions))))
    return section


def _foreign(data: RunData) -> Section:
    key, own, foreign = data.key, data.own, data.foreign
    classes = data.facts.classes
    section = Section(
        f"{key}-foreign",
        f"Foreign images: {foreign.name}",
        [
            f"{len(foreign.labels):,} images of {foreign.name} against {len(own.labels):,} in-domain images. A good "
            "score is high for the foreign ones."
        ],
    )
    members = {name: own.labels == label for label, name in enumerate(classes) if bool((own.labels == label).any())}
    for prefix, stream in STREAMS.items():
        if f"{prefix}entropy" not in own.scores:
            continue
        for score, quantity, largest in (
            (f"{prefix}max_probability", f"largest probability{stream}", 1.0),
            (f"{prefix}entropy", f"entropy{stream} (nats)", math.log(len(classes))),
        ):
            ours, theirs = (probability_or_entropy(score, images.scores[score]) for images in (own, foreign))
            groups = {name: ours[marked] for name, marked in members.items()}
            name = f"{key}-distribution-{score.replace('_', '-')}"
            section.drawings.append(distributions(name, quantity, largest, groups, (foreign.name, theirs)))
    drawn = {
        score_label(name): torch.cat([own.scores[name], foreign.scores[name]]) for name in DRAWN if name in own.scores
    }
    positive = torch.arange(len(own.labels) + len(foreign.labels)) >= len(own.labels)
    for name, kind in (("roc", ROC), ("precision-recall", PRECISION_RECALL)):
        drawing = curves(f"{key}-foreign-{name}", kind, drawn, positive, "foreign images", "in-domain images")
        section.drawings.append(drawing)
    return section


def _thresholds(data: RunData) -> Section:
    return tradeoff_section(data.key, data.facts.path, data.tradeoff)


def _densities(data: RunData) -> Section | None:
    """None for a method that models no density."""
    key, own, foreign, classes = data.key, data.own, data.foreign, data.facts.classes
    section = Section(f"{key}-densities", "Class densities")
    if own.log_joint is not None and foreign.log_joint is not None:
        normal, abnormal = densest(own.log_joint, own.correct), least_dense(foreign.log_joint)
        drawing = profile(f"{key}-profile", classes, own.log_joint[normal], foreign.log_joint[abnormal], foreign.name)
        section.paragraphs.append("How densely the training images of each class lie where an image lies.")
        section.drawings.append(drawing)
        for images, index, is_foreign in ((own, normal, False), (foreign, abnormal, True)):
            if data.facts.config.on_features:
                continue
            section.images.extend(thumbnails(images, torch.tensor([index]), "log_density", classes, is_foreign))
    usage = data.log[-1].get("component_usage") if data.log else None
    if usage:
        usage = usage[: len(classes)]  # the doubles of classes come behind these
        section.drawings.append(component_usage(f"{key}-components", torch.tensor(usage), classes))
    return section if section.drawings else None


def _features(data: RunData) -> Section | None:
    key, own, foreign, classes = data.key, data.own, data.foreign, data.facts.classes
    if len(own.sample.indices) < SMALLEST_EMBEDDING:
        return None
    labels = own.labels[own.sample.indices]
    alone = embedding(f"{key}-tsne", tsne(own.sample.features), labels, classes)
    both = tsne(torch.cat([own.sample.features, foreign.sample.features]))
    ours, theirs = both[: len(labels)], both[len(labels) :]
    together = embedding(f"{key}-tsne-foreign", ours, labels, classes, (foreign.name, theirs))
    explanation = "The features of the images, in two dimensions by t-SNE."
    return Section(f"{key}-features", "Features", [explanation], drawings=[alone, together])


def _images(data: RunData) -> Section | None:
    """None for a run on features, which has no images to show."""
    if data.facts.config.on_features:
        return None
    key, own, foreign, classes = data.key, data.own, data.foreign, data.facts.classes
    how_foreign = next(name for name in FOREIGN_SCORES if name in foreign.scores)
    label = score_label(how_foreign)
    uncertainty, strangeness = own.scores["uncertainty"], foreign.scores[how_foreign]
    explanation = (
        "Below each image: its class or set, the predicted class with its probability, and the score it was chosen by."
    )
    section = Section(f"{key}-images", "Images to look at", [explanation])
    for name, heading, images, indices, score in (
        ("uncertain", "Most uncertain", own, highest(uncertainty), "uncertainty"),
        ("wrong", "Most confidently wrong", own, highest(-uncertainty, ~own.correct), "uncertainty"),
        ("strange", f"Most foreign of {foreign.name}, by {label}", foreign, highest(strangeness), how_foreign),
        ("passing", f"Least foreign of {foreign.name}, by {label}", foreign, highest(-strangeness), how_foreign),
    ):
        if len(indices) > 0:
            shown = thumbnails(images, indices, score, classes, foreign=images is foreign)
            section.sections.append(Section(f"{key}-images-{name}", heading, images=shown))
    if any(image.file for inner in section.sections for image in inner.images):
        section.paragraphs.append(
            "Each file is named by its path below the data folder, so that you can open or move it."
        )
    return section


def _training(data: RunData) -> Section | None:
    key, log = data.key, [row for row in data.log if {"epoch", "loss"} <= row.keys()]
    if not any("accuracy" in row for row in log):
        return None
    seconds = sum(row.get("seconds", 0.0) for row in log)
    summary = f"{len(log)} epochs, {log[-1].get('step', 0):,} steps, {seconds:,.0f} s."
    drawings = [losses(f"{key}-loss", log), accuracies(f"{key}-accuracy", log)]
    return Section(f"{key}-training", "Training", [summary], drawings=drawings)
