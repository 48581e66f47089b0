"""The network behind a run on features: what a file of features says of it, and how it makes features of images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsui.backbones.named import NamedBackbone, load_backbone, weights_fingerprint
from dsui.backbones.preparation import FACTS, LARGEST_SIDE, Preparation
from dsui.errors import DsuiError, RunError
from dsui.plain_json import load_json
from dsui.runs.model import RunFacts
from dsui.schema import NOTHING, check, either, listed, number, record, text, whole

EMBEDDING_FACTS = record(
    {
        "backbone": text(),
        "weights_file": either(text(4096), NOTHING),
        "weights": text(),
        "size": whole(1, LARGEST_SIDE),
        "mean": listed(number(), most=3, least=3),
        "std": listed(number(1e-6), most=3, least=3),
        "preparation": FACTS,
    }
)


@dataclass(frozen=True)
class Embedding:
    """What made features: a spec, the file of its weights if the library's own were replaced, and their fingerprint."""

    backbone: str
    weights_file: str | None
    weights: str
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    preparation: dict[str, object]

    @classmethod
    def of(cls, spec: str, weights: Path | None, loaded: NamedBackbone) -> Embedding:
        found = loaded.preparation
        file = None if weights is None else str(weights.absolute())
        return cls(spec, file, weights_fingerprint(loaded.backbone), found.size, found.mean, found.std, found.facts())

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Embedding:
        """The reverse of `to_text`; a SchemaError where something is missing or of another kind."""
        values: Any = load_json(text)
        check(values, EMBEDDING_FACTS, "embedding")
        mean, std = tuple(values["mean"]), tuple(values["std"])
        known = ("backbone", "weights_file", "weights", "size", "preparation")
        return cls(**{name: values[name] for name in known}, mean=mean, std=std)

    def load(self) -> NamedBackbone:
        """The backbone again; a DsuiError where it has other weights now."""
        file = None if self.weights_file is None else Path(self.weights_file)
        loaded = load_backbone(self.backbone, file, self.size)
        if (found := weights_fingerprint(loaded.backbone)) != self.weights:
            raise DsuiError(
                f"the weights of {self.backbone} are not those that made the features (fingerprint {found} instead of "
                f"{self.weights}); bring these back, or predict files of features."
            )
        prepared = Preparation.of(self.size, self.mean, self.std, self.preparation)
        return NamedBackbone(loaded.backbone, prepared)


class Embedder:
    """Images of any size to features [B, M], by a backbone on its device."""

    def __init__(self, loaded: NamedBackbone, device: torch.device) -> None:
        self.preparation, self.device = loaded.preparation, device
        self.backbone = loaded.backbone.to(device).eval()
        self.width = loaded.backbone.out_features
        self._mean, self._std = (
            torch.tensor(values, device=device).view(-1, 1, 1)
            for values in (loaded.preparation.mean, loaded.preparation.std)
        )

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """uint8 [B, 3, size, size] -> float32 [B, M] on the CPU."""
        inputs = (pixels.to(self.device).float() / 255 - self._mean) / self._std
        features: Tensor = self.backbone(inputs).float().cpu()
        if not features.isfinite().all():
            raise DsuiError("the backbone gives NaN or infinity; check its weights and what it expects of images.")
        return features


def embedder_of(facts: RunFacts, device: torch.device) -> Embedder:
    """What made the features that a run was trained on; a DsuiError where its file did not say it."""
    if facts.embedding is None:
        raise DsuiError(
            f"{facts.path} was trained on features, and its file did not say which network made them; give files of "
            "features, or train on one that `dsui embed` wrote."
        )
    try:
        embedding = Embedding.from_text(facts.embedding)
    except ValueError as error:
        raise RunError(f"{facts.path} does not say rightly what made its features ({error}); train again.") from error
    return Embedder(embedding.load(), device)
