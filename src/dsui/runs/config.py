"""What identifies a run: data, backbone, method, seed and recipe; written to config.yaml and into the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, get_type_hints

from dsui.backbones.preparation import FACTS
from dsui.backbones.registry import FEATURES
from dsui.methods.registry import option_kinds, option_owner
from dsui.recipe import Recipe
from dsui.schema import NOTHING, TRUTH, Kind, check, either, mapping, number, of_type, record, text, whole

SETTING = either(TRUTH, whole(), number(), text(), NOTHING)
RUN = record(
    {
        "data": text(4096),
        "backbone": text(),
        "method": text(),
        "recipe": text(),
        "seed": whole(-(1 << 63), (1 << 64) - 1),
        "size": whole(1, 1 << 16),
        "channels": whole(1, 1 << 16),
    },
    {
        "options": mapping(SETTING),
        "outliers": either(text(4096), NOTHING),
        "known": either(text(1 << 16), NOTHING),
        "held_out": number(0, 1),
        "skip_bad": TRUTH,
        "preparation": either(FACTS, NOTHING),
    },
)
"""What config.yaml and the weights say of a run, beside the settings of its recipe."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Two runs of one config on one device give the same weights. `size` and `channels` are those of the images; the
    number of features counts as channels, and their size is 1."""

    data: str
    backbone: str
    method: str
    seed: int
    size: int
    channels: int
    recipe: Recipe
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the method beside those that the recipe gives; they win over it."""
    outliers: str | None = None
    """The data set of foreign training images, for a method that learns from them."""
    known: str | None = None
    """The class split whose known classes are trained on; None: all classes."""
    held_out: float = 0.0
    """Share of the training images set aside to select or to calibrate with; the same images for every seed."""
    skip_bad: bool = False
    """Whether unreadable files of folder:PATH are left out, in training and whenever the run is evaluated."""

    preparation: Mapping[str, object] | None = None
    """How the images of a pretrained network are made of photographs (`dsui.backbones.preparation`); None: as the
    central square, which `dsui.data.decode` cuts out."""

    def __post_init__(self) -> None:
        """Drop options that repeat the recipe, so that configs of equal runs are equal."""
        repeated = self.recipe.method_options.items()
        object.__setattr__(self, "options", dict(pair for pair in self.options.items() if pair not in repeated))

    @property
    def on_features(self) -> bool:
        """Whether it is trained on features, not on images."""
        return self.backbone == FEATURES

    def mapping(self) -> dict[str, object]:
        """Plain values, as YAML and JSON hold them, with the recipe's settings beside the run's own.

        `skip_bad` and `preparation` are listed only where they hold, and the recipe's later settings where they are
        changed, so that runs and cells made before these were added keep their identity.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "recipe"}
        own["options"] = dict(self.options)
        if not self.skip_bad:
            del own["skip_bad"]
        if self.preparation is None:
            del own["preparation"]
        settings = self.recipe.identifying()
        recipe = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        return {**own, "recipe": recipe.pop("name"), **recipe}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> RunConfig:
        """The reverse of `mapping`, also for runs of earlier and later versions.

        A setting that the mapping lacks has its default, and a key that nothing here knows is ignored. A SchemaError
        where the mapping lacks what identifies a run, or a value is of another type.
        """
        check(mapping, RUN)
        check(mapping, record({}, _settings_in(frozenset(map(str, mapping)))))
        check(mapping.get("options", {}), record({}, _settings_in(frozenset(mapping.get("options", {})))), "options")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in mapping.items()
        }
        values["name"] = values.pop("recipe")
        own = {each.name: values.pop(each.name) for each in fields(cls) if each.name in values}
        in_recipe = {each.name for each in fields(Recipe)} - {"method_options"}
        known = {key: value for key, value in values.items() if key in in_recipe or option_owner(key) is not None}
        return cls(**own, recipe=Recipe.from_settings(known))


@lru_cache(maxsize=32)
def _settings_in(keys: frozenset[str]) -> dict[str, Kind]:
    """The kinds of those keys that are settings of a recipe or options of a method."""
    hints = {key: hint for key, hint in get_type_hints(Recipe).items() if key not in {"name", "method_options"}}
    kinds = {key: of_type(hints[key]) for key in keys & hints.keys()}
    for key in keys - hints.keys():
        if (owner := option_owner(key)) is not None:
            kinds[key] = of_type(option_kinds(owner)[key])
    return kinds
