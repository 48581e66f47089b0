"""What identifies a run: data, backbone, method, seed and recipe; written to config.yaml and into the weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from dsui.training.recipe import Recipe


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

    def mapping(self) -> dict[str, object]:
        """Plain values, as YAML and JSON hold them; the recipe's settings stand beside the run's own."""
        own = asdict(self)
        recipe = {name: list(value) if isinstance(value, tuple) else value for name, value in own.pop("recipe").items()}
        return {**own, "recipe": recipe.pop("name"), **recipe}
