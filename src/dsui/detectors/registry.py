"""The post-hoc detectors by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.errors import DsuiError
from dsui.lazy_registry import LazyRegistry
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.detectors.detector import Detector
    from dsui.outputs import Outputs

DETECTORS: LazyRegistry[type[Detector]] = LazyRegistry(
    {
        "energy": "dsui.detectors.energy:Energy",
        "max-logit": "dsui.detectors.max_logit:MaxLogit",
        "gen": "dsui.detectors.gen:GEN",
        "kl-matching": "dsui.detectors.kl_matching:KLMatching",
        "knn": "dsui.detectors.knn:KNN",
        "react": "dsui.detectors.react:ReAct",
        "ash": "dsui.detectors.ash:ASH",
        "vim": "dsui.detectors.vim:ViM",
        "she": "dsui.detectors.she:SHE",
        "mahalanobis": "dsui.detectors.mahalanobis:Mahalanobis",
        "relative-mahalanobis": "dsui.detectors.relative_mahalanobis:RelativeMahalanobis",
        "gda": "dsui.detectors.gda:GDA",
        "em-mixture": "dsui.detectors.em_mixture:EMMixture",
        "openmax": "dsui.detectors.openmax:OpenMax",
        "odin": "dsui.detectors.odin:Odin",
    }
)


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(DETECTORS)


def build(name: str) -> Detector:
    """An unfitted detector with its default settings."""
    if name not in DETECTORS:
        raise DsuiError(unknown_name("detector", name, DETECTORS))
    return DETECTORS[name]()


def obstacle(name: str, train: Outputs) -> str | None:
    """What keeps a detector from using these outputs; None where nothing does."""
    detector = DETECTORS[name]
    if detector.needs_labels and train.labels is None:
        return "no labels"
    if detector.needs_weight and train.weight is None:
        return "no linear last layer"
    if detector.needs_scale and train.samples is not None:
        return "log-probabilities for logits, which all have the same energy"
    return None
