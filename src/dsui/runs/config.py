"""What identifies a run: data, backbone, method, seed and recipe; written to config.yaml and into the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dsui.recipe import Recipe


@dataclass(frozen=True)
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
    """What the method was told beyond the recipe."""
    outliers: str | None = None
    """Foreign training images, for a method that learns from them."""
    known: str | None = None
    """The class split whose known classes are trained on; None: all classes."""
    held_out: float = 0.0
    """Share of the training images set aside, the same ones for every seed, to select by or to calibrate with."""
    skip_bad: bool = False
    """Whether unreadable files of folder:PATH are left out, in training and whenever the run is evaluated."""

    def mapping(self) -> dict[str, object]:
        """Plain values, as YAML and JSON hold them; the recipe's settings stand beside the run's own.

        `skip_bad` is there only where it holds, so that runs and cells from before it was added keep their identity.
        """
        own = asdict(self)
        if not self.skip_bad:
            del own["skip_bad"]
        recipe = {name: list(value) if isinstance(value, tuple) else value for name, value in own.pop("recipe").items()}
        return {**own, "recipe": recipe.pop("name"), **recipe}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> RunConfig:
        """The reverse of `mapping`; a KeyError or TypeError where something is missing or strange."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in mapping.items()
        }
        values["name"] = values["recipe"]
        recipe = Recipe(**{each.name: values[each.name] for each in fields(Recipe)})
        own = {each.name: values[each.name] for each in fields(cls) if each.name in values and each.name != "recipe"}
        config = cls(**own, recipe=recipe)
        if not all(isinstance(number, int) for number in (config.seed, config.size, config.channels)):
            raise TypeError("seed, size and channels are whole numbers")
        return config
