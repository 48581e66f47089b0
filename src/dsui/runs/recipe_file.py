"""Recipes as files: one flat YAML mapping each. A key is a field of `Recipe`, or an option of a method.

A value may depend on the data set: `epochs: {default: 100, svhn: 40}`, or be another one for a network that starts from
weights of another library: `epochs: {default: 60, pretrained: 15}`. A user's file gives what differs from the recipe
that it extends, `extends: modern`, or from `paper`. Later values win: extended recipe, file, overrides. A method takes
the options that it has and ignores the others, so that one recipe serves every method.

Where `epochs` is overridden, a length in epochs (`cycle`, `rate_warm_up`, and options such as `density_warm_up`) may no
longer fit. Unless it is overridden too, it shrinks in proportion: round(epochs * length before / epochs before). So
`epochs: 3` alone makes a short run of any recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dsui.data.registry import OWN, dataset_info
from dsui.errors import DataError
from dsui.excerpt import excerpt, shorten
from dsui.methods.registry import effective_options, find, option_kinds, option_owner
from dsui.plain_yaml import MOST_CHARACTERS, YamlError, load_yaml
from dsui.recipe import Recipe, RecipeError
from dsui.regular_file import read_regular
from dsui.schema import LARGEST
from dsui.spelling import nearest

Layer = dict[str, Any]
LONGEST_TEXT = 200
"""Characters of a setting."""
FIELDS: dict[str, Any] = {key: kind for key, kind in get_type_hints(Recipe).items() if key != "method_options"}
OVERRIDES, EXTENDS, EXTENDED_BY_DEFAULT = "the overrides", "extends", "paper"
DEFAULT, PRETRAINED = "default", "pretrained"


def names() -> list[str]:
    """The recipes that come with dsui."""
    files = (resources.files("dsui.runs") / "recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_recipe(name: str, data: str, overrides: Mapping[str, object] = {}, *, pretrained: bool = False) -> Recipe:
    """The recipe of that name, or of a path ending in .yaml or .yml, for a data set and a network that is `pretrained`.

    `overrides` win over the file; their strings are read as YAML, as from `--set epochs=3`.
    """
    is_file = name.lower().endswith((".yaml", ".yml"))
    settings: Layer = {"name": Path(name).stem if is_file else name}
    for where, layer in [*(_file_layers(name) if is_file else _shipped_layers(name)), (OVERRIDES, _parsed(overrides))]:
        settings = _updated(settings, _resolved(layer, data, where, pretrained))
    return _checked(Recipe.from_settings(settings))


def changed(recipe: Recipe, data: str, overrides: Mapping[str, object]) -> Recipe:
    """The recipe with `overrides`, as `load_recipe` applies them."""
    settings = _updated(recipe.settings(), _resolved(_parsed(overrides), data, OVERRIDES))
    return _checked(Recipe.from_settings(settings))


def method_options(name: str, overrides: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The overrides in two parts: those for `load_recipe`, and the options of the method `name`, converted.

    Options that shipped recipes give, such as `components`, belong to the first part: it is the recipe's value that
    they replace, also for an ensemble whose members read it.
    """
    kinds, in_recipes = option_kinds(name), _keys_of_recipes()
    of_method = {key: value for key, value in overrides.items() if key in kinds and key not in in_recipes}
    options = {
        key: _converted(key, value, f"the options of {name}", kinds[key]) for key, value in _parsed(of_method).items()
    }
    of_recipe = {key: value for key, value in overrides.items() if key not in of_method}
    for key in of_recipe:
        if key not in in_recipes:
            suggestion = nearest(key, [*in_recipes, *kinds], 0)
            raise RecipeError(
                f"neither the recipe nor {name} has a setting {excerpt(key)}; did you mean {suggestion!r}?"
            )
    return of_recipe, options


@cache
def _keys_of_recipes() -> tuple[str, ...]:
    """What a shipped recipe gives, and an override may change; not the name, which would hide what was changed."""
    ((_, paper),) = _shipped_layers("paper")
    return tuple(paper)


def _checked(recipe: Recipe) -> Recipe:
    """The recipe, or an error that names an option which no training can use."""
    for owner in sorted({name for name in map(option_owner, recipe.method_options) if name is not None}):
        options = effective_options(owner, recipe, {})
        for key, holds, expected in find(owner).option_ranges(options, recipe):
            if not holds:
                shown = excerpt(options[key])
                raise RecipeError(f"recipe {excerpt(recipe.name)}: {key} is {shown}; it must be {expected}.")
    return recipe


def _shipped_layers(name: str, subject: str | None = None) -> list[tuple[str, Layer]]:
    """The one layer of a shipped recipe; `subject` begins the sentence if there is no recipe of that name."""
    if name not in (known := names()):
        suggestion = nearest(name, known, 0)
        subject = subject or f"recipe {excerpt(name)} is not a .yaml file and"
        raise RecipeError(f"{subject} none of {', '.join(known)}; did you mean {suggestion}?")
    return [(f"recipe {excerpt(name)}", _shipped_layer(name))]


