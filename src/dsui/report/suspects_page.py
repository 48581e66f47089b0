"""A page of the training images whose label is doubted most."""

from __future__ import annotations

from typing import NamedTuple

import torch

from dsui.data.dataset import ImageSet
from dsui.data.features import features_of, hold_features
from dsui.evaluation.suspects import REGRESSIONS, Suspects
from dsui.report.html_table import text_table
from dsui.report.section import Section
from dsui.report.thumbnails import Thumbnail, apart, origin, png


class Suspect(NamedTuple):
    """One doubted label. `image` is its place in the training split; `file` its path below the data folder, or its name
    in a file of features."""

    image: int
    file: str | None
    label: str
    suggested: str
    doubt: float
    label_probability: float
    suggested_probability: float
    held_out: bool


def most_doubted(found: Suspects, count: int) -> list[Suspect]:
    """The first `count`, without images that nothing can be said of."""
    classes, shown = found.images.classes, []
    for index in found.order[:count].tolist():
        if found.doubt[index].isnan():
            break
        label, suggested = int(found.images.labels[index]), int(found.suggested[index])
        own, other = found.log_probabilities[index, [label, suggested]].exp().tolist()
        names = (classes[label], classes[suggested])
        file, held_out = _file(found.images, index), bool(found.held_out[index])
        shown.append(Suspect(index, file, *names, float(found.doubt[index]), own, other, held_out))
    return shown


def evidence(found: Suspects) -> str:
    """How the labels were judged, and what that can hide."""
    if found.folds:
        return (
            f"Every image was judged by a model that did not see it: {found.folds} models were trained as the run was, "
            "each without a part of the images."
        )
    start = (
        f"{REGRESSIONS} logistic regressions on the run's features judged the images, each those that it did not see"
    )
    if not found.seen:
        return f"{start}. The network behind the features was not trained on these labels."
    return (
        f"{start}. The network behind the features was trained on these labels and may have learned wrong ones by "
        "heart, so some are missing here; --folds 5 trains five models again and finds more."
    )


def sections(found: Suspects, shown: list[Suspect]) -> list[Section]:
    total = len(found.images.labels)
    summary = (
        f"{found.contradicted:,} of {total:,} training images look more like another class than like their label. "
        f"Here are the {len(shown):,} most doubted; look at them before you change anything, for a hard image with the "
        "right label is doubted too."
    )
    below = "Below each image: its label, the class it looks like, and the probabilities of the two."
    section = Section("suspects", "Most doubted labels", [summary, evidence(found)])
    if hold_features(found.images):
        section.tables.append(_table(shown))
    else:
        section.paragraphs.append(below)
        pixels = found.images.read(torch.tensor([each.image for each in shown], dtype=torch.int64))
        section.images.extend(
            _thumbnail(each, png(image), found.folds) for each, image in zip(shown, pixels, strict=True)
        )
    return [section]


def _thumbnail(suspect: Suspect, source: str, folds: int) -> Thumbnail:
    """That the run held an image out matters where its own features are the evidence."""
    label, other = apart(suspect.label), apart(suspect.suggested)
    shares = f"{suspect.suggested_probability:.3f} against {suspect.label_probability:.3f}"
    lines = (
        f"labelled {label}",
        f"looks like {other}",
        shares,
        *(("held out",) if suspect.held_out and not folds else ()),
    )
    return Thumbnail(source, f"Image {suspect.image}: labelled {label}, looks like {other}", lines, suspect.file)


def _table(shown: list[Suspect]) -> str:
    columns = ("label", "looks like", "probability of that", "of the label", "held out")
    lines = [
        (
            each.file or f"row {each.image}",
            (
                each.label,
                each.suggested,
                f"{each.suggested_probability:.3f}",
                f"{each.label_probability:.3f}",
                "yes" if each.held_out else "no",
            ),
        )
        for each in shown
    ]
    return text_table("Most doubted labels", "image", columns, lines, wrap=False)


def _file(images: ImageSet, index: int) -> str | None:
    features = features_of(images)
    if features is None:
        return origin(images, index)
    names = features.file.names
    place = int(images.indices[index]) if hasattr(images, "indices") else index
    return None if names is None else names[int(features.rows[place])]
