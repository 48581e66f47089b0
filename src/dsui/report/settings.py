"""The settings a run was trained with, as text. Those of mixtures are apart: a method without mixtures ignores them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

import torch

from dsui.backbones.registry import FEATURES, names
from dsui.methods.registry import build
from dsui.runs.model import RunFacts

MIXTURE = frozenset(
    {
        "decay_mixture",
        "head",
        "components",
        "objective",
        "rho",
        "gamma",
        "regularizer",
        "density_warm_up",
        "initialize",
    }
)
"""The settings of a recipe that concern mixtures."""


class Settings(NamedTuple):
    """By name; `mixture` is empty for a method without mixtures."""

    general: dict[str, str]
    mixture: dict[str, str]


def settings(facts: RunFacts) -> Settings:
    shown = {key: _text(value) for key, value in facts.config.mapping().items()}
    general = {key: text for key, text in shown.items() if key not in MIXTURE}
    return Settings(general, {key: shown[key] for key in shown if key in MIXTURE} if _has_mixture(facts) else {})


def _has_mixture(facts: RunFacts) -> bool:
    """Builds the method, without memory for its weights, and looks. Another backbone does in place of one that dsui
    does not build."""
    config = facts.config
    backbone, recipe = config.backbone, config.recipe
    if backbone not in (FEATURES, *names()):
        backbone, recipe = names()[0], replace(recipe, freeze_until="")
    with torch.device("meta"):
        method = build(config.method, backbone, config.channels, len(facts.classes), recipe, config.options)
    return any(True for _ in method.mixture_parameters())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
