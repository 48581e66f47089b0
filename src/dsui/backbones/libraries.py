"""Networks of timm, torchvision and transformers, without their classifiers, and how their images are prepared.

Each function imports its library. `pretrained` False gives the architecture alone, for weights that come from a run or
a file. Nothing is unpickled here: transformers is told to load safetensors, and the others verify what they download.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor, nn

from dsui.backbones.adapt import adapt
from dsui.backbones.preparation import Preparation
from dsui.errors import DsuiError
from dsui.excerpt import shorten

LARGE = 384
"""From this size on, transformers' ConvNeXt resizes the whole image instead of cropping."""


class LibraryModel(NamedTuple):
    """`model` as its library gives it, `finish` turns it into one that gives features [B, M]."""

    model: nn.Module
    preparation: Preparation
    finish: Callable[[nn.Module, Preparation], nn.Module]


def from_timm(name: str, pretrained: bool) -> LibraryModel:
    import timm

    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0)  # without its classifier
    except (RuntimeError, ValueError, OSError) as error:
        raise _not_loaded("timm", name, error) from error
    facts = timm.data.resolve_model_data_config(model)
    size = facts["input_size"][-1]
    preparation = Preparation(
        size=size,
        edge=int(size / facts["crop_pct"]),
        fit="squash" if facts.get("crop_mode") == "squash" else "crop",
        interpolation=facts["interpolation"],
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
    )
    return LibraryModel(model, preparation, lambda whole, _preparation: whole)


def from_torchvision(name: str, pretrained: bool) -> LibraryModel:
    from torchvision import models

    try:
        weights = models.get_model_weights(name).DEFAULT
        model = models.get_model(name, weights=weights if pretrained else None)
    except (ValueError, OSError) as error:
        raise _not_loaded("torchvision", name, error) from error
    facts = weights.transforms()
    preparation = Preparation(
        size=facts.crop_size[0],
        edge=facts.resize_size[0],
        interpolation=str(facts.interpolation.value),
        mean=tuple(facts.mean),
        std=tuple(facts.std),
    )
    return LibraryModel(model, preparation, lambda whole, found: adapt(whole, (3, found.size, found.size)))


def from_transformers(name: str, pretrained: bool) -> LibraryModel:
    from transformers import AutoConfig, AutoImageProcessor, AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # it remarks on every tensor that a model without its classifier does not need
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        processor = AutoImageProcessor.from_pretrained(name)
        if pretrained:
            model, found = AutoModel.from_pretrained(name, use_safetensors=True, output_loading_info=True)
            missing = sorted(found["missing_keys"])
        else:
            model, missing = AutoModel.from_config(AutoConfig.from_pretrained(name)), []
    except (OSError, ValueError, KeyError) as error:
        raise _not_loaded("hf", name, error) from error
    facts = _of_processor(name, processor.to_dict())
    if unfound := [each for each in missing if "pooler" not in each]:
        raise DsuiError(f"hf:{name}: its weights lack {unfound[0]}; name another model.")
    facts = facts if not missing else replace(facts, readout="token")
    return LibraryModel(getattr(model, "vision_model", model), facts, lambda whole, each: Pooled(whole, each.readout))


class Pooled(nn.Module):
    """A model of transformers as images -> features [B, M]; `readout` as in `Preparation`."""

    def __init__(self, model: nn.Module, readout: str) -> None:
        super().__init__()
        self.model, self.readout = model, readout

    def forward(self, images: Tensor) -> Tensor:
        answer = self.model(pixel_values=images)
        states: Tensor = answer.last_hidden_state
        pooled: Tensor | None = getattr(answer, "pooler_output", None)
        if pooled is not None and self.readout == "pooled":
            return pooled.flatten(1)
        return states[:, 0] if states.ndim == 3 else states.mean(tuple(range(2, states.ndim)))


def _of_processor(name: str, facts: Mapping[str, Any]) -> Preparation:
    """From the settings of an image processor."""
    size, crop = facts.get("size") or {}, facts.get("crop_size") or {}
    crops = bool(facts.get("do_center_crop")) and bool(crop)
    shortest = size.get("shortest_edge")
    side = crop["height"] if crops else (shortest or size.get("height"))
    if side is None or size.get("height") != size.get("width") or crop.get("height") != crop.get("width"):
        raise DsuiError(f"hf:{name} takes images that are not square; name a model that takes squares.")
    share = facts.get("crop_pct")
    squash = (shortest is None and not crops) or (share is not None and side >= LARGE)
    edge = shortest or size["height"]
    return Preparation(
        size=side,
        edge=int(side / share) if share is not None and not crops else edge,
        fit="squash" if squash else "crop",
        interpolation=Image.Resampling(int(facts.get("resample", 2))).name.lower(),
        rounds_down=True,
        mean=tuple(map(float, facts["image_mean"])) if facts.get("do_normalize", True) else (0.0, 0.0, 0.0),
        std=tuple(map(float, facts["image_std"])) if facts.get("do_normalize", True) else (1.0, 1.0, 1.0),
    )


def _not_loaded(library: str, name: str, error: Exception) -> DsuiError:
    return DsuiError(
        f"{library}:{name} cannot be loaded ({shorten(error)}); correct the name, or bring its weights to this machine "
        "and name them with --weights FILE."
    )


LOADERS: Mapping[str, Callable[[str, bool], LibraryModel]] = {
    "timm": from_timm,
    "torchvision": from_torchvision,
    "hf": from_transformers,
}
