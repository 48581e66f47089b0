"""What a trained model must know about its training and held-out images to be deployed, measured when training ends.

`uncertainty` needs the moments of scores over training images (`dsui.scores`). A threshold needs the scores of images
the model was not trained on, and whether it was wrong about them. Probabilities are scaled by a temperature that is
fitted to the same images. All is stored as JSON in the metadata of model.safetensors, so that predictions need nothing
but the weights of a run. Stored are the scores that are no variants of others (`dsui.score_table`); a variant or the
score of a detector is computed when it is asked for, from the images.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dsui.data.augment import Transform
from dsui.data.dataset import ImageSet
from dsui.data.pipeline import Batch, Loader, open_loader
from dsui.errors import DivergenceError, DsuiError, RunError
from dsui.limits import Criterion
from dsui.methods.method import Method
from dsui.outputs import DEFINITION, Outputs
from dsui.runs.acceptance import Thresholds, choose
from dsui.runs.folder import WEIGHTS
from dsui.runs.model import RunFacts, forward, predicts_as_trained
from dsui.runs.temperature import RANGE, temperature_of
from dsui.runs.turns import share_told_apart
from dsui.runs.weights import read_metadata
from dsui.score_table import is_variant
from dsui.scores import Moments, Reference, all_scores, reference

MOST_IMAGES = 10_000
"""The most images of each kind; of more, an evenly spaced choice. The deviation of their mean is then a hundredth of
that of the images."""
MOST_TURNED = 1000
"""The most held-out images that are turned. The share's standard error is then below 1.6 points."""
CALIBRATION = "calibration"
"""The key in the metadata of the weights."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """`uncertainties` [N], ascending, in float64, and `errors` [N] are of held-out images; N may be 0. `scores` [N] are
    their other scores by name, without variants; older runs have none."""

    reference: Reference
    uncertainties: Tensor
    errors: Tensor
    turns: float | None = None
    """How often quarter turns of held-out images are told apart (`dsui.runs.turns`), for a run with turned copies."""
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    temperature: float | None = None
    """By which logits are divided before a user sees probabilities (`dsui.runs.temperature`); None where there were too
    few held-out images to fit it, and in runs of earlier versions."""

    def threshold(self, coverage: float | None = None, risk: float | None = None) -> Thresholds:
        """Of `uncertainty`, chosen by coverage or by risk; see `dsui.runs.threshold`."""
        asked = Criterion(coverage, risk)
        asked.check()
        self.check()
        return choose({"uncertainty": "errors"}, self.all_scores, self.errors, asked)

    @property
    def all_scores(self) -> dict[str, Tensor]:
        """The stored scores by name, `uncertainty` among them."""
        return {"uncertainty": self.uncertainties, **self.scores}

    def check(self) -> None:
        """Raise where there are no images to choose a threshold by."""
        if len(self.uncertainties) == 0:
            raise DsuiError(
                "this model was trained without calibration images, which a threshold needs; train it with "
                "--calibration 0.1, in Python calibration=0.1."
            )

    def to_text(self) -> str:
        """JSON, which keeps every bit of a float."""
        return json.dumps(
            {
                "definition": DEFINITION,
                "moments": self.reference.moments,
                "log_floor": self.reference.log_floor,
                "uncertainties": self.uncertainties.tolist(),
                "errors": self.errors.int().tolist(),
                "turns": self.turns,
                "scores": {name: values.tolist() for name, values in self.scores.items()},
                "temperature": self.temperature,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Calibration:
        """The reverse of `to_text`; a ValueError, KeyError or TypeError where something is missing or wrong."""
        values = json.loads(text)
        if values["definition"] != DEFINITION:
            raise ValueError("its uncertainty has another definition")
        moments = {str(name): Moments(float(mean), float(std)) for name, (mean, std) in values["moments"].items()}
        floor = values["log_floor"]
        uncertainties = torch.tensor(values["uncertainties"], dtype=torch.float64)
        errors = torch.tensor(values["errors"], dtype=torch.bool)
        scores = {str(name): torch.tensor(each, dtype=torch.float64) for name, each in values.get("scores", {}).items()}
        if any(each.shape != errors.shape for each in (uncertainties, *scores.values())):
            raise ValueError("it holds unequal numbers of scores and errors")
        turns, temperature = values.get("turns"), values.get("temperature")  # older runs have none
        known = [float(each) for each in (floor, turns, temperature) if each is not None]
        known += [number for pair in moments.values() for number in pair]
        finite = all(bool(each.isfinite().all()) for each in (uncertainties, *scores.values()))
        if not finite or not all(map(math.isfinite, known)):
            raise ValueError("it holds NaN or infinity")
        if temperature is not None and not RANGE[0] <= float(temperature) <= RANGE[1]:
            raise ValueError("its temperature is out of range")
        reference = Reference(moments, None if floor is None else float(floor))
        return cls(
            reference,
            uncertainties,
            errors,
            turns=None if turns is None else float(turns),
            scores=scores,
            temperature=None if temperature is None else float(temperature),
        )


def stored_calibration(facts: RunFacts) -> Calibration:
    """The calibration that training stored in the metadata of a run's weights."""
    file = facts.path / WEIGHTS
    text = read_metadata(file).get(CALIBRATION)
    if text is None:
        raise RunError(f"{file} is from a dsui that did not store what predictions need; train the run again.")
    try:
        return Calibration.from_text(text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} holds no calibration that this dsui can read; train the run again.") from error