@cache
def _shipped_layer(name: str) -> Layer:
    """Parsed once, because a grid asks for it once per cell; nobody may change it."""
    text = (resources.files("dsui.runs") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    return _mapping(text, f"recipe {excerpt(name)}")


def _file_layers(path: str) -> list[tuple[str, Layer]]:
    """The layers of a user's file: the recipe that it extends, and what it says itself."""
    try:
        text = read_regular(Path(path).expanduser(), 4 * MOST_CHARACTERS).decode()
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {shorten(path)}: {error.strerror}.") from error
    except (ValueError, RuntimeError) as error:  # no UTF-8 text, or no path
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else shorten(error)
        raise RecipeError(f"cannot read the recipe {shorten(path)}: {reason}.") from error
    path = shorten(path)
    layer = _mapping(text, path)
    extended = layer.pop(EXTENDS, None) or EXTENDED_BY_DEFAULT
    if not isinstance(extended, str):
        raise RecipeError(f"{path} extends {excerpt(extended)}; name one of {', '.join(names())}.")
    return [*_shipped_layers(extended, f"{path} extends {excerpt(extended)}, which is"), (path, layer)]


def _mapping(text: str, where: str) -> Layer:
    values = _yaml(text, where)
    if not isinstance(values, dict):
        raise RecipeError(f"{where} is not a mapping; write one 'key: value' on each line.")
    return {str(key): value for key, value in values.items()}


def _parsed(overrides: Mapping[str, object]) -> Layer:
    return {
        key: _yaml(value, shorten(f"the override {key}={value}", 100)) if isinstance(value, str) else value
        for key, value in overrides.items()
    }


def _yaml(text: str, where: str) -> object:
    try:
        return load_yaml(text)
    except YamlError as error:
        raise RecipeError(f"{where} is not valid YAML: {error}.") from error


def _resolved(layer: Layer, data: str, where: str, pretrained: bool = False) -> Layer:
    """The layer's values for this data set, or else for pretrained networks, each converted to its type; a key that has
    none is left out."""
    wanted = (data, PRETRAINED, DEFAULT) if pretrained else (data, DEFAULT)
    resolved = {}
    for key, value in layer.items():
        kind = _kind(key, where)
        by_data = value if isinstance(value, Mapping) else {DEFAULT: value}
        converted = {str(name): _converted(key, each, where, kind) for name, each in by_data.items()}
        for name in converted:
            _check_data_set(name, f"{key} in {where}")
        if (chosen := next((name for name in wanted if name in converted), None)) is not None:
            resolved[key] = converted[chosen]
    return resolved


def _kind(key: str, where: str) -> Any:
    """The type of a field, or of a method's option."""
    if key in FIELDS:
        return FIELDS[key]
    if (owner := option_owner(key)) is not None:
        return option_kinds(owner)[key]
    suggestion = nearest(key, [*FIELDS, *_keys_of_recipes(), EXTENDS], 0)
    raise RecipeError(f"unknown key {excerpt(key)} in {where}; did you mean {suggestion!r}?")


def _check_data_set(name: str, where: str) -> None:
    """Refuse a mistyped name, which would silently leave its data set with the default."""
    if name not in (DEFAULT, PRETRAINED) and not name.startswith(OWN):
        try:
            dataset_info(name)
        except DataError as error:
            raise RecipeError(f"{where}: {error}") from error


def _updated(below: Layer, layer: Layer) -> Layer:
    """The layer over those below it, with lengths shrunk where the new epochs leave no room for them."""
    updated = below | layer
    if "epochs" in layer and "epochs" in below:
        epochs = max(layer["epochs"], 1)
        of_methods = [(key, 0, epochs) for key in below if key not in FIELDS and _is_in_epochs(key)]
        for key, least, most in (("cycle", 1, epochs), ("rate_warm_up", 0, epochs - 1), *of_methods):
            if key not in layer and updated.get(key, 0) > most:
                shrunk = round(epochs * below[key] / below["epochs"])
                updated[key] = min(max(shrunk, least), most)
    return updated


def _is_in_epochs(option: str) -> bool:
    """Whether a method's option is a number of epochs."""
    owner = option_owner(option)
    return owner is not None and option in find(owner).options_in_epochs


def _converted(key: str, value: object, where: str, kind: Any) -> object:
    try:
        converted = _convert(value, kind)
    except (ValueError, OverflowError) as error:
        raise RecipeError(f"{key} is {excerpt(value)} in {where}; it must be {_expected(kind)}.") from error
    if isinstance(converted, int) and abs(converted) > LARGEST:
        raise RecipeError(f"{key} is {excerpt(value)} in {where}; it must be at most {LARGEST:,}.")
    if isinstance(converted, str) and len(converted) > LONGEST_TEXT:
        raise RecipeError(f"{key} is {excerpt(value)} in {where}; it may have {LONGEST_TEXT:,} characters.")
    return converted


def _convert(value: object, kind: Any) -> object:
    """The value as the annotated type; a ValueError where that is not possible."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(ValueError):
                return _convert(value, part)
    elif origin is Literal:
        if (value, type(value)) in ((part, type(part)) for part in parts):  # True is equal to 1
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_convert(item, parts[0]) for item in value)
    elif kind is float:
        # YAML 1.1 reads 5e-4, without a dot, as a string
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    elif type(value) is kind:  # not isinstance, to which True is an integer
        return value
    raise ValueError


def _expected(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_expected, parts))
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin is tuple:
        return "a list of numbers"
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
    return simple[kind]
