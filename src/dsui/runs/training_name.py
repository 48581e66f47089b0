"""How the training of a run is called in tables: by its recipe, and by what the run changes in it."""

from __future__ import annotations

import hashlib
import json

from dsui.backbones.spec import is_spec
from dsui.data.registry import DATASETS, FOLDER, FOLDER_SHAPE, dataset_info
from dsui.runs.config import RunConfig
from dsui.runs.recipe_file import changed, load_recipe, names


def training_name(config: RunConfig) -> str:
    """The recipe's name and what the run changes: "paper, components=1, neck=False".

    A recipe of the user's has six digits of a hash behind its name, "mine 3f2a91", that stand for what the file says
    and for the settings that were changed in it.
    """
    name = config.recipe.name
    if name not in names():
        values = json.dumps({**config.recipe.identifying(), "name": ""}, sort_keys=True)
        name = f"{name} {hashlib.sha256(values.encode()).hexdigest()[:6]}"
    return ", ".join(filter(None, (name, changes(config))))


def changes(config: RunConfig) -> str:
    """What differs from the recipe, and the method's options that the recipe does not have: "components=1, kappa=16".

    Lengths that shrank with the epochs are left out.
    """
    recipe, data = config.recipe, config.data
    pretrained = is_spec(config.backbone)
    usual = load_recipe(recipe.name, data, pretrained=pretrained) if recipe.name in names() else recipe
    shortened = {"epochs": recipe.epochs} if recipe.epochs != usual.epochs else {}
    if shortened:
        usual = changed(usual, data, shortened)
    as_usual = usual.settings().items()
    changed_settings = dict(pair for pair in recipe.settings().items() if pair not in as_usual)
    outliers = {"outliers": config.outliers} if config.outliers else {}
    listed = {**shortened, **changed_settings, **config.options, **outliers}
    shape = _usual_shape(data)
    if pretrained:  # these are the network's own
        listed = {key: value for key, value in listed.items() if key not in {"mean", "std"}}
        shape = None
    if shape is not None:
        listed |= {} if config.channels == shape[0] else {"channels": config.channels}
        listed |= {} if config.size == shape[1] else {"size": config.size}
    if config.preparation is not None and config.preparation["fit"] == "letterbox":
        listed |= {"fit": "letterbox"}
    return ", ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in sorted(listed.items())
    )


def _usual_shape(data: str) -> tuple[int, int, int] | None:
    """The shape of the images where nothing else was chosen; None for arrays and features, which have none."""
    if data.startswith(FOLDER):
        return FOLDER_SHAPE
    return dataset_info(data).shape if data in DATASETS else None
