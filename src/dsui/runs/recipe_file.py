"""Recipes as files: one flat YAML mapping each, every key a field of `Recipe`.

A value may depend on the data set: `epochs: {default: 100, svhn: 40}`. A file of one's own names every key,
or begins with `extends: paper` and gives what differs. Later values win: extended recipe, file, overrides.

Where `epochs` is overridden and a length in epochs (`cycle`, `rate_warm_up`, `density_warm_up`) no longer fits
and is not overridden with it, that length shrinks in proportion: round(epochs * length before / epochs before).
So `epochs: 3` alone makes a short run of any recipe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from dsui.data.registry import FOLDER, FOLDER_SHAPE, dataset_info
from dsui.errors import DataError
from dsui.methods.registry import option_kinds
from dsui.recipe import Recipe, RecipeError
from dsui.runs.config import RunConfig
from dsui.spelling import nearest

Layer = dict[str, Any]
KINDS: dict[str, Any] = get_type_hints(Recipe)
OVERRIDES, EXTENDS = "the overrides", "extends"


def names() -> list[str]:
    """The recipes that come with dsui."""
    files = (resources.files("dsui.runs") / "recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_recipe(name: str, data: str, overrides: Mapping[str, object] = {}) -> Recipe:
    """The recipe of that name, or of a path ending in .yaml or .yml, for a data set.

    `overrides` win over the file; their strings are read as YAML, as from `--set epochs=3`.
    """
    own_file = name.lower().endswith((".yaml", ".yml"))
    recipe: Layer = {"name": Path(name).stem if own_file else name}
    for where, layer in [*(_own(name) if own_file else _shipped(name)), (OVERRIDES, _parsed(overrides))]:
        recipe = _updated(recipe, _resolved(layer, data, where))
    if missing := [key for key in KINDS if key not in recipe]:
        raise RecipeError(
            f"{name} has no {', '.join(missing)} for {data}; give every key, or begin the file with 'extends: paper'."
        )
    return Recipe(**recipe)


def changed(recipe: Recipe, data: str, overrides: Mapping[str, object]) -> Recipe:
    """The recipe with `overrides`, as `load_recipe` applies them."""
    return Recipe(**_updated(asdict(recipe), _resolved(_parsed(overrides), data, OVERRIDES)))


def training_name(config: RunConfig) -> str:
    """The recipe's name, and what was changed in it or told the method: "paper, components=1, neck=False".

    What a file of the user's own says, and what was changed in that, is known by its hash: "mine 3f2a91".
    """
    name = config.recipe.name
    if name not in names():
        values = json.dumps({**asdict(config.recipe), "name": ""}, sort_keys=True)
        name = f"{name} {hashlib.sha256(values.encode()).hexdigest()[:6]}"
    return ", ".join(filter(None, (name, changes(config))))


def changes(config: RunConfig) -> str:
    """What of a run is unlike its recipe; lengths that shrank with the epochs go without saying."""
    recipe, data = config.recipe, config.data
    usual = load_recipe(recipe.name, data) if recipe.name in names() else recipe
    shortened = {"epochs": recipe.epochs} if recipe.epochs != usual.epochs else {}
    if shortened:
        usual = changed(usual, data, shortened)
    unlike = {key: value for key, value in asdict(recipe).items() if value != getattr(usual, key)}
    outliers = {"outliers": config.outliers} if config.outliers else {}
    told = {**shortened, **unlike, **config.options, **outliers}
    if data.startswith(FOLDER):
        shape = (("channels", config.channels, FOLDER_SHAPE[0]), ("size", config.size, FOLDER_SHAPE[1]))
        told |= {key: value for key, value, unchanged in shape if value != unchanged}
    return ", ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in sorted(told.items())
    )


def method_options(name: str, overrides: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The overrides apart: what the recipe knows or nobody does, and what only the method `name` knows, converted."""
    kinds = option_kinds(name)
    of_method = {key: value for key, value in overrides.items() if key in kinds and key not in KINDS}
    options = {
        key: _converted(key, value, f"the options of {name}", kinds[key]) for key, value in _parsed(of_method).items()
    }
    rest = {key: value for key, value in overrides.items() if key not in of_method}
    settable = [key for key in KINDS if key != "name"]  # under another name its changes would go unnoticed
    for key in rest:
        if key not in settable:
            suggestion = nearest(key, [*settable, *kinds], 0)
            raise RecipeError(f"neither the recipe nor {name} has a setting {key!r}; did you mean {suggestion!r}?")
    return rest, options


