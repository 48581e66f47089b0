"""What the words of a page mean: each is explained in the first section that uses it, and only there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from html import unescape
from typing import NamedTuple

from dsui.report.figures.canvas import Drawing
from dsui.report.section import Section


class Term(NamedTuple):
    """`used` matches the forms in which the word stands on a page; by default the word itself."""

    word: str
    meaning: str
    used: str = ""

    @property
    def pattern(self) -> str:
        return rf"(?<![\w-])(?:{self.used or re.escape(self.word)})(?![\w-])"


TERMS = (
    Term("in-domain", "of the kind that the model was trained on"),
    Term("foreign", "of a kind that the model was not trained on, so that every prediction for it is wrong"),
    Term("misclassification", "finding the model's own errors by their uncertainty"),
    Term("ood", "out of distribution: finding images of another data set by their uncertainty", "ood"),
    Term("open-set", "finding images of classes that were kept out of training", "open-set|unknown classes"),
    Term("noise", "images of random pixels", "noise"),
    Term("FGSM", "an attack that changes every pixel by at most ε, so that the prediction is wrong", "FGSM|fgsm|ε"),
    Term("uncertainty", "the score to use when there is no reason for another; as every score, larger is worse"),
    Term("foreignness", "the score to use for foreign images alone"),
    Term("Max.P.", "score by the largest predicted probability: the smaller it is, the larger the score", r"Max\.P\."),
    Term("Ent.", "score by the entropy: large where probability is spread over many classes", r"Ent\.|[Ee]ntropy"),
    Term("max_logit", "score by the largest output of the last layer", r"(?:sirc_)?max_logit"),
    Term("energy", "score by all outputs of the last layer: large where no class gets a large one", r"\w*energy"),
    Term("norm", "score by the length of the features; foreign images often have short ones", "(?:sirc_)?norm"),
    Term("log-density", "how well an image fits the mixtures of all classes; as a score, its negative",
         r"log-densit\w+|\w*log_density"),
    Term("density", "how well an image fits the mixtures; before the name of a score: by the mixtures, not by the last "
         "layer", r"(?:sirc_)?density_\w+|densit\w+"),
    Term("floored_posterior", "Max.P. by the mixtures, which is large too where an image fits none of them"),
    Term("sphere", "all features scaled to the same length, as in the training of DS-UI", r"sphere\w*|sirc_sphere\w*"),
    Term("sirc", "Max.P. joined with a second score, which counts only where it is unusually large", r"sirc\w*|SIRC"),
    Term("mutual information", "how much several predictions for one image differ", "mutual[ _]information"),
    Term("AUROC", "chance that an error or foreign image gets a larger score than another image; guessing gives 50 %"),
    Term("AUPR", "mean share of true alarms over all thresholds; guessing gives the share of errors or foreign images"),
    Term("AUPR-in", "AUPR of finding in-domain images by small scores"),
    Term("AURC", "mean share of errors among the kept images, as ever more of them are set aside; 1/1000 is 0.1 %"),
    Term("E-AURC", "AURC less that of a perfect score with the same errors"),
    Term("AUGRC", "as AURC, with the errors among the kept images as a share of all images"),
    Term("FPR95", "share of foreign images that pass where 95 % of in-domain images pass"),
    Term("false alarms 95", "share of in-domain images that are rejected where 95 % of foreign images are"),
    Term("ROC", "found images over false alarms, for every threshold"),
    Term("recall", "share that is found of what should be found"),
    Term("precision", "share of true alarms among all alarms"),
    Term("coverage", "share of images that are kept, whose score is below a threshold"),
    Term("risk", "share of errors among the kept images"),
    Term("confidence", "the largest predicted probability"),
    Term("calibrated", "right as often as its confidence says", "calibrat(?:ed|ion)"),
    Term("ECE", "expected calibration error: the mean distance between confidence and accuracy"),
    Term("NLL", "negative log-likelihood: the mean of -ln of the probability given to the true class"),
    Term("scaled", "of the probabilities that users see: softmax(y / T), T fitted to held-out images",
         "scaled (?:NLL|ECE)"),
    Term("Brier", "mean squared distance between the probabilities and the truth"),
    Term("nats", "unit of a natural logarithm"),
    Term("Gaussian", "the bell curve of a mean and a deviation", "Gaussians?"),
    Term("mixture", "several Gaussians for each class, which tell where its features lie", "mixtures?"),
    Term("component", "one Gaussian of a mixture", "components?"),
    Term("features", "the numbers that the network computes from an image before it decides"),
    Term("t-SNE", "a map that puts images with similar features beside each other (van der Maaten and Hinton, 2008)"),
    Term("deviation", "standard deviation over runs that differ in their seed alone", r"± deviation"),
    Term("t-test", "p is how often chance alone gives a difference as large, if two methods are equally good",
         r"(?:Student's|Welch's) t-test"),
    Term("Holm", "a stricter limit for p, because many tests are made at once", "Holm-corrected"),
    Term("seed", "the number that fixes what is random in training", "seeds?"),
    Term("backbone", "the part of the network that turns an image into features", "backbone"),
    Term("recipe", "the settings of the training, by name", "recipe"),
    Term("epoch", "one pass over the training images", "epochs?"),
    Term("regularizer", "the term of DS-UI's loss that keeps all components in use"),
    Term("dual", "the term of DS-UI's loss that pulls features to the mixture of their class, away from the others",
         r"terms before weighting"),
    Term("rho", "how strongly DS-UI pushes features away from the mixtures of wrong classes; null: the usual strength"),
    Term("gamma", "the weight of the regularizer in DS-UI's loss"),
    Term("dsui", "DS-UI: a mixture of Gaussians for each class instead of a plain last layer", r"dsui|DS-UI"),
    Term("msp", "a plain network with softmax"),
    Term("mc-dropout", "a network that predicts many times with random units switched off"),
    Term("bbb", "a network with random weights (Bayes by backprop)"),
    Term("dpn", "a network that predicts a distribution of probabilities (prior network)"),
    Term("rkl", "a prior network trained with the reverse divergence"),
    Term("logitnorm", "a plain network whose outputs are scaled to one length in training"),
    Term("rotpred", "a plain network that also learns to tell how an image is turned"),
    Term("ensemble", "several plain networks, whose probabilities are averaged"),
    Term("sde-net", "a network with random steps, which are larger for foreign images"),
    Term("g-openmax", "a network that learns to reject from generated images"),
    Term("c2ae", "a network that rejects what it cannot draw again for its class"),
    Term("gdosr", "a network that also sees its own reconstruction of an image"),
    Term("dsui-density", "DS-UI whose mixtures alone predict the class"),
)  # fmt: skip
"""In the order in which a section lists them."""


def explained(sections: Sequence[Section], elsewhere: Collection[str] = ()) -> dict[str, list[Term]]:
    """By the key of a section, the terms that it is the first to use; without those explained `elsewhere`."""
    left = {term.word: term for term in TERMS if term.word not in elsewhere}
    found: dict[str, list[Term]] = {}
    for section in _in_reading_order(sections):
        text = _visible_text(section)
        used = [term for term in left.values() if re.search(term.pattern, text)]
        while more := [term for term in left.values() if term not in used and _is_in_meanings(term, used)]:
            used += more
        found[section.key] = [term for term in left.values() if term in used]
        left = {word: term for word, term in left.items() if term not in used}
    return found


def _in_reading_order(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _in_reading_order(section.sections)


def _is_in_meanings(term: Term, used: Sequence[Term]) -> bool:
    return any(re.search(term.pattern, other.meaning) for other in used)


def _visible_text(section: Section) -> str:
    """All that stands in a section itself; of figures their captions and legends."""
    tables = [*section.tables, *(part for folded in section.folded_tables for part in (folded.summary, folded.table))]
    drawings = [part for drawing in section.drawings for part in (drawing.caption, drawing.reading, *_written(drawing))]
    images = [line for image in section.images for line in image.lines]
    plain = [unescape(re.sub(r"<[^>]+>", " ", table)) for table in tables]
    return "\n".join([section.heading, *section.paragraphs, *plain, *drawings, *images])


def _written(drawing: Drawing) -> list[str]:
    """What stands in a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in drawing.figure.findobj(Text) if isinstance(text, Text)]
