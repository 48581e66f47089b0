"""The backbone that a spec names (`dsui.backbones.spec`), with weights and with what prepares its images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dsui.backbones.backbone import Backbone
from dsui.backbones.libraries import LOADERS, check_complete, from_transformers
from dsui.backbones.own import OwnBackbone, as_backbone
from dsui.backbones.preparation import LARGEST_SIDE, RESIZING, USUAL_SIZE, Preparation, Readout
from dsui.backbones.spec import call, check_spec, is_code
from dsui.errors import DsuiError
from dsui.excerpt import shorten
from dsui.regular_file import check_regular
from dsui.schema import Kind, SchemaError, check, listed, number, record, whole

PREPARATION = "preparation"
"""What a module of the user's may have: a mapping like `Preparation`, or some of it."""
_PREPARATION_PARTS: Mapping[str, Kind] = {
    **RESIZING,
    "size": whole(1, LARGEST_SIDE),
    "mean": listed(number(), most=3, least=3),
    "std": listed(number(1e-6), most=3, least=3),
}
"""What it may hold."""
PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")


class NamedBackbone(NamedTuple):
    """Images [B, 3, size, size] -> features, and how such images are made."""

    backbone: Backbone
    preparation: Preparation


def load_backbone(
    spec: str,
    weights: Path | None = None,
    size: int | None = None,
    *,
    pretrained: bool = True,
    readout: Readout | None = None,
    classes: int | None = None,
) -> NamedBackbone:
    """`weights` is a file of safetensors that replaces the library's own; `size` the side of the images, by default the
    library's. Without `pretrained` the weights are random, to be replaced by those of a run; `readout` is that run's.
    `classes` is how many classes the data has, where it is known: as many outputs of one's own network are no features.
    """
    check_spec(spec)
    tensors = None if weights is None else read_weights(weights)
    library, _, name = spec.partition(":")
    if is_code(spec):
        module = call(spec)
        preparation = _stated(spec, module, size)
        if tensors is not None:
            put(module, tensors, weights, spec)
        return NamedBackbone(as_backbone(module, (3, preparation.size, preparation.size), classes), preparation)
    if weights is not None and library == "hf":
        model, preparation, finish = from_transformers(name, True, weights)
    else:
        model, preparation, finish = LOADERS[library](name, pretrained and tensors is None)
        if tensors is not None:
            put(model, tensors, weights, spec)
    if readout is not None:
        preparation = replace(preparation, readout=readout)
    preparation = preparation if size is None else preparation.resized(size)
    finished = finish(model, preparation)
    shape = (3, preparation.size, preparation.size)
    own = finished if isinstance(finished, Backbone) else _of_library(finished, shape, spec)
    return NamedBackbone(own, preparation)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a pickle, which could run code, is refused."""
    if path.suffix.lower() in PICKLES:
        raise DsuiError(
            f"{path} is a pickle by its name, which can run any code when it is opened; convert it to safetensors "
            "where you trust it, and name that file."
        )
    try:
        check_regular(path)
        return load_file(path)
    except SafetensorError as error:
        raise DsuiError(
            f"{path} is no whole safetensors file ({shorten(error)}); copy it again, or convert the weights to "
            "safetensors."
        ) from error
    except OSError as error:
        raise DsuiError(f"{path} cannot be read ({error.strerror or shorten(error)}); correct --weights.") from error


def put(model: nn.Module, tensors: dict[str, Tensor], path: Path | None, spec: str) -> None:
    """Load tensors into a model. A classifier that they have beyond it does not matter, but nothing may be missing."""
    expected = model.state_dict()
    missing = [name for name in expected if name not in tensors]
    shapes = {name: (tensors[name].shape, each.shape) for name, each in expected.items() if name in tensors}
    wrong = [(name, str(list(there)), str(list(here))) for name, (there, here) in shapes.items() if there != here]
    check_complete(spec, path, len(expected), missing, wrong)
    model.load_state_dict({name: tensors[name] for name in expected if name in tensors}, strict=False)


def weights_fingerprint(backbone: nn.Module) -> str:
    """Sixteen digits that change with any weight, and not with the names that a version of a library gives them."""
    tensors = (each.detach().cpu().contiguous() for each in backbone.state_dict().values())
    facts = (
        f"{list(each.shape)} {hashlib.sha256(each.flatten().view(torch.uint8).numpy().data).hexdigest()}"
        for each in tensors
    )
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:16]


def _of_library(model: nn.Module, shape: tuple[int, int, int], spec: str) -> Backbone:
    """A library's model that gives features, whatever its attribute `out_features` may mean."""
    probe = model.eval()
    try:
        with torch.no_grad():
            found = probe(torch.rand((2, *shape), generator=torch.Generator().manual_seed(0)))
    except Exception as error:
        raise DsuiError(
            f"{spec} fails on images of {shape[1]} x {shape[2]} pixels ({shorten(error)}); choose another --size, or "
            "leave it out."
        ) from error
    if not isinstance(found, Tensor) or found.ndim != 2:
        raise DsuiError(f"{spec} gives no features [B, M]; write a function that makes them of it.")
    return OwnBackbone(model.train(), found.shape[1])


def _stated(spec: str, module: nn.Module, size: int | None) -> Preparation:
    """What a user's module says of its images, and the usual values for the rest."""
    stated = getattr(module, PREPARATION, {})
    if not isinstance(stated, Mapping) or not set(stated) <= set(_PREPARATION_PARTS):
        raise DsuiError(
            f"{spec}: its `preparation` must be a mapping with no keys but {', '.join(_PREPARATION_PARTS)}; correct it."
        )
    values: dict[str, Any] = {name: list(each) if isinstance(each, tuple) else each for name, each in stated.items()}
    try:
        check(values, record({}, _PREPARATION_PARTS), PREPARATION)
    except SchemaError as error:
        raise DsuiError(f"{spec}: its {error}; correct it.") from error
    side = values.pop("size", size or USUAL_SIZE)
    found = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
    preparation = Preparation(**{"edge": side, **found, "size": side})
    if preparation.edge < side:
        raise DsuiError(
            f"{spec}: its preparation.edge is {preparation.edge}, smaller than its size {side}; correct it."
        )
    return preparation if size is None else preparation.resized(size)
