"""The part of a page about one run: scores, errors, foreign images, densities, features, single images, training."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from dsui.report.confusion import MOST_CLASSES, accuracy_table, confusion_table, counts, largest_confusions_table
from dsui.report.evidence import Evidence, score_label
from dsui.report.figures.components import component_usage
from dsui.report.figures.curves import PRECISION_RECALL, RISK_COVERAGE, ROC, curves
from dsui.report.figures.distributions import distributions, probability_or_entropy
from dsui.report.figures.embedding import embedding
from dsui.report.figures.profile import densest, least_dense, profile
from dsui.report.figures.reliability import reliability
from dsui.report.figures.training import accuracies, losses
from dsui.report.html_table import to_html
from dsui.report.run_table import run_table
from dsui.report.section import Details, Section
from dsui.report.thumbnails import most, thumbnails
from dsui.report.tsne import tsne
from dsui.runs.recipe_file import training_name

DRAWN = ("max_probability", "entropy", "log_density", "energy", "mutual_information", "uncertainty")
"""The scores whose curves are drawn, where a run has them."""
FOREIGN_SCORES = ("log_density", "energy", "uncertainty")
"""The first that a run has says how foreign an image is."""
PARTS = 6
"""Sections of a run beside its scores, in the order they are made."""
STREAMS = {"": "", "density_": " of the density stream"}


def run_section(evidence: Evidence, alone: bool, step: Callable[[], None] = lambda: None) -> Section:
    """`alone`: its scores stand at the head of the page already. `step` hears of each of `PARTS` that is done."""
    config, own = evidence.facts.config, evidence.own
    sections = [] if alone else [scores_section(evidence)]
    for part in (_errors, _foreign, _densities, _features, _images, _training):
        if (made := part(evidence)) is not None:
            sections.append(made)
        step()
    recipe = next((row.recipe for row in evidence.rows if row.method == config.method), training_name(config))
    words = (
        f"{config.method} on {config.data}, backbone {config.backbone}, recipe {recipe}, "
        f"seed {config.seed}: {own.correct.double().mean().item():.2%} of {len(own.labels):,} in-domain images are "
        "classified correctly."
    )
    return Section(evidence.key, f"Run {evidence.name}", [words], sections=sections)


def scores_section(evidence: Evidence) -> Section:
    rows = [row for row in evidence.rows if row.task != "fgsm" and row.method == evidence.facts.config.method]
    counts = {
        f"{row.task}{f' ({row.foreign})' if row.task == 'ood' else ''}: {row.n_positive:,} of "
        f"{row.n_positive + row.n_negative:,} images": None
        for row in rows
        if row.n_positive is not None and row.n_negative is not None
    }
    words = f"Every score is an uncertainty. What it has to find, among how many images: {'; '.join(counts)}."
    return Section(f"{evidence.key}-scores", "Scores", [words], [to_html(run_table(rows))])


def _errors(evidence: Evidence) -> Section:
    key, own = evidence.key, evidence.own
    confidence = own.logits.double().softmax(1).amax(1)
    calibration = reliability(f"{key}-reliability", confidence, own.correct)
    errors = ~own.correct
    section = Section(f"{key}-errors", "Its own errors", drawings=[calibration], sections=[_classes(evidence)])
    if not bool(errors.any()):
        section.words.append("Every image is classified correctly, so there are no errors to find.")
        return section
    if not bool(own.correct.any()):
        section.words.append("No image is classified correctly, so errors cannot be told from anything.")
        return section
    section.words.append(f"{int(errors.sum()):,} of {len(errors):,} images are misclassified; do they score high?")
    drawn = {score_label(name): own.scores[name] for name in DRAWN if name in own.scores}
    for name, kind in (("roc", ROC), ("precision-recall", PRECISION_RECALL), ("risk-coverage", RISK_COVERAGE)):
        section.drawings.append(curves(f"{key}-errors-{name}", kind, drawn, errors, "errors", "correct predictions"))
    return section


def _classes(evidence: Evidence) -> Section:
    """All confusions of a few classes; of many the largest, with the accuracies folded away."""
    own, classes = evidence.own, evidence.facts.classes
    section = Section(f"{evidence.key}-errors-classes", "Class by class")
    confusions = counts(own.labels, own.logits.argmax(1), len(classes))
    if len(classes) <= MOST_CLASSES:
        section.tables.append(to_html(confusion_table(classes, confusions)))
        return section
    if (largest := largest_confusions_table(classes, confusions)) is not None:
        section.tables.append(to_html(largest))
    section.details.append(Details("Accuracy of each class", to_html(accuracy_table(classes, confusions))))
    return section


def _foreign(evidence: Evidence) -> Section:
    key, own, foreign = evidence.key, evidence.own, evidence.foreign
    classes = evidence.facts.classes
    section = Section(
        f"{key}-foreign",
        f"Foreign images: {foreign.name}",
        [
            f"{len(foreign.labels):,} images of {foreign.name} against {len(own.labels):,} in-domain images. Where the "
            "fitted Gaussians lie apart the two can be told apart."
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


def _densities(evidence: Evidence) -> Section | None:
    """None for a method that models no density."""
    key, own, foreign, classes = evidence.key, evidence.own, evidence.foreign, evidence.facts.classes
    section = Section(f"{key}-densities", "Class densities")
    if own.log_joint is not None and foreign.log_joint is not None:
        normal, abnormal = densest(own.log_joint, own.correct), least_dense(foreign.log_joint)
        drawing = profile(f"{key}-profile", classes, own.log_joint[normal], foreign.log_joint[abnormal], foreign.name)
        section.words.append("A normal image should stand out in one class and an abnormal one be low in all.")
        section.drawings.append(drawing)
        for seen, place, is_foreign in ((own, normal, False), (foreign, abnormal, True)):
            section.images.extend(thumbnails(seen, torch.tensor([place]), "log_density", classes, is_foreign))
    usage = evidence.log[-1].get("component_usage") if evidence.log else None
    if usage:
        section.drawings.append(component_usage(f"{key}-components", torch.tensor(usage), classes))
    return section if section.drawings else None


def _features(evidence: Evidence) -> Section | None:
    key, own, foreign, classes = evidence.key, evidence.own, evidence.foreign, evidence.facts.classes
    if len(own.chosen) < SMALLEST_EMBEDDING:
        return None
    labels = own.labels[own.chosen]
    alone = embedding(f"{key}-tsne", tsne(own.features), labels, classes)
    both = tsne(torch.cat([own.features, foreign.features]))
    ours, theirs = both[: len(labels)], both[len(labels) :]
    together = embedding(f"{key}-tsne-foreign", ours, labels, classes, (foreign.name, theirs))
    words = (
        "Features in two dimensions, by t-SNE. Who is near whom means something; sizes of clusters and long distances "
        "do not."
    )
    return Section(f"{key}-features", "Features", [words], drawings=[alone, together])


SMALLEST_EMBEDDING = 10
"""Fewer images make no picture."""


def _images(evidence: Evidence) -> Section:
    key, own, foreign, classes = evidence.key, evidence.own, evidence.foreign, evidence.facts.classes
    how_foreign = next(name for name in FOREIGN_SCORES if name in foreign.scores)
    label = score_label(how_foreign)
    uncertainty, strangeness = own.scores["uncertainty"], foreign.scores[how_foreign]
    words = "Below each: what it is, the predicted class with its probability, and the score it was chosen by."
    section = Section(f"{key}-images", "Images to look at", [words])
    for name, heading, seen, indices, score in (
        ("uncertain", "Most uncertain", own, most(uncertainty), "uncertainty"),
        ("wrong", "Most confidently wrong", own, most(-uncertainty, ~own.correct), "uncertainty"),
        ("strange", f"Most foreign of {foreign.name}, by {label}", foreign, most(strangeness), how_foreign),
        ("passing", f"Least foreign of {foreign.name}, by {label}", foreign, most(-strangeness), how_foreign),
    ):
        if len(indices) > 0:
            images = thumbnails(seen, indices, score, classes, foreign=seen is foreign)
            section.sections.append(Section(f"{key}-images-{name}", heading, images=images))
    if any(image.file for inner in section.sections for image in inner.images):
        section.words.append("Files are named from the data folder on, so that they can be opened or moved.")
    return section


def _training(evidence: Evidence) -> Section | None:
    key, log = evidence.key, [row for row in evidence.log if {"epoch", "loss", "accuracy"} <= row.keys()]
    if not log:
        return None
    seconds = sum(row.get("seconds", 0.0) for row in log)
    words = f"{len(log)} epochs, {log[-1].get('step', 0):,} steps, {seconds:,.0f} s."
    drawings = [losses(f"{key}-loss", log), accuracies(f"{key}-accuracy", log)]
    return Section(f"{key}-training", "Training", [words], drawings=drawings)
