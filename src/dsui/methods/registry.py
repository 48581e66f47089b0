"""The methods by name, as `--method` spells them, and the options each takes beyond the recipe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from dsui.backbones.registry import FEATURES, HEAD
from dsui.errors import DsuiError
from dsui.lazy_registry import LazyRegistry
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.methods.method import Method
    from dsui.recipe import Recipe

METHODS: LazyRegistry[type[Method]] = LazyRegistry(
    {
        "dsui": "dsui.methods.dsui:DualSupervised",
        "msp": "dsui.methods.msp:MaxSoftmax",
        "mc-dropout": "dsui.methods.mc_dropout:MCDropout",
        "bbb": "dsui.methods.bbb:BayesByBackprop",
        "dpn": "dsui.methods.dpn:PriorNetwork",
        "rkl": "dsui.methods.rkl:ReversePriorNetwork",
        "logitnorm": "dsui.methods.logitnorm:LogitNorm",
        "rotpred": "dsui.methods.rotpred:RotPred",
        "ensemble": "dsui.methods.ensemble:Ensemble",
        "sde-net": "dsui.methods.sde_net:SDENet",
        "g-openmax": "dsui.methods.g_openmax:GenerativeOpenMax",
        "c2ae": "dsui.methods.c2ae:ConditionedAutoEncoder",
        "gdosr": "dsui.methods.gdosr:GenerativeDiscriminative",
        "dsui-density": "dsui.methods.dsui_density:DensityPrediction",
    }
)


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(METHODS)


def find(name: str) -> type[Method]:
    """The class of a method; a wrong name is answered with the nearest one."""
    if name not in METHODS:
        raise DsuiError(unknown_name("method", name, METHODS))
    return METHODS[name]


def predictors(trained: str) -> list[str]:
    """The methods that can predict with the weights of `trained`: itself, and those that train in the same way."""
    return [trained, *(name for name, method in METHODS.items() if trained in method.reads_weights_of)]


def taking_copies() -> list[str]:
    """The methods whose batches can hold mixed copies of their images."""
    return [name for name, method in METHODS.items() if method.takes_copies]


def adjustable() -> list[str]:
    """The methods whose logits can be adjusted to classes of uneven size."""
    return [name for name, method in METHODS.items() if method.adjustable]


def option_kinds(name: str) -> dict[str, Any]:
    """The options a method takes beyond the recipe, with their types."""
    return _kinds(find(name))


def option_owner(option: str) -> str | None:
    """The first method that has an option of this name, if any does."""
    return next((name for name, method in METHODS.items() if option in _kinds(method)), None)


def effective_options(name: str, recipe: Recipe, given: Mapping[str, object]) -> dict[str, object]:
    """Every option of a method: its default, over it what the recipe says, over that what was given."""
    defaults = {option.name: option.default for option in _options(find(name))}
    of_recipe = {key: value for key, value in recipe.method_options.items() if key in defaults}
    return defaults | of_recipe | dict(given)


def build(
    name: str,
    backbone: str,
    channels: int,
    num_classes: int,
    recipe: Recipe,
    options: Mapping[str, object] = {},
    outliers: bool = False,
) -> Method:
    """A freshly initialised method; DsuiError where it cannot use this backbone, or cannot learn from outliers."""
    method = find(name)
    if (backbone == FEATURES or recipe.freeze_until == HEAD) and (method.needs_images or recipe.doubles != "none"):
        able = [other for other, each in METHODS.items() if not each.needs_images]
        what, advice = (
            (name, f"choose a method that does not: {', '.join(able)}")
            if method.needs_images
            else ("doubles=turns", "train with --set doubles=none")
        )
        raise DsuiError(f"{what} needs images, and the head is trained on features; {advice}.")
    if method.backbones is not None and backbone not in method.backbones:
        able = [other for other, each in METHODS.items() if each.backbones is None or backbone in each.backbones]
        raise DsuiError(
            f"{name} cannot be built on {backbone}; choose --backbone {' or '.join(method.backbones)}, "
            f"or a method that can: {', '.join(able)}."
        )
    if outliers and not method.learns_from_outliers:
        able = [other for other, each in METHODS.items() if each.learns_from_outliers]
        raise DsuiError(
            f"{name} does not learn from outliers; leave out --outliers or choose a method that does: "
            f"{', '.join(able) or 'there is none'}."
        )
    constructor: Any = method
    chosen = effective_options(name, recipe, options)
    if recipe.doubles == "none":
        return constructor(backbone, channels, num_classes, recipe, **chosen)  # type: ignore[no-any-return]
    from dsui.methods.doubles import TURNS, Doubles

    if method.copies > 0:
        raise DsuiError(f"{name} has turned copies of its own; train with --set doubles=none.")
    if method.takes_doubles:
        whole = constructor(backbone, channels, TURNS * num_classes, recipe, **chosen)
        return Doubles(whole, num_classes, recipe.doubles_copies)
    built: Method = constructor(backbone, channels, num_classes, recipe, **chosen)
    if built.copies == 0:  # the members of an ensemble may have doubles
        able = [other for other, each in METHODS.items() if each.takes_doubles]
        raise DsuiError(
            f"{name} cannot be trained with doubles; train with --set doubles=none or choose a method that can: "
            f"{', '.join(able)}."
        )
    return built


@cache
def _kinds(method: type[Method]) -> dict[str, Any]:
    kinds = get_type_hints(method.__init__)
    return {option.name: kinds[option.name] for option in _options(method)}


@cache
def _options(method: type[Method]) -> tuple[inspect.Parameter, ...]:
    """The keyword-only arguments of the constructor."""
    parameters = inspect.signature(method.__init__).parameters.values()
    return tuple(each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY)
