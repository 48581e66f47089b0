"""Networks of timm, torchvision and transformers, without their classifiers, and how their images are prepared.

Each function imports its library. `pretrained` False gives the architecture alone, for weights that come from a run or
a file. No weights can run code: transformers is told to load safetensors, and where timm and torchvision have files of
PyTorch, `torch.load` is told to read tensors alone.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor, nn

from dsui.backbones.adapt import adapt
from dsui.backbones.preparation import Preparation
from dsui.errors import DsuiError
from dsui.excerpt import shorten

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""With this variable of the environment `torch.load` reads tensors and nothing that could run code."""
RESIZES_POSITIONS = "interpolate_pos_encoding"
"""The argument with which a transformer takes images of another size than it was trained with."""
UNUSUAL = ("do_flip_channel_order", "rescale_offset", "include_top")
"""What some processors of transformers do with pixels, and `Preparation` does not."""
POOLING = "pooler"
"""In the names of a pooling layer's tensors."""
COUNTERS = "num_batches_tracked"
"""Older weights lack these, and batch norm does not need them."""
LARGE = 384
"""From this size on, transformers' ConvNeXt resizes the whole image instead of cropping."""


class LibraryModel(NamedTuple):
    """`model` as its library gives it, `finish` turns it into one that gives features [B, M]."""

    model: nn.Module
    preparation: Preparation
    finish: Callable[[nn.Module, Preparation], nn.Module]


