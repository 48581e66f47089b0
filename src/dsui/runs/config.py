"""What identifies a run: data, backbone, method, seed and recipe; written to config.yaml and into the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dsui.methods.registry import option_owner
from dsui.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Two runs of one config on one device give the same weights. `size` and `channels` are those of the images."""

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

    def __post_init__(self) -> None:
        """Drop options that repeat the recipe, so that configs of equal runs are equal."""
        repeated = self.recipe.method_options.items()
        object.__setattr__(self, "options", dict(pair for pair in self.options.items() if pair not in repeated))

    def mapping(self) -> dict[str, object]:
        """Plain values, as YAML and JSON hold them, with the recipe's settings beside the run's own.

        `skip_bad` is listed only where it holds, and the recipe's later settings where they are changed, so that runs
        and cells made before these were added keep their identity.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "recipe"}
        own["options"] = dict(self.options)
        if not self.skip_bad:
            del own["skip_bad"]
        settings = self.recipe.identifying()
        recipe = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        return {**own, "recipe": recipe.pop("name"), **recipe}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> RunConfig:
        """The reverse of `mapping`, also for runs of earlier and later versions.

        A setting that the mapping lacks has its default, and a key that nothing here knows is ignored. A KeyError or
        TypeError where the mapping lacks what identifies a run, or a value is of another type.
        """
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in mapping.items()
        }
        values["name"] = values.pop("recipe")
        own = {each.name: values.pop(each.name) for each in fields(cls) if each.name in values}
        in_recipe = {each.name for each in fields(Recipe)} - {"method_options"}
        known = {key: value for key, value in values.items() if key in in_recipe or option_owner(key) is not None}
        config = cls(**own, recipe=Recipe.from_settings(known))
        if not all(isinstance(number, int) for number in (config.seed, config.size, config.channels)):
            raise TypeError("seed, size and channels are whole numbers")
        return config