def _shipped(name: str, subject: str | None = None) -> list[tuple[str, Layer]]:
    """The one layer of a recipe that comes with dsui; `subject` begins the sentence if there is none."""
    if name not in (known := names()):
        suggestion = nearest(name, known, 0)
        subject = subject or f"recipe {name!r} is no .yaml file and"
        raise RecipeError(f"{subject} none of {', '.join(known)}; did you mean {suggestion}?")
    text = (resources.files("dsui.runs") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    return [(f"recipe {name!r}", _mapping(text, f"recipe {name!r}"))]


def _own(path: str) -> list[tuple[str, Layer]]:
    """The layers of a user's file: what it extends, if anything, and itself."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}.") from error
    except ValueError as error:
        raise RecipeError(f"cannot read the recipe {path}: it is not UTF-8 text.") from error
    layer = _mapping(text, path)
    extended = layer.pop(EXTENDS, None)
    below = [] if extended is None else _shipped(str(extended), f"{path} extends {str(extended)!r}, which is")
    return [*below, (path, layer)]


def _mapping(text: str, where: str) -> Layer:
    values = _yaml(text, where)
    if not isinstance(values, dict):
        raise RecipeError(f"{where} is no mapping; write one 'key: value' on each line.")
    return {str(key): value for key, value in values.items()}


def _parsed(overrides: Mapping[str, object]) -> Layer:
    return {
        key: _yaml(value, f"the override {key}={value}") if isinstance(value, str) else value
        for key, value in overrides.items()
    }


def _yaml(text: str, where: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RecipeError(f"{where} is not valid YAML: {error.problem} in line {line}.") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RecipeError(f"{where} is not valid YAML: {error.reason} in line {line}.") from error
    except ValueError as error:  # a date such as 2021-13-01
        raise RecipeError(f"{where} is not valid YAML: {error}.") from error


def _resolved(layer: Layer, data: str, where: str) -> Layer:
    """The layer's values for this data set, converted to the types of `Recipe`; without those it leaves to others."""
    resolved = {}
    for key, value in layer.items():
        if key not in KINDS:
            suggestion = nearest(key, [*KINDS, EXTENDS], 0)
            raise RecipeError(f"unknown key {key!r} in {where}; did you mean {suggestion!r}?")
        choices = value if isinstance(value, Mapping) else {"default": value}
        converted = {str(name): _converted(key, choice, where, KINDS[key]) for name, choice in choices.items()}
        for name in converted:
            _check_data_set(name, f"{key} in {where}")
        if (chosen := data if data in converted else "default") in converted:
            resolved[key] = converted[chosen]
    return resolved


def _check_data_set(name: str, where: str) -> None:
    """A mistyped name would silently leave a data set with the default."""
    if name != "default" and not name.startswith(FOLDER):
        try:
            dataset_info(name)
        except DataError as error:
            raise RecipeError(f"{where}: {error}") from error


def _updated(below: Layer, layer: Layer) -> Layer:
    """The layer on top of what lies below, lengths shrunk where new epochs leave them no room."""
    updated = below | layer
    if "epochs" in layer and "epochs" in below:
        epochs = max(layer["epochs"], 1)
        for key, least, most in (
            ("cycle", 1, epochs),
            ("rate_warm_up", 0, epochs - 1),
            ("density_warm_up", 0, epochs),
        ):
            if key not in layer and updated.get(key, 0) > most:
                shrunk = round(epochs * below[key] / below["epochs"])
                updated[key] = min(max(shrunk, least), most)
    return updated


def _converted(key: str, value: object, where: str, kind: Any) -> object:
    try:
        return _convert(value, kind)
    except (ValueError, OverflowError) as error:
        raise RecipeError(f"{key} is {value!r} in {where}; it must be {_expected(kind)}.") from error


def _convert(value: object, kind: Any) -> object:
    """The value as the annotated kind, or a ValueError."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(ValueError):
                return _convert(value, part)
    elif origin is Literal:
        if value in parts:
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_convert(item, parts[0]) for item in value)
    elif kind is float:
        # YAML 1.1 reads 5e-4, without a dot, as a string
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    elif type(value) is kind:  # not isinstance: true is no integer
        return value
    raise ValueError


def _expected(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_expected, parts))
    if origin is Literal:
        return f"one of {', '.join(parts)}"
    if origin is tuple:
        return "a list of numbers"
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
    return simple[kind]
