"""The post-hoc detectors by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsui.detectors.ash import ASH
from dsui.detectors.detector import Detector
from dsui.detectors.em_mixture import EMMixture
from dsui.detectors.energy import Energy
from dsui.detectors.gda import GDA
from dsui.detectors.gen import GEN
from dsui.detectors.kl_matching import KLMatching
from dsui.detectors.knn import KNN
from dsui.detectors.mahalanobis import Mahalanobis
from dsui.detectors.max_logit import MaxLogit
from dsui.detectors.odin import Odin
from dsui.detectors.openmax import OpenMax
from dsui.detectors.react import ReAct
from dsui.detectors.relative_mahalanobis import RelativeMahalanobis
from dsui.detectors.she import SHE
from dsui.detectors.vim import ViM
from dsui.errors import DsuiError
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.outputs import Outputs

DETECTORS: dict[str, type[Detector]] = {
    "energy": Energy,
    "max-logit": MaxLogit,
    "gen": GEN,
    "kl-matching": KLMatching,
    "knn": KNN,
    "react": ReAct,
    "ash": ASH,
    "vim": ViM,
    "she": SHE,
    "mahalanobis": Mahalanobis,
    "relative-mahalanobis": RelativeMahalanobis,
    "gda": GDA,
    "em-mixture": EMMixture,
    "openmax": OpenMax,
    "odin": Odin,
}


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(DETECTORS)


def build(name: str) -> Detector:
    """An unfitted detector with its default settings."""
    if name not in DETECTORS:
        raise DsuiError(unknown_name("detector", name, DETECTORS))
    return DETECTORS[name]()


def obstacle(name: str, train: Outputs) -> str | None:
    """What keeps a detector from using these outputs, None where nothing does."""
    kind = DETECTORS[name]
    if kind.needs_labels and train.labels is None:
        return "no labels"
    if kind.needs_weight and train.weight is None:
        return "no linear last layer"
    if kind.needs_scale and train.samples is not None:
        return "log-probabilities for logits, which all have the same energy"
    return None
