"""The methods by name, as `--method` spells them, and what each can be told beyond the recipe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from dsui.errors import DsuiError
from dsui.methods.bbb import BayesByBackprop
from dsui.methods.c2ae import ConditionedAutoEncoder
from dsui.methods.dpn import PriorNetwork
from dsui.methods.dsui import DualSupervised
from dsui.methods.dsui_density import DensityPrediction
from dsui.methods.ensemble import Ensemble
from dsui.methods.g_openmax import GenerativeOpenMax
from dsui.methods.gdosr import GenerativeDiscriminative
from dsui.methods.logitnorm import LogitNorm
from dsui.methods.mc_dropout import MCDropout
from dsui.methods.method import Method
from dsui.methods.msp import MaxSoftmax
from dsui.methods.rkl import ReversePriorNetwork
from dsui.methods.sde_net import SDENet
from dsui.recipe import Recipe
from dsui.spelling import unknown_name

METHODS: dict[str, type[Method]] = {
    "dsui": DualSupervised,
    "msp": MaxSoftmax,
    "mc-dropout": MCDropout,
    "bbb": BayesByBackprop,
    "dpn": PriorNetwork,
    "rkl": ReversePriorNetwork,
    "logitnorm": LogitNorm,
    "ensemble": Ensemble,
    "sde-net": SDENet,
    "g-openmax": GenerativeOpenMax,
    "c2ae": ConditionedAutoEncoder,
    "gdosr": GenerativeDiscriminative,
    "dsui-density": DensityPrediction,
}


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(METHODS)


def find(name: str) -> type[Method]:
    """The class of a method; a wrong name is answered with the nearest one."""
    if name not in METHODS:
        raise DsuiError(unknown_name("method", name, METHODS))
    return METHODS[name]


def predictors(trained: str) -> list[str]:
    """The methods that predict with the weights of one: itself, and those that train as it does."""
    return [trained, *(name for name, each in METHODS.items() if trained in each.reads_weights_of)]


def option_kinds(name: str) -> dict[str, Any]:
    """What a method can be told beyond the recipe, with its types."""
    kinds = get_type_hints(find(name).__init__)
    return {each.name: kinds[each.name] for each in _options(name)}


def option_owner(option: str) -> str | None:
    """The first method that has an option of this name, if any does."""
    return next((name for name in METHODS if option in option_kinds(name)), None)


def effective_options(name: str, recipe: Recipe, given: Mapping[str, object]) -> dict[str, object]:
    """Every option of a method: its default, over it what the recipe says, over that what was given."""
    defaults = {each.name: each.default for each in _options(name)}
    of_recipe = {key: value for key, value in recipe.method_options.items() if key in defaults}
    return defaults | of_recipe | dict(given)


def _options(name: str) -> list[inspect.Parameter]:
    """The keyword-only arguments of the constructor."""
    parameters = inspect.signature(find(name).__init__).parameters.values()
    return [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


def build(
    name: str,
    backbone: str,
    channels: int,
    num_classes: int,
    recipe: Recipe,
    options: Mapping[str, object] = {},
    outliers: bool = False,
) -> Method:
    """A freshly initialised method, or a sentence that says why it cannot be trained so."""
    kind = find(name)
    if kind.backbones is not None and backbone not in kind.backbones:
        able = [other for other, each in METHODS.items() if each.backbones is None or backbone in each.backbones]
        raise DsuiError(
            f"{name} cannot be built on {backbone}; choose --backbone {' or '.join(kind.backbones)}, "
            f"or a method that can: {', '.join(able)}."
        )
    if outliers and not kind.learns_from_outliers:
        able = [other for other, each in METHODS.items() if each.learns_from_outliers]
        raise DsuiError(
            f"{name} does not learn from outliers; leave out --outliers or choose a method that does: "
            f"{', '.join(able) or 'there is none'}."
        )
    make: Any = kind
    made: Method = make(backbone, channels, num_classes, recipe, **effective_options(name, recipe, options))
    return made
