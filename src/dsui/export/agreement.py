"""Whether an exported graph, run by ONNX Runtime, says what the run itself says, image by image.

    label and decision   equal, unless two probabilities or score and threshold lie within DECISIVE of each other
    probabilities        within PROBABILITY
    log-density          within LOG_DENSITY of its size
    scores               within SCORE of their size

Sizes count as at least 1. The network is float32 in both, and sums in another order, so nothing can be equal to the
bit; what follows the network is float64 in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsui.deploy.predictor import BATCH, Predictor
from dsui.errors import DsuiError
from dsui.export.decision_graph import ACCEPTED
from dsui.export.onnx_session import Session
from dsui.limits import Limit
from dsui.runs.embedding import Embedder
from dsui.runs.model import forward
from dsui.scores import log_density

DECISIVE, PROBABILITY, LOG_DENSITY, SCORE = 1e-4, 1e-4, 1e-3, 1e-3
Arrays = Mapping[str, NDArray[Any]]


class Agreement(NamedTuple):
    """The largest differences over the images; `undecided` is how many lie too near to a threshold to be compared."""

    images: int
    probability: float
    relative: dict[str, float]
    undecided: int

    def to_mapping(self) -> dict[str, object]:
        return self._asdict()


def run_outputs(predictor: Predictor, inputs: Tensor, embedder: Embedder | None = None) -> dict[str, NDArray[Any]]:
    """The outputs of an exported file as the run itself computes them, in float64, for 8-bit images or features."""
    parts = [_batch_outputs(predictor, part, embedder) for part in inputs.split(BATCH)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def graph_outputs(session: Session, inputs: Tensor) -> dict[str, NDArray[Any]]:
    """The same by ONNX Runtime, for 8-bit images [N, C, H, W] or features."""
    parts = [session(_as_input(part)) for part in inputs.split(BATCH)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_agreement(wanted: Arrays, found: Arrays, limits: tuple[Limit, ...]) -> Agreement:
    """A DsuiError with the first thing that differs by more than it may."""
    images = len(wanted["label"])
    if missing := set(wanted) ^ set(found):
        raise _disagrees(f"only one of them has {', '.join(sorted(missing))}")
    top = np.sort(wanted["probabilities"], axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > DECISIVE
    _check("labels", (wanted["label"] != found["label"]) & clear)
    probability = float(np.abs(wanted["probabilities"] - found["probabilities"]).max())
    if not probability <= PROBABILITY:
        raise _disagrees(f"probabilities differ by up to {probability:.2g}, more than {PROBABILITY:g}")
    relative = {}
    for name in (each for each in wanted if wanted[each].ndim == 1 and each not in {"label", ACCEPTED}):
        relative[name] = _relative(wanted[name], found[name])
        if not relative[name] <= (most := LOG_DENSITY if name == "log_density" else SCORE):
            raise _disagrees(f"{name} differs by up to {relative[name]:.2g} of its size, more than {most:g}")
    decided = np.ones(images, dtype=bool)
    for limit in limits:
        score = _score(limit.score, wanted)
        decided &= ~(np.abs(score - limit.value) <= DECISIVE * max(1.0, abs(limit.value)))
    if limits:
        _check("decisions", (wanted[ACCEPTED] != found[ACCEPTED]) & decided)
    return Agreement(images, probability, relative, int((~decided).sum()))


def _batch_outputs(predictor: Predictor, inputs: Tensor, embedder: Embedder | None) -> dict[str, NDArray[Any]]:
    model = predictor.model
    taken = inputs if embedder is None else embedder(inputs)
    taken = taken[:, :, None, None] if taken.ndim == 2 else taken
    outputs = forward(model.method, model.transform, taken.to(model.device))
    scores = predictor.scorer.scores(outputs)
    logits = outputs.logits.double().cpu() / (predictor.calibration.temperature or 1.0)
    found = {
        "label": outputs.predictions.cpu(),
        "probabilities": logits.softmax(1),
        "uncertainty": scores["uncertainty"],
    }
    if "foreignness" in scores:
        found["foreignness"] = scores["foreignness"]
    if outputs.log_joint is not None:
        found["log_density"] = -log_density(outputs.log_joint).cpu()
    if (chosen := predictor.chosen) is not None:
        for limit in chosen.limits:
            found.setdefault(limit.score, scores[limit.score])
        found[ACCEPTED] = chosen.accepted(scores)
    return {name: values.numpy() for name, values in found.items()}


def _score(name: str, outputs: Arrays) -> NDArray[Any]:
    """The output called log_density is the density itself, whose negative is the score of that name."""
    return -outputs[name] if name == "log_density" else outputs[name]


def _as_input(inputs: Tensor) -> NDArray[Any]:
    channels_last = inputs.permute(0, 2, 3, 1) if inputs.ndim == 4 else inputs
    return np.ascontiguousarray(channels_last.numpy())


def _relative(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    """The largest difference by size; infinite scores must be equal, and NaN equals NaN."""
    same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    with np.errstate(invalid="ignore"):
        error = np.abs(wanted - found) / np.maximum(1.0, np.abs(wanted))
    return float(np.where(same, 0.0, error).max())


def _check(what: str, wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        raise _disagrees(f"{what} differ for {int(wrong.sum())} of {len(wrong)} images")


def _disagrees(how: str) -> DsuiError:
    return DsuiError(
        f"the exported graph does not compute what the run computes ({how}), so nothing is written; predict with "
        "dsui predict, and report this with the output of dsui info."
    )
