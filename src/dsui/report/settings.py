"""The settings a run was trained with, as words; those of mixtures apart, which a method without one does not read."""

from __future__ import annotations

import json
from typing import NamedTuple

import torch

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
"""What a recipe says of mixtures."""


class Settings(NamedTuple):
    """By name; `mixture` is empty for a method that has none."""

    general: dict[str, str]
    mixture: dict[str, str]


def settings(facts: RunFacts) -> Settings:
    shown = {key: _word(value) for key, value in facts.config.mapping().items()}
    general = {key: word for key, word in shown.items() if key not in MIXTURE}
    return Settings(general, {key: shown[key] for key in shown if key in MIXTURE} if _has_mixture(facts) else {})


def _has_mixture(facts: RunFacts) -> bool:
    """Asked of the method itself, built without memory for its weights."""
    config = facts.config
    with torch.device("meta"):
        method = build(
            config.method, config.backbone, config.channels, len(facts.classes), config.recipe, config.options
        )
    return any(True for _ in method.mixture_parameters())


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