@contextmanager
def tensors_only() -> Iterator[None]:
    """Within it `torch.load` unpickles no code, whatever its caller asks for."""
    before = os.environ.get(WEIGHTS_ONLY)
    os.environ[WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[WEIGHTS_ONLY]
        else:
            os.environ[WEIGHTS_ONLY] = before


def from_timm(name: str, pretrained: bool) -> LibraryModel:
    import timm

    _quiet_hub()
    try:
        with tensors_only():
            model = timm.create_model(name, pretrained=pretrained, num_classes=0)  # without its classifier
    except (RuntimeError, ValueError, OSError, UnpicklingError) as error:
        raise _not_loaded("timm", name, error) from error
    facts = timm.data.resolve_model_data_config(model)
    size = facts["input_size"][-1]
    if facts["input_size"] != (3, size, size) or facts.get("crop_mode") == "border":
        raise DsuiError(f"timm:{name} takes images that are not colour squares; name a model that takes these.")
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
        with tensors_only():
            model = models.get_model(name, weights=weights if pretrained else None)
    except (ValueError, OSError, UnpicklingError) as error:
        raise _not_loaded("torchvision", name, error) from error
    facts = weights.transforms()
    preparation = Preparation(
        size=facts.crop_size[0],
        edge=facts.resize_size[0],
        interpolation=str(facts.interpolation.value),
        mean=tuple(facts.mean),
        std=tuple(facts.std),
    )

    def without_classifier(whole: nn.Module, found: Preparation) -> nn.Module:
        try:
            return adapt(whole, (3, found.size, found.size))
        except ValueError as error:
            raise DsuiError(
                f"the classifier of torchvision:{name} cannot be taken out ({shorten(str(error).split(';')[0])}); "
                "choose another model or --size, or write a function that returns its features."
            ) from error

    return LibraryModel(model, preparation, without_classifier)


def from_transformers(name: str, pretrained: bool, weights: Path | None = None) -> LibraryModel:
    """`weights` is a file of safetensors in the form of the hub, whose names transformers may change as it loads."""
    from transformers import AutoConfig, AutoImageProcessor, AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # it remarks on every tensor that a model without its classifier does not need
    _quiet_hub()
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        processor = AutoImageProcessor.from_pretrained(name)
        config = AutoConfig.from_pretrained(name)
        if pretrained or weights is not None:
            with _source(name, config, weights) as source:
                model, found = AutoModel.from_pretrained(
                    source, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
                )
        else:
            model, found = AutoModel.from_config(config), {}
    except (OSError, ValueError, KeyError) as error:
        raise _not_loaded("hf", name, error) from error
    facts = _of_processor(name, processor.to_dict())
    missing = sorted(found.get("missing_keys", ()))
    wrong = [(each, str(list(there)), str(list(here))) for each, there, here in found.get("mismatched_keys", ())]
    check_complete(f"hf:{name}", weights, len(model.state_dict()), missing, wrong)
    facts = replace(facts, readout="token") if any(POOLING in each for each in missing) else facts
    return LibraryModel(
        getattr(model, "vision_model", model), facts, lambda whole, each: Pooled(whole, each.readout, each.size)
    )


def _quiet_hub() -> None:
    """It would remark on every attempt to reach it."""
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()


@contextmanager
def _source(name: str, config: Any, weights: Path | None) -> Iterator[str]:
    """What transformers shall load: a name, or a folder with the config of that name and other weights."""
    if weights is None:
        yield name
        return
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        try:
            Path(folder, "model.safetensors").symlink_to(weights.resolve())
        except OSError:  # a system that lets only some users make links
            shutil.copyfile(weights, Path(folder, "model.safetensors"))
        yield folder


def check_complete(
    spec: str, weights: Path | None, expected: int, missing: Sequence[str], wrong: Sequence[tuple[str, str, str]]
) -> None:
    """Raise unless a network found all of its `expected` tensors, but for a pooling layer's and counters; `wrong` are
    names with the shape there and the shape here."""
    absent = [name for name in missing if POOLING not in name and not name.endswith(COUNTERS)]
    if not absent and not wrong:
        return
    what = (
        f"they lack {len(absent)} of its {expected} tensors, {absent[0]} for one"
        if absent
        else f"{wrong[0][0]} has the shape {wrong[0][1]} there and {wrong[0][2]} here"
    )
    if weights is None:
        raise DsuiError(f"the weights of {spec} are not whole ({what}); name another model.")
    raise DsuiError(f"the weights in {weights} are not those of {spec} ({what}); name the file of this model.")


class Pooled(nn.Module):
    """A model of transformers as images [B, 3, size, size] -> features [B, M]; `readout` as in `Preparation`."""

    def __init__(self, model: nn.Module, readout: str, size: int) -> None:
        super().__init__()
        self.model, self.readout = model, readout
        other = getattr(getattr(model, "config", None), "image_size", size) != size
        known = RESIZES_POSITIONS in inspect.signature(model.forward).parameters
        self.arguments = {RESIZES_POSITIONS: True} if other and known else {}

    def forward(self, images: Tensor) -> Tensor:
        answer = self.model(pixel_values=images, **self.arguments)
        states: Tensor = answer.last_hidden_state
        pooled: Tensor | None = getattr(answer, "pooler_output", None)
        if pooled is not None and self.readout == "pooled":
            return pooled.flatten(1)
        return states[:, 0] if states.ndim == 3 else states.mean(tuple(range(2, states.ndim)))


def _of_processor(name: str, facts: Mapping[str, Any]) -> Preparation:
    """From the settings of an image processor."""
    if unusual := [each for each in UNUSUAL if facts.get(each)]:
        raise DsuiError(f"hf:{name} changes pixels in a way that dsui does not ({unusual[0]}); name another model.")
    size, crop = facts.get("size") or {}, facts.get("crop_size") or {}
    crops = bool(facts.get("do_center_crop")) and bool(crop)
    shortest = size.get("shortest_edge")
    side = crop["height"] if crops else (shortest or size.get("height"))
    if side is None or size.get("height") != size.get("width") or crop.get("height") != crop.get("width"):
        raise DsuiError(f"hf:{name} takes images that are not square; name a model that takes squares.")
    share = facts.get("crop_pct")
    squash = (shortest is None and not crops) or (share is not None and side >= LARGE)
    edge = side if squash else shortest or size["height"]
    return Preparation(
        size=side,
        edge=int(side / share) if share is not None and not crops and not squash else edge,
        fit="squash" if squash else "crop",
        interpolation=Image.Resampling(int(facts.get("resample", 2))).name.lower(),
        rounds_down=True,
        mean=tuple(map(float, facts["image_mean"])) if facts.get("do_normalize", True) else (0.0, 0.0, 0.0),
        std=tuple(map(float, facts["image_std"])) if facts.get("do_normalize", True) else (1.0, 1.0, 1.0),
    )


def _not_loaded(library: str, name: str, error: Exception) -> DsuiError:
    first = str(error).split(". ")[0].split("\n")[0].rstrip(".")
    more = " or the folder" if library == "hf" else ""
    return DsuiError(
        f"{library}:{name} cannot be loaded ({shorten(first)}); correct the name{more}, or, where its weights cannot "
        "be fetched, bring them to this machine and name them with --weights FILE."
    )


LOADERS: Mapping[str, Callable[[str, bool], LibraryModel]] = {
    "timm": from_timm,
    "torchvision": from_torchvision,
    "hf": from_transformers,
}