def stored_temperature(facts: RunFacts) -> float | None:
    """The temperature of a run's probabilities; None where it has none, and for another method than was trained."""
    if CALIBRATION not in read_metadata(facts.path / WEIGHTS) or not predicts_as_trained(facts):
        return None
    return stored_calibration(facts).temperature


def measure(
    method: Method,
    transform: Transform,
    training: Loader,
    samples: int,
    held_out: ImageSet | None,
    batch: int,
    device: torch.device,
) -> Calibration:
    """Measure a method in evaluation mode; `training` holds its `samples` training images, without augmentation.

    A `batch` of the size used in training fits into the memory that training fitted into.
    """

    def predictions(loader: Loader, count: int) -> Iterator[tuple[Outputs, Batch]]:
        for found in loader.stream(even_choice(count).split(batch)):
            yield forward(method, transform, found.images), found

    known = reference(outputs for outputs, _ in predictions(training, samples))
    if held_out is None:
        return Calibration(known, torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.bool))
    apart, count = open_loader(held_out, device), len(held_out.labels)
    logits, labels = list[Tensor](), list[Tensor]()

    def kept(found: Iterable[tuple[Outputs, Batch]]) -> Iterator[tuple[Outputs, Batch]]:
        for outputs, images in found:
            logits.append(outputs.logits.cpu())
            labels.append(images.labels.cpu())
            yield outputs, images

    scores, errors = _sorted(known, kept(predictions(apart, count)))
    temperature = temperature_of(torch.cat(logits), torch.cat(labels))
    turned = even_choice(count, MOST_TURNED)
    turns = share_told_apart(method, transform, apart, turned, batch) if method.copies else None
    return Calibration(known, scores.pop("uncertainty"), errors, turns, scores, temperature)


def even_choice(count: int, most: int = MOST_IMAGES) -> Tensor:
    """Indices of at most `most` of `count` images, evenly spaced: data sets are often sorted by class."""
    chosen = min(count, most)
    return torch.arange(chosen) * count // max(chosen, 1)


def _sorted(known: Reference, parts: Iterable[tuple[Outputs, Batch]]) -> tuple[dict[str, Tensor], Tensor]:
    """The scores of the held-out images, uncertainties in ascending order, and whether each was predicted wrongly."""
    found, wrong = [], []
    for outputs, batch in parts:
        scores = all_scores(outputs, known)
        found.append({name: values.cpu() for name, values in scores.items() if not is_variant(name)})
        wrong.append((outputs.predictions != batch.labels).cpu())
    joined = {name: torch.cat([part[name] for part in found]) for name in found[0]}
    uncertainties, errors = joined["uncertainty"], torch.cat(wrong)
    if bad := int((~uncertainties.isfinite()).sum()):
        raise DivergenceError(
            f"the uncertainty of {bad} of {len(uncertainties)} held-out images is not a number or infinite, so no "
            "threshold could be chosen; train again with a lower rate (--set peak_rate=...)."
        )
    order = uncertainties.argsort(stable=True)
    return {name: each[order] for name, each in joined.items() if each.isfinite().all()}, errors[order]
