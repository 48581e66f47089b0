"""What the exported graph computes behind the preparation of images: normalisation, network, scores and decision.

It runs the run's own method and the formulas of `dsui.scores`, so nothing is written twice. Scores and densities are
float64 as they are in `dsui predict`, and rounded to float32 at the outputs; thresholds are compared before that.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dsui.deploy.predictor import Predictor
from dsui.deploy.scorer import Scorer
from dsui.detectors.gaussian import Gaussians
from dsui.errors import DsuiError
from dsui.export.upright import UprightClasses
from dsui.methods.doubles import Doubles
from dsui.outputs import Outputs
from dsui.runs.embedding import Embedder
from dsui.scores import all_scores, log_density

CLASS_OUTPUTS = ("label", "probabilities")
ACCEPTED = "accepted"


class DecisionGraph(nn.Module):
    """Pixels [N, C, size, size] as float32 from 0 to 255, or features [N, M], to the outputs called `names`, [N] each
    but the probabilities [N, C].

    `embedder` makes the features of a run on features from pixels; None where the graph takes features, or where the
    method itself takes images.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, predictor: Predictor, embedder: Embedder | None = None) -> None:
        super().__init__()
        model = predictor.model
        if model.method.draws:
            raise DsuiError(
                f"{model.facts.config.method} draws random numbers for every prediction and averages over "
                f"{model.method.passes} passes, so no fixed graph gives its predictions; export a method that predicts "
                "in one pass, such as dsui, or predict with dsui predict."
            )
        self.on_features = model.facts.config.on_features
        self.limits = () if predictor.chosen is None else predictor.chosen.limits
        self.scorer, self.temperature = _traceable(predictor.scorer), predictor.calibration.temperature or 1.0
        self.transform, self.embedding = model.transform, None if embedder is None else embedder.backbone
        if embedder is not None:
            for name, values in (("mean", embedder.preparation.mean), ("std", embedder.preparation.std)):
                self.register_buffer(name, torch.tensor(values).view(-1, 1, 1))
        self.example = torch.zeros(_shape(predictor, embedder))
        self.method: nn.Module = copy.deepcopy(model.method)
        found = self._outputs(self.example)
        own = {limit.score for limit in self.limits} & set(self._predict(self.example).own)
        if isinstance(self.method, Doubles) and not own:
            self.method = UprightClasses(self.method)
        self.names = tuple(found)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._outputs(inputs).values())

    def _outputs(self, inputs: Tensor) -> dict[str, Tensor]:
        outputs = self._predict(inputs)
        scores = all_scores(outputs, self.scorer.reference)
        if (detector := self.scorer.detector) is not None:
            scores |= detector.traced_scores(outputs, scores)
        probabilities = (outputs.logits.double() / self.temperature).softmax(1)
        found = dict(zip(CLASS_OUTPUTS, (outputs.predictions, probabilities.float()), strict=True))
        found["uncertainty"] = scores["uncertainty"].float()
        if "foreignness" in scores:
            found["foreignness"] = scores["foreignness"].float()
        if outputs.log_joint is not None:
            found["log_density"] = (-log_density(outputs.log_joint)).float()
        for limit in self.limits:
            found.setdefault(limit.score, scores[limit.score].float())
        if self.limits:
            within = [scores[limit.score] <= limit.value for limit in self.limits]
            found[ACCEPTED] = within[0] if len(within) == 1 else within[0] & within[1]
        return found

    def _predict(self, inputs: Tensor) -> Outputs:
        outputs: Outputs = self.method.predict(self._method_inputs(inputs))  # type: ignore[operator]
        return outputs

    def _method_inputs(self, inputs: Tensor) -> Tensor:
        """What the run's method takes, as `Transform.plain` and `Embedder` make it."""
        if self.embedding is not None:
            features: Tensor = self.embedding((inputs / 255 - self.mean) / self.std)
            return features.float()[:, :, None, None]
        if self.on_features:
            return inputs[:, :, None, None]
        return inputs * self.transform.scale + self.transform.shift


def _traceable(scorer: Scorer) -> Scorer:
    """The same scores by operations that ONNX has."""
    if scorer.detector is None:
        return scorer
    detector = copy.copy(scorer.detector.detector)
    for name, value in list(vars(detector).items()):
        if isinstance(value, Gaussians):
            setattr(detector, name, value.inverted())
    return scorer._replace(detector=scorer.detector._replace(detector=detector))


def _shape(predictor: Predictor, embedder: Embedder | None) -> tuple[int, ...]:
    """Of two inputs."""
    if embedder is None and predictor.model.facts.config.on_features:
        return 2, predictor.model.facts.config.channels
    form = predictor.form
    return 2, form.channels, form.size, form.size
